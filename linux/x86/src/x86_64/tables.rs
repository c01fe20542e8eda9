//! The tables that the machine boots on.

pub use ptarmigan_kernel_x86::boot_tables::{DIRECT_MAP, DIRECT_MAP_END, kernel_root};

/// Returns the first physical address that the direct map does not reach.
#[inline]
pub fn limit() -> u64 {
    DIRECT_MAP_END
}
