//! The hosted machine of benchmarks.
use ptarmigan::format::X86_64;
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostConfig, HostError};
use ptarmigan_linux::{Historic, Rules};

/// Creates a machine of one CPU with 256 MiB of memory.
///
/// # Errors
///
/// [`HostError`] for lack of memory.
pub fn host() -> Result<Host<X86_64>, HostError> {
    Host::new(HostConfig { bytes: 256 << 20, prefault: 32 << 20, ..HostConfig::default() })
}

/// Makes a policy of Linux.
///
/// # Errors
///
/// [`HostError`] for lack of memory, or if the version has no such lists.
pub fn historic(
    host: &Host<X86_64>,
    rules: Rules,
    lists: usize,
) -> Result<Historic<'_, DirectMap, &KernelMap<X86_64, DirectMap>>, HostError> {
    // SAFETY: 1. the machines of benchmarks have no MMU, and only operations of spaces walk tables.
    unsafe { host.historic(rules, lists) }
}
