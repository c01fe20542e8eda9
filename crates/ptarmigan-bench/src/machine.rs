//! The hosted machine of benchmarks.
use ptarmigan::format::Format;
use ptarmigan_hosted::{Host, HostConfig, HostError};

/// Creates a machine of one CPU with 256 MiB of memory.
///
/// # Errors
///
/// [`HostError`] for lack of memory.
pub fn host<F: Format>() -> Result<Host<F>, HostError> {
    Host::new(HostConfig { bytes: 256 << 20, prefault: 32 << 20, ..HostConfig::default() })
}
