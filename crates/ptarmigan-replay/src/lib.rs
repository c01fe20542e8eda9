//! Replays recorded programs on the library, policy against policy: `ptarmigan replay`, and the
//! replays of the other commands.
//!
//! # Passes
//!
//! Each pass runs on a fresh machine, and at its end every frame must be free again. Each policy
//! gets up to four kinds of pass:
//!
//! 1. A counting pass that also times single calls of the allocator.
//! 2. Replays without instruments, for the speed.
//! 3. The allocator's calls back to back, for the means.
//! 4. With `--sanitize`, passes under the sanitizer, when all the rest has been printed.
//!
//! Kinds 2 and 3 alternate between the policies, so a machine that changes its speed treats all
//! policies alike.
//!
//! # Modules
//!
//! * `files` finds the traces that a command line names, `input` reads one and turns it into a
//!   program for each worker.
//! * `arch` has the machines of `--arch` by name. `platform` has the kinds of machines, and `setup`
//!   sets replays up and runs them, for all that follow.
//! * `high` is high memory, if the machine has any. `mapped` replays for the frames that are mapped
//!   there, `placed` for tables there, and `counted` for tables and times by class of operation.
//! * [`account`] sums up the times that a recording has.
//! * `own_policy` replays on a policy from outside the crate.
//! * `table_events` prints the events of tables.
//! * `observed` replays once and writes down the lives of tables, for reports. [`flushes`]
//!   counts flushes by cause, Linux's and the library's; `causes` names causes, and `starts`
//!   programs.
//! * `workers` execute the programs.
//! * `instruments` count, time and check the work of the workers.
//! * `passes` puts these together, and `report` prints the result.
//! * [`price`] prices proposals: what a change of the machine or of Linux would save.
//! * `pages` has sets of pages, `ranges` maps ranges of pages to values.
//! * [`model`] has the costs of flushes, [`baseline`] the figures of earlier runs.
pub mod account;
mod arch;
mod args;
pub mod baseline;
mod causes;
mod counted;
pub mod files;
pub mod flushes;
mod high;
mod input;
mod instruments;
mod linux;
mod mapped;
mod memory;
pub mod model;
mod observed;
mod own_policy;
mod pages;
mod passes;
mod placed;
mod platform;
mod policy;
pub mod price;
mod ranges;
mod report;
mod setup;
mod starts;
mod table_events;
#[cfg(test)]
mod tests;
mod workers;

/// The trace crate: events, and their kinds.
pub use ::ptarmigan_trace;
pub use arch::{MachineName, PerFormat};
pub use args::{ReplayArgs, Spread, TableFormat};
pub use causes::Cause;
pub use counted::{CountedMachine, CountedRun, LargeCounts};
pub use flushes::Flushes;
pub use high::KmapReport;
pub use input::relayout::Tasks;
pub use input::schedule::{Op, Program};
pub use input::trace::{PackedEvent, PackedKind, Timing, Trace};
pub use instruments::classes::OpClass;
pub use instruments::levels::Levels;
pub use instruments::lives::Life;
pub use instruments::measured::LevelTimes;
pub use linux::{Blocks, HugeFaults, SPLIT, is_found};
pub use memory::{parse as parse_memory, parse_bytes};
pub use observed::{
    Axis, FunctionWork, Mapping, MappingKind, MappingTracker, MappingWork, Observation, ObservedTrace,
    PageAt, PolicyRun, Programs, RecordedProgram, SpaceMap, Work, WorkSurvey,
};
pub use own_policy::{OwnLevel, Page, PolicyOptions, PolicyResult, TablePolicy, run_with};
pub use pages::{REGION, RegionPages};
pub use placed::{PlacedMachine, PlacedRun, PlacedTrace};
pub use platform::{ReplayHost, WalkingMmu};
pub use policy::{Choice, PolicyName};
pub use ranges::RangeMap;
pub use report::{LevelReport, TruthReport};
pub use setup::SoloTrace;
pub use table_events::write_table_events;
pub use workers::look::{LeafTable, Look, When};
pub use workers::machine::{EitherMachine, ReplayMmu};
pub use workers::watch::Watch;

use crate::baseline::{BaselineRun, Comparison, WithComparison};

use crate::files::shipped::DEFAULT;
use ptarmigan_bench::json::Document;
use ptarmigan_term::{Context, Failure, print};
use report::ReplayReport;
use std::io::IsTerminal;
use std::process::ExitCode;

/// The number of the form of a replay's document.
const SCHEMA: u32 = 2;

/// Replays the default recording on three policies, also under the sanitizer. The command without
/// arguments does this.
///
/// # Errors
/// As [`run`].
pub fn default_run(spread: Spread) -> Result<ExitCode, Failure> {
    if std::io::stdout().is_terminal() {
        let (name, _) = DEFAULT;
        print::note(&format!("replays the shipped {name} on 3 policies; `ptarmigan --help` has more"));
    }
    let policy = vec![PolicyName::Plain, PolicyName::V5, PolicyName::Ptarmigan];
    let memory = 4 << 30;
    run(&ReplayArgs { policy, nodes: 1, memory, sanitize: true, seeds: 1, spread, ..ReplayArgs::default() })
}

/// Replays traces and prints a report for each.
///
/// # Errors
/// If a trace, a cost model or a baseline cannot be read or written, a number is out of range,
/// areas do not fit, memory runs out, a policy that is not historic has a finding of the sanitizer,
/// or a frame or an entry of the hash table is lost.
pub fn run(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    if let Some(TableFormat::Csv) = args.tables {
        return table_events::run(args).map(|()| ExitCode::SUCCESS);
    }
    let args = &args.with_costs()?;
    memory::check(args.memory, args.nodes)?;
    let baseline = BaselineRun::begin(&args.baseline, "replay")?;
    let mut reports: Vec<(ReplayReport, Option<Comparison>)> = Vec::new();
    let mut figures = Vec::new();
    let mut failures = Vec::new();
    let mut load = |trace: Result<Trace, Failure>| -> Result<(), Failure> {
        let measured = &mut |report: &ReplayReport| match args.json {
            true => Ok(()),
            false => print::report(&report.text()),
        };
        let report = passes::replay(trace?, args, &mut failures, measured)?;
        let of_trace = report.figures(reports.iter().map(|(report, _)| report))?;
        let comparison = baseline.compare(&of_trace)?;
        figures.extend(of_trace);
        if !args.json {
            print::report(&report.sanitizer_text())?;
            if let Some(comparison) = &comparison {
                comparison.print()?;
            }
        }
        reports.push((report, comparison));
        Ok(())
    };
    if args.traces.is_empty() {
        load(Trace::open_or_default(None))?;
    }
    for path in &args.traces {
        load(Trace::open(path))?;
    }
    if args.json {
        let documents: Vec<_> = reports
            .iter()
            .map(|(report, with)| WithComparison { report, comparison: with.as_ref() })
            .map(|report| Document::with_schema(SCHEMA, report))
            .collect();
        let text = match documents.as_slice() {
            [one] => one.pretty().context("report")?,
            all => serde_json::to_string_pretty(all).context("report")? + "\n",
        };
        print::stdout(&text)?;
    }
    if let Some(failure) = failures.into_iter().next() {
        return Err(failure);
    }
    baseline.finish(figures)?;
    Ok(ExitCode::SUCCESS)
}
