//! The direct map: physical memory, as every space shows it.

use core::ptr;

/// Where physical memory from 0 to 4 GiB is mapped in every space: entries 256 to 259 of every
/// root.
#[cfg(target_arch = "riscv64")]
pub const DIRECT_MAP: u64 = 0xffff_ffc0_0000_0000;
/// Where physical memory from 0 to 4 GiB is mapped below `TTBR1`.
#[cfg(target_arch = "aarch64")]
pub const DIRECT_MAP: u64 = 0xffff_0000_0000_0000;
/// The window in which the kernel sees all physical memory, cached.
#[cfg(target_arch = "loongarch64")]
pub const DIRECT_MAP: u64 = 0x9000_0000_0000_0000;
/// Where the kernel's half of every space shows physical memory from 0 on, by block translation.
#[cfg(target_arch = "powerpc")]
pub const DIRECT_MAP: u64 = 0xc000_0000;
/// First physical address that is not mapped there.
pub const DIRECT_MAP_LIMIT: u64 = if cfg!(target_arch = "powerpc") { 256 << 20 } else { 4 << 30 };

/// Where a physical address below the limit is reached for good, whatever the current space maps.
pub fn direct<T>(physical: u64) -> *mut T {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

/// The physical address of something in the image.
pub fn physical<T>(of: *const T) -> u64 {
    (of.addr() as u64).wrapping_sub(DIRECT_MAP)
}
