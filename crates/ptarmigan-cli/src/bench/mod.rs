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
//! * `hash`: the work of a hash table, and the effect of its size.
//! * `flush`: flushes of a machine with a hash table, priced by a cost model, beside this host's.
//! * `kmap`: windows of slots for high memory.
//! * `userpte`: leaf tables in high memory: their cost, and when they pay.
//! * `history`: the reports of 2004 and 2008 on quicklists, measured again.
//! * `historic`: Linux's policies of those years.
mod faults;
mod flush;
mod hash;
mod historic;
mod history;
mod kmap;
mod table;
mod userpte;
mod zero;

use clap::{Args, Subcommand};

use crate::calibrate;
use history::{holt, imbalance, migration};
use ptarmigan_bench::json::Document;
use ptarmigan_bench::report::BenchReport;
use ptarmigan_bench::{Options, pages};
use ptarmigan_replay::MachineName;
use ptarmigan_replay::baseline::{self, BaselineArgs, BaselineRun, WithComparison};
use ptarmigan_replay::model;
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

/// Options of benchmarks that measure on the tables of any machine.
#[derive(Args, Clone, Copy, Debug)]
struct OnArch {
    /// Machine whose format the tables have. Others than x86-64 need a build with the feature
    /// `formats`.
    #[arg(long, value_enum, default_value = "x86-64", value_name = "MACHINE")]
    arch: MachineName,
    #[command(flatten)]
    options: Options,
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
            Bench::Holt(OnArch { arch, options }) => (holt::run(options.rounds, *arch), options),
            Bench::Flush(options) => {
                let model = model::load(&options.model).map_err(|e| Failure::new(e.to_string()))?;
                let mut report = flush::run(&model).map_err(Failure::new)?;
                report.add_host(calibrate::brief());
                return conclude(baseline, &report, report.text(), options.count.json);
            }
            Bench::Hash(options) => {
                let model = model::load(&options.model).map_err(|e| Failure::new(e.to_string()))?;
                let report = hash::run(&model).map_err(Failure::new)?;
                return conclude(baseline, &report, report.text(), options.count.json);
            }
            Bench::Kmap(options) => {
                let report = kmap::run(options)?;
                return conclude(baseline, &report, report.text(), options.json);
            }
            Bench::Userpte(options) => {
                let report = userpte::run(options)?;
                return conclude(baseline, &report, report.text(), options.json);
            }
            Bench::Imbalance(options) => {
                let report = imbalance::run(options.historic_lists).map_err(Failure::new)?;
                return conclude(baseline, &report, report.text(), options.count.json);
            }
            Bench::Migration(options) => {
                let report = migration::run().map_err(Failure::new)?;
                return conclude(baseline, &report, report.text(), options.json);
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
            Bench::Table(OnArch { arch, .. }) | Bench::Holt(OnArch { arch, .. })
                if *arch != MachineName::X86_64 =>
            {
                Some(arch.name())
            }
            _ => None,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Bench::Table(_) => "table",
            Bench::Faults(_) => "faults",
            Bench::Quicklist(_) => "quicklist",
            Bench::Zero(_) => "zero",
            Bench::Flush(_) => "flush",
            Bench::Hash(_) => "hash",
            Bench::Kmap(_) => "kmap",
            Bench::Userpte(_) => "userpte",
            Bench::Holt(_) => "holt",
            Bench::Imbalance(_) => "imbalance",
            Bench::Migration(_) => "migration",
        }
    }
}

/// Prints a report, with a comparison if there is one, and saves its figures.
fn conclude(
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
