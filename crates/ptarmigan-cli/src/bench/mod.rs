//! `ptarmigan bench`: benchmarks of the library, each beside the contenders that it is compared
//! with.
//!
//! The harness, and the cases that comparisons with other crates run too, are the crate
//! `ptarmigan-bench`.
//!
//! # Modules
//!
//! * `table`: page-table operations by policy; `faults`: faults of one thread and of two.
//! * `zero`: clearing table pages.
//! * `historic`: Linux's policies of 2004 and 2008.
//!
//! Benchmarks of papers and mails are the crate `ptarmigan-papers`.
mod faults;
pub mod historic;
mod table;
mod zero;

use clap::{Args, Subcommand};

use ptarmigan_bench::json::Document;
use ptarmigan_bench::report::BenchReport;
use ptarmigan_bench::{Options, pages};
use ptarmigan_replay::MachineName;
use ptarmigan_replay::baseline::{self, BaselineArgs, BaselineRun, WithComparison};
use ptarmigan_term::print;
use ptarmigan_term::text::Text;
use ptarmigan_term::{Context, Failure};

/// Measure parts of the library against contenders.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
    #[command(flatten)]
    pub(crate) baseline: BaselineArgs,
}

#[derive(Subcommand, Clone, Debug)]
enum Bench {
    /// Page-table operations by policy, in nanoseconds per page.
    Table(OnArch),
    /// Faults of one space by one thread and by two, in nanoseconds per page.
    Faults(Options),
    /// Table pages, allocated and freed, in nanoseconds per pair.
    Quicklist(Options),
    /// Clearing frames through and past the caches, on demand and ahead, in nanoseconds per frame.
    Zero(Options),
}

/// Options of benchmarks that measure on the tables of any machine.
#[derive(Args, Clone, Copy, Debug)]
pub struct OnArch {
    /// Machine whose format the tables have. Others than x86-64 need a build with the feature
    /// `formats`.
    #[arg(long, value_enum, default_value = "x86-64", value_name = "MACHINE")]
    pub arch: MachineName,
    /// Options of every benchmark that measures.
    #[command(flatten)]
    pub options: Options,
}

impl OnArch {
    /// Returns the name of the machine, if that is not x86-64.
    #[must_use]
    pub fn other(&self) -> Option<String> {
        (self.arch != MachineName::X86_64).then(|| self.arch.name())
    }
}

impl BenchArgs {
    /// Runs the benchmark, prints its report on standard output, and compares or saves its figures
    /// if that is asked for.
    ///
    /// # Errors
    ///
    /// If something cannot be set up, a check fails, a baseline cannot be used, or the report
    /// cannot be written.
    pub fn run(&self) -> Result<(), Failure> {
        let arch = self.bench.other_arch();
        let name = match &arch {
            Some(arch) => format!("bench {} --arch {arch}", self.bench.name()),
            None => format!("bench {}", self.bench.name()),
        };
        let baseline = BaselineRun::begin(&self.baseline, &name)?;
        let (report, options) = match &self.bench {
            Bench::Table(OnArch { arch, options }) => (table::policies(options.rounds, *arch), options),
            Bench::Faults(options) => (faults::run(options.rounds).map_err(Failure::new), options),
            Bench::Quicklist(options) => {
                let report = pages::side_by_side(options.rounds, &pages::Workload::FULL, Vec::new());
                (report.map_err(Failure::new), options)
            }
            Bench::Zero(options) => {
                let report = zero::run(options.rounds, &zero::ZeroWorkload::FULL);
                (report.map_err(Failure::new), options)
            }
        };
        let report = BenchReport { arch, ..report? };
        conclude(baseline, &report, report.text(), options.json)
    }
}

impl Bench {
    /// Returns the machine whose tables are asked for, if that is not the usual one.
    fn other_arch(&self) -> Option<String> {
        match self {
            Bench::Table(on) => on.other(),
            _ => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Bench::Table(_) => "table",
            Bench::Faults(_) => "faults",
            Bench::Quicklist(_) => "quicklist",
            Bench::Zero(_) => "zero",
        }
    }
}

/// Prints a report, with a comparison if there is one, and saves its figures.
///
/// # Errors
///
/// If the comparison cannot be made, or the report or the figures cannot be written.
pub fn conclude(
    baseline: BaselineRun,
    report: &impl serde::Serialize,
    text: Text,
    json: bool,
) -> Result<(), Failure> {
    let figures = baseline::of_bench(&serde_json::to_value(report).context("report")?);
    let comparison = baseline.compare(&figures)?;
    if json {
        let document = Document::new(WithComparison { report, comparison: comparison.as_ref() });
        print::stdout(&document.line().context("report")?)?;
    } else {
        print::report(&text)?;
        if let Some(comparison) = &comparison {
            comparison.print()?;
        }
    }
    baseline.finish(figures)
}
