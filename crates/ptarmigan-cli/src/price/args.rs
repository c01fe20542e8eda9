//! The options of `ptarmigan price`.
use ptarmigan_replay::parse_memory;
use std::path::PathBuf;

/// Price proposals on recorded programs: knobs of the machine and changes of Linux that others
/// have proposed, counted on the recording, the one that saves most of the kernel's time first.
///
/// Exits with 0 whether or not a proposal helps, and with 1 if a trace cannot be read or replayed,
/// or a proposal is not known.
#[derive(clap::Args, Clone, Debug)]
pub struct PriceArgs {
    /// Traces to look at: files, names of shipped recordings, or - for standard input.
    #[arg(required_unless_present = "list")]
    pub(super) traces: Vec<PathBuf>,
    /// Proposals to price [default: all].
    #[arg(long, value_delimiter = ',', value_name = "ROW,...")]
    pub(super) only: Vec<String>,
    /// List the proposals, with who made them and the gain that they measured.
    #[arg(long, conflicts_with_all = ["traces", "json", "csv", "markdown"])]
    pub(super) list: bool,
    /// Prices of pages: a cost model of `ptarmigan calibrate -o FILE`. Without it they are measured
    /// anew in each run.
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) model: Option<String>,
    /// Memory of the machine that replays run on.
    #[arg(long, default_value = "4G", value_parser = parse_memory, value_name = "SIZE")]
    pub(super) memory: u64,
    /// Seconds that a proposal may take on one recording.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: u64,
    /// Print JSON.
    #[arg(long, conflicts_with_all = ["csv", "markdown"])]
    pub(super) json: bool,
    /// Print a line for each figure.
    #[arg(long, conflicts_with = "markdown")]
    pub(super) csv: bool,
    /// Print a table in Markdown for each trace.
    #[arg(long)]
    pub(super) markdown: bool,
}
