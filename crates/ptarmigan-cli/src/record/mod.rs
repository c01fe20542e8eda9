//! `ptarmigan record`: runs a command and writes down what it does to its address spaces.
//!
//! Two methods. `tracefs` (root) takes page faults, clones, execs, exits, system calls and TLB flushes from the
//! kernel's tracepoints. `perf` (anybody) takes the faults of user mode from a perf event and the rest from ptrace.
//! Both use ptrace for what no event tells: the areas that execve makes, and `VmPTE`, the kernel's own count of
//! page-table pages.
use crate::error::Failure;
use std::process::ExitCode;

mod args;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;

pub use args::{MethodChoice, RecordArgs};

/// Records. The exit status is that of the recorded command, or 128 and the number of the signal that ended it.
///
/// # Errors
/// If the command cannot be started, nothing can be recorded, or the trace cannot be written; there is no output
/// file then.
pub fn run(args: &RecordArgs) -> Result<ExitCode, Failure> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return linux::session::run(args);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        let _ = args;
        Err(Failure::new("recording works on Linux on x86-64 only"))
    }
}
