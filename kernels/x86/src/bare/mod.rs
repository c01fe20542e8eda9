//! A PC of one CPU without interrupts, booted through PVH into long mode: boot code, the loader's
//! map of memory, exceptions.
//!
//! [`boot_tables`](crate::boot_tables) says where memory is mapped; `link.ld` links the image.

pub mod boot;
pub mod trap;

pub use crate::boot_tables::{DIRECT_MAP, DIRECT_MAP_END as DIRECT_MAP_LIMIT, kernel_root, shared_tables};

/// Returns where a physical address below 4 GiB is reached for good, whatever the current space
/// maps.
pub fn direct<T>(physical: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}
