//! `ptarmigan record`: runs a command and writes down what it does to its address spaces.
//!
//! Two methods. `tracefs` (root) takes page faults, clones, execs, exits, system calls and TLB flushes from the
//! kernel's tracepoints. `perf` (anybody) takes the faults of user mode from a perf event and the rest from ptrace.
//! Both use ptrace for what no event tells: the areas that execve makes, and `VmPTE`, the kernel's own count of
//! page-table pages.
use crate::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "."]
mod linux {
    mod format;
    mod merge;
    mod model;
    mod perf;
    mod proc;
    mod queue;
    mod raw;
    mod ring;
    pub(super) mod session;
    mod signals;
    mod spill;
    mod sys;
    mod tracefs;
    mod tracer;

    /// The CPU of a delivery that does not know it: the one on which its task was seen last.
    const NO_CPU: u16 = u16::MAX;
}

/// Where the events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MethodChoice {
    /// tracefs if that is possible, else perf.
    Auto,
    /// Kernel tracepoints: everything; needs root.
    Tracefs,
    /// perf and ptrace: user-mode faults and system calls; needs no privileges.
    Perf,
}

/// Run a command and record what it does to its address spaces.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where to write the trace.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Name of the workload in the trace [default: name of the command].
    #[arg(long)]
    name: Option<String>,
    /// Where the events come from.
    #[arg(long, value_enum, default_value = "auto")]
    method: MethodChoice,
    /// Compression, 1 (fast) to 22 (small).
    #[arg(long, default_value_t = 19, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    /// The command and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Records. The exit status is that of the recorded command, or 128 and the number of the signal that ended it.
///
/// # Errors
/// If the command cannot be started, nothing can be recorded, or the trace cannot be written; there is no output
/// file then.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return linux::session::run(args);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        let _ = args;
        Err(Failure::new("recording works on Linux on x86-64 only"))
    }
}
