//! Bits of entries, and the direct map: what hardware offers below any library.

use core::ptr;

/// Where the low 4 GiB of physical memory are mapped, the image among them: slot 256 of every root
/// table.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// Entry bit: present.
pub const PRESENT: u64 = 1;
/// Entry bit: writable.
pub const WRITABLE: u64 = 1 << 1;
/// Entry bit, set by the MMU: used.
pub const ACCESSED: u64 = 1 << 5;
/// Entry bit, set by the MMU: written through.
pub const DIRTY: u64 = 1 << 6;
/// Entry bit: not executable.
pub const NO_EXECUTE: u64 = 1 << 63;

/// Where a physical address below 4 GiB is reached for good, whatever the current space maps.
pub fn direct<T>(physical: u64) -> *mut T {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}
