//! The options of `ptarmigan record`.
use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;

/// The recording method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MethodChoice {
    /// tracefs if it is available, else perf
    Auto,
    /// Kernel tracepoints: all events; needs root
    Tracefs,
    /// perf and ptrace: user-mode faults and system calls; needs no privileges
    Perf,
}

/// Run a command and record what it does to its address spaces.
#[derive(clap::Args, Debug)]
pub struct RecordArgs {
    /// File to write the trace to. Overwrites an existing file; refuses devices and directories.
    /// Without it, a new file NAME.ptrace in this directory, or NAME-2.ptrace and so on.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Name of the workload in the trace [default: name of the program with most page tables].
    #[arg(long)]
    pub(super) name: Option<String>,
    /// Recording method.
    #[arg(long, value_enum, default_value = "auto")]
    pub(super) method: MethodChoice,
    /// Compression level, 1 (fast) to 22 (small).
    #[arg(long, default_value_t = 19, value_parser = clap::value_parser!(i32).range(1..=22))]
    pub(super) level: i32,
    /// The command to record, with its arguments. Options behind it are the command's.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

impl RecordArgs {
    /// Returns the command without its arguments, for messages.
    pub(super) fn program(&self) -> Cow<'_, str> {
        self.command[0].to_string_lossy()
    }
}
