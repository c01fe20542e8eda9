//! Measures the experiments of papers and mails of 2001 to 2010 again, on the library.
//!
//! They are apart from `ptarmigan bench`, so that the command builds without them. The command line
//! is that of its benchmarks: `--json`, `--save` and `--compare` do the same.
//!
//! # Modules
//!
//! * `hash`: the work of a hash table, and the effect of its size.
//! * `flush`: flushes of a machine with a hash table, priced by a cost model, beside this host's.
//! * `kmap`: windows of slots for high memory.
//! * `userpte`: leaf tables in high memory: their cost, and when they pay.
//! * `history`: the reports of 2004 and 2008 on quicklists.
//! * `usage`: this process, as the host counts it; `welch`: comparisons of means.
mod examples;
mod flush;
mod hash;
mod history;
mod kmap;
mod usage;
mod userpte;
mod welch;

use clap::{Args, CommandFactory, Parser, Subcommand};
use history::{holt, imbalance, migration};
use ptarmigan_bench::report::BenchReport;
use ptarmigan_cli::bench::{OnArch, conclude};
use ptarmigan_cli::{calibrate, cli};
use ptarmigan_replay::baseline::{BaselineArgs, BaselineRun};
use ptarmigan_replay::model;
use ptarmigan_term::Failure;
use ptarmigan_term::print;
use std::process::ExitCode;

/// The name of the program, as on its command line.
const NAME: &str = "ptarmigan-papers";

/// Benchmarks of papers and mails of 2001 to 2010, measured again.
#[derive(Clone, Debug, Parser)]
#[command(name = NAME, version, max_term_width = 80)]
pub struct Papers {
    #[command(subcommand)]
    paper: Paper,
    #[command(flatten)]
    baseline: BaselineArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum Paper {
    /// Flushes of a page, a range and everything on a hashed machine, and clearing its hash table:
    /// counted, and priced by a cost model. Beside them flushes of this host, measured.
    Flush(FlushOptions),
    /// Entries looked at, stores, evictions and `tlbie`s of hash tables by size: counted, and
    /// flushes and wipes priced by a cost model.
    Hash(FlushOptions),
    /// Windows of slots for high memory: slots per sweep on recordings, pools against each other,
    /// and the planner against each rule on real slots.
    Kmap(kmap::KmapOptions),
    /// Leaf tables in high memory: the experiment of 2010 on a recording, and the memory, sharing
    /// and sparseness at which low memory runs out without them.
    Userpte(userpte::UserPteOptions),
    /// Forked children that read pages far apart, in nanoseconds per fault.
    Holt(OnArch),
    /// Fork on one CPU, exit on the others: memory cached by lists. Counts, no times.
    Imbalance(ImbalanceOptions),
    /// Fork on one node, exit on another: pages cached on the wrong node. Counts, no times.
    Migration(CountOptions),
}

/// Options of benchmarks that count.
#[derive(Args, Clone, Copy, Debug)]
struct CountOptions {
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Clone, Debug)]
struct FlushOptions {
    /// Cost model with prices: a shipped one, or a file as `ptarmigan docs cost-models`
    /// says.
    #[arg(long, default_value = "power3-2001", value_name = "NAME|FILE")]
    model: String,
    #[command(flatten)]
    count: CountOptions,
}

#[derive(Args, Clone, Copy, Debug)]
struct ImbalanceOptions {
    /// Lists of the historic policies, 1 to 3.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    historic_lists: u8,
    #[command(flatten)]
    count: CountOptions,
}

impl FlushOptions {
    fn load(&self) -> Result<model::Model, Failure> {
        model::load(&self.model).map_err(|e| Failure::new(e.to_string()))
    }
}

impl Paper {
    fn name(&self) -> String {
        let name = match self {
            Paper::Flush(_) => "flush",
            Paper::Hash(_) => "hash",
            Paper::Kmap(_) => "kmap",
            Paper::Userpte(_) => "userpte",
            Paper::Holt(on) => match on.other() {
                Some(arch) => return format!("papers holt --arch {arch}"),
                None => "holt",
            },
            Paper::Imbalance(_) => "imbalance",
            Paper::Migration(_) => "migration",
        };
        format!("papers {name}")
    }
}

impl Papers {
    /// Runs the benchmark, prints its report on standard output, and compares or saves its figures
    /// if that is asked for.
    ///
    /// # Errors
    ///
    /// If something cannot be set up, a check fails, a baseline cannot be used, or the report
    /// cannot be written.
    pub fn run(&self) -> Result<(), Failure> {
        let baseline = BaselineRun::begin(&self.baseline, &self.paper.name())?;
        match &self.paper {
            Paper::Flush(options) => {
                let mut report = flush::run(&options.load()?).map_err(Failure::new)?;
                report.add_host(calibrate::brief());
                conclude(baseline, &report, report.text(), options.count.json)
            }
            Paper::Hash(options) => {
                let report = hash::run(&options.load()?).map_err(Failure::new)?;
                conclude(baseline, &report, report.text(), options.count.json)
            }
            Paper::Kmap(options) => {
                let report = kmap::run(options)?;
                conclude(baseline, &report, report.text(), options.json)
            }
            Paper::Userpte(options) => {
                let report = userpte::run(options)?;
                conclude(baseline, &report, report.text(), options.json)
            }
            Paper::Holt(on) => {
                let report = BenchReport { arch: on.other(), ..holt::run(on.options.rounds, on.arch)? };
                conclude(baseline, &report, report.text(), on.options.json)
            }
            Paper::Imbalance(options) => {
                let report = imbalance::run(options.historic_lists).map_err(Failure::new)?;
                conclude(baseline, &report, report.text(), options.count.json)
            }
            Paper::Migration(options) => {
                let report = migration::run().map_err(Failure::new)?;
                conclude(baseline, &report, report.text(), options.json)
            }
        }
    }
}

/// Parses a command line, the program's name first.
///
/// # Errors
/// If it does not follow the grammar, or asks for help or the version.
pub fn parse<S: Into<std::ffi::OsString> + Clone>(
    line: impl IntoIterator<Item = S>,
) -> Result<Papers, clap::Error> {
    let command = cli::with_examples(Papers::command(), NAME, examples::of);
    cli::parse_as(command, line, |papers: &mut Papers| Some(&mut papers.baseline))
}

/// Parses the command line of this process and executes it. Returns the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let papers = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    papers.run().map_or_else(|failure| print::failure(&failure), |()| ExitCode::SUCCESS)
}
