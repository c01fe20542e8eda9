//! Runs contenders against each other and reports their times.
//!
//! The command `ptarmigan` and the comparison with other crates, `benches-vs-peers`, share it. Both
//! bring contenders of their own, and the cases that both run are here.
//!
//! A shared machine changes its speed within a minute. So contenders alternate round by round, the
//! median over the rounds counts, and ratios to a reference of the same run say more than
//! nanoseconds.
//!
//! # Modules
//!
//! * [`table`]: the cases of page-table operations, their contenders, and a baseline.
//! * [`pages`]: the same for allocating and freeing table pages.
//! * [`turns`]: contenders that are closures.
//! * [`machine`]: the hosted machine that contenders of the library run on.
//! * [`rounds`]: the line that shows the current measurement.
//! * [`affinity`], [`clock`] and [`stats`]: a thread on one CPU, its time, medians.
//! * [`report`]: samples, and the rows made of them; [`json`] makes documents of them.
pub mod affinity;
pub mod clock;
pub mod json;
pub mod machine;
pub mod pages;
pub mod report;
pub mod rounds;
pub mod stats;
pub mod table;
pub mod turns;

/// Options of benchmarks that measure.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Options {
    /// Rounds to run. Each round runs every contender once.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub json: bool,
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
