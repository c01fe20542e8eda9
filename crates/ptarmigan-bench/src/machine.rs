//! The hosted machine of benchmarks.
use ptarmigan::format::X86_64;
use ptarmigan_hosted::{Host, HostConfig, HostError};

/// Creates a machine of one CPU with 256 MiB of memory.
///
/// # Errors
///
/// [`HostError`] for lack of memory.
pub fn host() -> Result<Host<X86_64>, HostError> {
    Host::new(HostConfig { bytes: 256 << 20, prefault: 32 << 20, ..HostConfig::default() })
}
