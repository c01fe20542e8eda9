//! The options of `ptarmigan calibrate`.
use std::path::PathBuf;

/// Measure what TLB flushes cost on this host: mprotect and mremap on real mappings, on one CPU and
/// two, and the cost of refilling the TLB afterwards, for several working sets.
#[derive(clap::Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// Write a cost model for `--model` of replay and bench.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Fresh processes to measure in, for each number of CPUs.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(9..=1000))]
    pub(super) rounds: u32,
    /// Measure in this process, as an order says, and print samples.
    #[arg(long, hide = true, value_name = "ORDER")]
    pub(super) process: Option<String>,
}
