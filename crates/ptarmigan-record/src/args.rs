//! The options of `ptarmigan record`.
use super::pid;
use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Write the names of mapped files into the trace, without their directories.
    #[arg(long)]
    pub(super) names: bool,
    /// Sample the functions that cause faults and calls, and write their names and lines into the
    /// trace.
    #[arg(long)]
    pub(super) symbols: bool,
    /// Compression level, 1 (fast) to 22 (small).
    #[arg(long, default_value_t = 19, value_parser = clap::value_parser!(i32).range(1..=22))]
    pub(super) level: i32,
    /// Attach to running processes and their descendants instead of starting a command. They go on
    /// when the recording ends, at Ctrl-C at the latest. With perf they stop at each system call,
    /// and run at a fraction of their speed; with tracefs, as root, they never stop.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        allow_negative_numbers = true,
        value_parser = pid::parse
    )]
    pub(super) pid: Vec<i32>,
    /// End the recording after so many seconds, from when the processes of `-p` have been read. The
    /// command or the processes go on.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub(super) duration: Option<Duration>,
    /// The command to record, with its arguments. Options behind it are the command's.
    #[arg(
        required_unless_present = "pid",
        conflicts_with = "pid",
        trailing_var_arg = true,
        value_name = "COMMAND"
    )]
    pub(super) command: Vec<OsString>,
}

/// The longest recording that can be asked for, in seconds: a year.
const LONGEST: f64 = 31_536_000.0;

/// Parses a length of time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= LONGEST => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err(format!("not between 0 and {LONGEST} (a year)")),
        Err(_) => Err("not a number of seconds".to_owned()),
    }
}

impl RecordArgs {
    /// Returns the command without its arguments, for messages.
    pub(super) fn program(&self) -> Cow<'_, str> {
        self.command[0].to_string_lossy()
    }
}
