//! `ptarmigan inspect`: shows what a trace contains.
mod count;
mod events;
mod machine;
mod share;
mod text;
mod work;

use ptarmigan_bench::json::Document;
use ptarmigan_replay::files;
use ptarmigan_term::{Context, Failure, nearest, print};
use ptarmigan_trace::{Kind, ReadError};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

pub use count::{FaultStats, Inspection, PagesAtStops, Running, TouchedRegions, VmPteStats, report};
pub use machine::UnreadPrograms;

/// The number of the document's form.
const SCHEMA: u32 = 2;

/// Show what a trace contains.
#[derive(clap::Args, Debug)]
pub struct InspectArgs {
    /// The trace: a file, the name of a shipped recording (linux-build, compile, configure, rustc,
    /// fixture), or - for standard input.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Write a copy of the trace to a new file, for others: without the names of files and
    /// functions.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "events"])]
    share: Option<PathBuf>,
    /// Print the events, one a line: number, milliseconds, CPU, task, kind, fields. Addresses are
    /// page numbers.
    #[arg(long, conflicts_with = "json", help_heading = "Events")]
    events: bool,
    /// Print the events as CSV: a column for each field, empty where an event does not have it.
    #[arg(long, requires = "events", help_heading = "Events")]
    csv: bool,
    /// Only events of these tasks.
    #[arg(long, value_delimiter = ',', value_name = "N,...", requires = "events", help_heading = "Events")]
    task: Vec<u32>,
    /// Only events of these kinds, for example fault,mmap,truth.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KIND,...",
        requires = "events",
        help_heading = "Events"
    )]
    kind: Vec<String>,
}

/// Prints the contents of a trace.
///
/// # Errors
/// If the file cannot be read or is not a complete trace.
pub fn run(args: &InspectArgs) -> Result<ExitCode, Failure> {
    if args.events {
        return print_events(args).map(|()| ExitCode::SUCCESS);
    }
    if let Some(to) = &args.share {
        return share::share(args, to).map(|()| ExitCode::SUCCESS);
    }
    let report = report(&args.file).map_err(|e| problem(args, &e))?;
    if args.json {
        print::stdout(&Document::with_schema(SCHEMA, &report).pretty().context("report")?)?;
    } else {
        let width = ptarmigan_term::screen::narrow().unwrap_or(text::COLUMNS);
        print::stdout(
            &(text::table(&report, width)
                + &work::requests(report.flushes.as_ref(), width)
                + &work::tables(&report.work, width)),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn problem(args: &InspectArgs, e: &ReadError) -> Failure {
    Failure::new(format!("{}: {e}", files::name(&args.file)))
}

/// Prints the events that the options choose.
fn print_events(args: &InspectArgs) -> Result<(), Failure> {
    let names: Vec<&str> = Kind::names().collect();
    if let Some(unknown) = args.kind.iter().find(|kind| !names.contains(&kind.as_str())) {
        let (hint, known) = (nearest::hint(unknown, &names), names.join(", "));
        return Err(Failure::new(format!("{unknown}: no kind of event; known are {known}{hint}")));
    }
    let file = files::open(&args.file).map_err(|e| problem(args, &e))?;
    let tasks = file.summary().tasks;
    if let Some(absent) = args.task.iter().find(|task| **task >= tasks) {
        let (name, last) = (files::name(&args.file), tasks - 1);
        return Err(Failure::new(format!("{name}: no task {absent}; its tasks are 0 to {last}")));
    }
    let mut reader = file.events().map_err(|e| problem(args, &e))?;
    let mut text = if args.csv { events::csv_head() + "\n" } else { String::new() };
    let mut number = 0;
    while let Some(event) = reader.next() {
        let event = event.map_err(|e| problem(args, &e))?;
        let wanted = (args.task.is_empty() || args.task.contains(&event.task))
            && (args.kind.is_empty() || args.kind.iter().any(|kind| kind == event.kind.name()));
        if wanted {
            let time = (reader.header().version() > 1).then(|| reader.time());
            let line = events::EventLine { number, time, event, symbols: reader.symbols() };
            // A `String` takes everything.
            let _ = if args.csv { writeln!(text, "{}", line.csv()) } else { writeln!(text, "{line}") };
        }
        if text.len() >= 1 << 16 {
            print::stdout(&text)?;
            text.clear();
        }
        number += 1;
    }
    print::stdout(&text)
}
