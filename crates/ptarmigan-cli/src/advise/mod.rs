//! `ptarmigan advise`: finds changes that help a recorded program, or a kernel that runs it.
//!
//! No figure is estimated if a replay can measure it. For each piece of advice, the recording is
//! written anew as the corrected program would make it, or replayed with other settings. The saving
//! is the difference of the two replays. docs/advise.md says how and why.
//!
//! * `program` has the advice to the author of the program, `kernel` that to a kernel.
//! * `facts` are names, times and mappings of the programs, which no replay knows.
//! * `expect` says what a second recording should show, and `check` compares one; `names` has the
//!   programs that are called otherwise in it.
//! * `measure` replays both sides in turns; `figures` are the counts of a replay.
//! * `causes` lists the causes of the time; `rank` orders advice by it.
//! * `brief` has the advice in short, for `ptarmigan report`.
//! * `report` is the result, which serialises to the JSON document; `text` prints it.
mod advice;
mod args;
mod brief;
mod causes;
mod check;
mod expect;
mod facts;
mod figures;
mod kernel;
mod measure;
mod names;
mod program;
mod rank;
mod report;
mod text;

pub use args::AdviseArgs;
pub use brief::{Brief, Effort, brief};

use crate::page_prices;
use args::{KernelArch, Whom};
use causes::Causes;
use check::{After, First};
use facts::Facts;
use measure::Measure;
use program::Needs;
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan_replay::SoloTrace;
use ptarmigan_replay::model;
use ptarmigan_replay::model::page_prices::PagePrices;
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure};
use report::{AdviceDocument, TraceReport};
use std::process::ExitCode;

/// Prints advice for each trace.
///
/// # Errors
/// If a trace or a cost model cannot be read, or memory runs out.
pub fn run(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    args.check()?;
    let model = args.model.as_deref().map(|name| Priced::load(name, args.whom)).transpose()?;
    // Before traces are read: prices are measured with forks, which a large process makes dear.
    let timed = args.whom != Whom::Kernel && args.rounds > 0;
    let stored = model.as_ref().and_then(|model| model.pages);
    let prices = stored.or_else(|| timed.then(|| page_prices::measure().ok()).flatten());
    let costs = model.and_then(|model| model.flushes);
    let mut document = AdviceDocument::default();
    for path in &args.traces {
        let report = one(&SoloTrace::new(args.open(path)?), args, costs, prices)?;
        if !args.json {
            let between = if document.traces.is_empty() { "" } else { "\n" };
            print::stdout(&format!("{between}{}", text::text(&report)))?;
        }
        document.traces.push(report);
    }
    if args.json {
        print::stdout(&(serde_json::to_string_pretty(&document).context("JSON")? + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a cost model prices.
struct Priced {
    flushes: Option<Costs>,
    pages: Option<PagePrices>,
}

impl Priced {
    /// Loads a cost model that prices what advice for `whom` needs: flushes for a kernel, pages for
    /// a program.
    fn load(name: &str, whom: Whom) -> Result<Self, Failure> {
        let model = model::load(name).map_err(|e| Failure::new(e.to_string()))?;
        let flushes = match model.rule {
            CostModel::Costs(costs) => Some(costs),
            _ => None,
        };
        let pages = model.page_prices.filter(|_| whom != Whom::Kernel);
        let lacks = match whom {
            Whom::Program if pages.is_none() => "it has no prices of pages, which a program needs",
            Whom::Kernel | Whom::Both if flushes.is_none() => "a rule without costs prices nothing",
            _ => return Ok(Priced { flushes, pages }),
        };
        Err(Failure::new(format!("--model {name}: {lacks}; give a file of `ptarmigan calibrate -o FILE`")))
    }
}

fn one(
    recorded: &SoloTrace,
    args: &AdviseArgs,
    costs: Option<Costs>,
    prices: Option<PagePrices>,
) -> Result<TraceReport, Failure> {
    let measure = Measure::new(args.memory, args.rounds);
    let (mut verdicts, mut needs) = (Vec::new(), Needs::default());
    measure.say("replaying");
    let facts = Facts::of(recorded.trace());
    let names = names::Renamed::new(&args.renamed, &facts)?;
    let (whole, run) = measure.alone(measure::Side { trace: recorded, on: measure.usual })?;
    if args.whom != Whom::Kernel {
        let found = program::advise(recorded, &facts, &whole, &measure, prices)?;
        verdicts.extend(found.verdicts);
        needs = found.needs;
    }
    if args.whom != Whom::Program {
        verdicts.extend(kernel::advise(recorded, &measure, costs, args.arch == KernelArch::I386Pae)?);
    }
    let causes = Causes::of(recorded.trace(), &facts, prices.as_ref());
    let mut report = TraceReport::new(recorded.trace(), whole, run.samples, verdicts, causes);
    if let Some(path) = &args.check {
        let after = After::new(args.open(path)?, recorded.trace(), &names, &measure)?;
        report.check = Some(after.check(&report.advice, &First { trace: recorded.trace(), facts, needs }));
    }
    Ok(report)
}
