//! `ptarmigan-papers kmap`: windows of slots through which a kernel sees high memory.
//!
//! * `traces`: counts of sweeps on recorded programs, for Linux's pool and the library's, and by
//!   the size of the pool. `hashed_slots` are slots of which a hash table has some.
//! * `speed`: both pools, by one thread and by two.
//! * `window`: real slots. `case` is a stale set on them, `costs` measures the cost model of this
//!   host, `plans` compares the planner with each rule, and `sweep` shows times and prices.
mod case;
mod costs;
mod hashed_slots;
mod plans;
mod report;
mod speed;
mod sweep;
mod traces;
mod window;

pub(crate) use report::KmapBench;

use clap::{Args, ValueEnum};
use ptarmigan::tlb::CostModel;
use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::clock::Clock;
use ptarmigan_replay::model::{self, Model};
use ptarmigan_term::{Context, Failure};
use report::Part;
use sweep::Priced;
use window::RealWindow;

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PartName {
    /// Slots per sweep on the shipped recordings
    Traces,
    /// The same by the size of the pool
    Sizes,
    /// Pools by one thread and by two
    Pool,
    /// Sweeps by plan and the planner, on real slots
    Plans,
}

/// Options of `ptarmigan-papers kmap`.
#[derive(Args, Clone, Debug)]
pub(crate) struct KmapOptions {
    /// Parts to run.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,...",
          default_values_t = [PartName::Traces, PartName::Sizes, PartName::Pool, PartName::Plans])]
    part: Vec<PartName>,
    /// Cost model by which the library's pool flushes on recordings, and that prices sweeps beside
    /// this host's: linux-33, power3-2001, always-full, always-page, or a file as in
    /// `ptarmigan docs cost-models`.
    #[arg(long, value_name = "NAME|FILE", default_value = "power3-2001")]
    model: String,
    /// Rounds to run. Each round runs every contender once.
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Runs the parts that `options` name.
///
/// # Errors
///
/// If the cost model cannot be used, something cannot be set up, or a recording does not fit.
pub(crate) fn run(options: &KmapOptions) -> Result<KmapBench, Failure> {
    let model = model::load(&options.model).map_err(|e| Failure::new(e.to_string()))?;
    let mut parts = Vec::new();
    for part in &options.part {
        match part {
            PartName::Traces => parts.push(traces::shipped(model.rule)?),
            PartName::Sizes => parts.push(traces::sizes(model.rule)?),
            PartName::Pool => parts.push(speed::part(options.rounds).map_err(Failure::new)?),
            PartName::Plans => parts.extend(plans(&model, options.rounds)?),
        }
    }
    Ok(KmapBench::new(parts))
}

fn plans(model: &Model, rounds: u32) -> Result<[Part; 2], Failure> {
    let _place = AffinityGuard::here().context("cannot stay on one CPU")?;
    let window = RealWindow::new().context("a window of real slots")?;
    let (clock, random) = (Clock::calibrate(), plans::shuffled());
    let costs = costs::measure(&window, clock, &random);
    let cases = plans::time(&window, clock, &random, costs, rounds);
    if window.refused() {
        return Err(Failure::new("the host has refused to forget slots: times would mean nothing"));
    }
    let priced: Vec<Priced<'_>> = match model.rule {
        CostModel::Costs(costs) => vec![Priced { name: &model.name, costs }],
        _ => Vec::new(),
    };
    let plans::Verdict { rows, notes } = plans::judge(&cases);
    let title = format!("The planner against each rule: real slots, {rounds} rounds");
    Ok([sweep::part(&cases, &costs, &priced), Part { title, rows, notes }])
}
