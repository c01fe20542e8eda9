//! Runs a command and records what it does to its address spaces: `ptarmigan record`.
//!
//! There are two methods. `tracefs` (root) reads page faults, clones, execs, exits, system calls
//! and TLB flushes from the kernel's tracepoints. `perf` (no privileges) reads user-mode faults
//! from a perf event and everything else by ptrace. Both use ptrace for state that no event
//! reports: the areas that execve makes, and `VmPTE`, the kernel's own count of page-table pages.
use ptarmigan_term::Failure;
use std::process::ExitCode;

mod args;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;
mod pid;

pub use args::{MethodChoice, RecordArgs};

/// Records a command. The exit status is that of the command, or 128 plus the number of the signal
/// that ended it.
///
/// # Errors
/// If the command cannot be started, no event can be recorded, or the trace cannot be written. No
/// output file is left then.
pub fn run(args: &RecordArgs) -> Result<ExitCode, Failure> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return linux::session::run(args);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        let _ = args;
        Err(Failure::new("recording works on Linux on x86-64 only"))
    }
}
