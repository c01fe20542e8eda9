//! `ptarmigan price`: prices proposals on recordings.
//!
//! The rows are those of [`ptarmigan_replay::price`]; here they are chosen, weighed against the
//! time of the kernel, sorted and printed.
//!
//! * `document` is the result, which serialises to the JSON document; `text` prints it in words, as
//!   CSV and as Markdown.
mod args;
mod document;
mod text;

pub use args::PriceArgs;

use crate::page_prices;
use document::{PriceDocument, TracePrices};
use ptarmigan_replay::model;
use ptarmigan_replay::model::page_prices::PagePrices;
use ptarmigan_replay::price::{self, Row};
use ptarmigan_replay::{SoloTrace, Trace};
use ptarmigan_term::nearest::hint;
use ptarmigan_term::{Context, Failure, print};
use std::process::ExitCode;
use std::time::Duration;

/// Prints the price of each proposal for each trace.
///
/// # Errors
/// If a trace or a cost model cannot be read, memory runs out, or a proposal is not known: then
/// the others are printed nevertheless.
pub fn run(args: &PriceArgs) -> Result<ExitCode, Failure> {
    if args.list {
        print::stdout(&text::list(&price::all()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let unknown = unknown(&args.only);
    if !unknown.is_empty() && rows(&args.only).is_empty() {
        return Err(Failure::new(unknown.join("; ")));
    }
    // Before traces are read: prices are measured with forks, which a large process makes dear.
    let prices = prices(args.model.as_deref())?;
    let mut document = PriceDocument::new(prices);
    for path in &args.traces {
        let solo = SoloTrace::new(Trace::open(path)?);
        let (limit, middle) = (Duration::from_secs(args.limit), &document.prices.middle);
        let priced = price::price(&solo, args.memory, rows(&args.only), middle, limit)?;
        let trace = TracePrices::new(solo.trace(), priced, middle);
        if !args.json {
            let first = document.traces.is_empty();
            print::stdout(&match (args.csv, args.markdown) {
                (true, _) => text::csv(&trace, first),
                (_, true) => text::markdown(&trace, first),
                _ => text::words(&trace, &document.prices, first),
            })?;
        }
        document.traces.push(trace);
    }
    if args.json {
        print::stdout(&(serde_json::to_string_pretty(&document).context("JSON")? + "\n"))?;
    }
    if unknown.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::new(unknown.join("; "))) }
}

/// Returns the rows with these names, or all if there are none.
fn rows(only: &[String]) -> Vec<Box<dyn Row>> {
    let wanted = |row: &dyn Row| only.is_empty() || only.iter().any(|name| name == row.about().name);
    price::all().into_iter().filter(|row| wanted(&**row)).collect()
}

/// Returns a sentence for each name that is no row's.
fn unknown(only: &[String]) -> Vec<String> {
    let names: Vec<_> = price::all().iter().map(|row| row.about().name).collect();
    let unknown = only.iter().filter(|name| !names.contains(&name.as_str()));
    unknown.map(|name| format!("no proposal is called {name:?}{}", hint(name, &names))).collect()
}

/// Loads the prices of pages, or measures them.
fn prices(model: Option<&str>) -> Result<PagePrices, Failure> {
    let Some(name) = model else {
        return page_prices::measure()
            .map_err(|why| Failure::new(format!("{why}; give prices of another machine with --model FILE")));
    };
    let loaded = model::load(name).map_err(|e| Failure::new(e.to_string()))?;
    loaded.page_prices.ok_or_else(|| {
        Failure::new(format!(
            "--model {name}: it has no prices of pages; give a file of `ptarmigan calibrate -o FILE`"
        ))
    })
}
