//! The options of `ptarmigan advise`.
use crate::error::Failure;
use crate::replay::parse_memory;
use std::path::PathBuf;

/// Say what would help a recorded program, and a kernel that runs it: each piece of advice with its
/// figure from a replay with and without it.
///
/// Exits with 0 whether or not there is advice, and with 1 if a trace cannot be read or replayed.
#[derive(clap::Args, Clone, Debug)]
pub struct AdviseArgs {
    /// Traces to look at; - for standard input.
    #[arg(required = true)]
    pub(super) traces: Vec<PathBuf>,
    /// Whom advice is for.
    #[arg(long = "for", value_enum, value_name = "WHOM", default_value = "both")]
    pub(super) whom: Whom,
    /// Memory of the machine that replays run on.
    #[arg(long, default_value = "4G", value_parser = parse_memory, value_name = "SIZE")]
    pub(super) memory: u64,
    /// What TLB flushes cost on the kernel's machine: a cost model with costs, such as `ptarmigan
    /// calibrate -o FILE` writes. Without it there is no advice on flushes.
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) model: Option<String>,
    /// Replays of each side. Times differ if all of the one side are below all of the other.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=100))]
    pub(super) rounds: u8,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl AdviseArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// If standard input is named twice.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.traces.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::new("- twice: standard input has one trace"));
        }
        Ok(())
    }
}

/// Whom advice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Whom {
    /// The author of the program
    Program,
    /// A kernel that runs it
    Kernel,
    /// Both
    Both,
}
