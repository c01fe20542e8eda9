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

use crate::page_prices::PagePrices;
use args::{KernelArch, Whom};
use causes::Causes;
use check::{After, First};
use facts::Facts;
use measure::Measure;
use program::Needs;
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan_replay::SoloTrace;
use ptarmigan_replay::model;
use ptarmigan_term::print;
use ptarmigan_term::screen;
use ptarmigan_term::{Context, Failure};
use report::{AdviceDocument, TraceReport};
use std::process::ExitCode;

/// Prints advice for each trace.
///
/// # Errors
/// If a trace or a cost model cannot be read, or memory runs out.
pub fn run(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    args.check()?;
    let costs = args.model.as_deref().map(costs).transpose()?;
    // Before traces are read: prices are measured with forks, which a large process makes dear.
    let timed = args.whom != Whom::Kernel && args.rounds > 0;
    let prices = timed.then(|| PagePrices::measure().ok()).flatten();
    let width = screen::narrow().unwrap_or(text::COLUMNS);
    let mut document = AdviceDocument::default();
    for path in &args.traces {
        let report = one(&SoloTrace::new(args.open(path)?), args, costs, prices)?;
        if !args.json {
            let between = if document.traces.is_empty() { "" } else { "\n" };
            print::stdout(&format!("{between}{}", text::text(&report, width)))?;
        }
        document.traces.push(report);
    }
    if args.json {
        print::stdout(&(serde_json::to_string_pretty(&document).context("JSON")? + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads a cost model that has costs.
fn costs(name: &str) -> Result<Costs, Failure> {
    match model::load(name).map_err(|e| Failure::new(e.to_string()))?.rule {
        CostModel::Costs(costs) => Ok(costs),
        _ => Err(Failure::new(format!(
            "--model {name}: a rule without costs prices nothing; give a file of `ptarmigan calibrate -o FILE`"
        ))),
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
