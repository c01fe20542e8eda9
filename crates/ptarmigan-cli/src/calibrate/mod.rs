//! `ptarmigan calibrate`: measures what flushes cost on this host, and writes a cost model.
//!
//! Calls that change page-table entries are timed by their size, on both sides of the number of
//! pages above which the kernel flushes everything. Where the two lines meet, everything begins to
//! be cheaper. docs/cost-models.md describes the method.
use ptarmigan_term::Failure;
use std::process::ExitCode;

mod args;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;
mod time;

pub use args::CalibrateArgs;
pub use time::HostTime;

/// Measures this host for about a second.
///
/// # Errors
/// If it cannot be measured.
pub fn brief() -> Result<Vec<HostTime>, Failure> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return linux::brief::measure();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Err(Failure::new("calibrating works on Linux on x86-64 only"))
}

/// Measures this host, prints a report, and writes a cost model if a file is named.
///
/// # Errors
/// If something cannot be measured or written, or the host is too noisy for an estimate. No model
/// is written then.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return linux::session::run(args);
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    {
        let _ = args;
        Err(Failure::new("calibrating works on Linux on x86-64 only"))
    }
}
