//! Linux's policies on the machine of benchmarks.
use ptarmigan::format::X86_64;
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostError};
use ptarmigan_linux::{Historic, Rules};

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
