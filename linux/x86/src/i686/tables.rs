//! The tables that the machine boots on.
//!
//! Layout of every address space: the low 3 GiB are the user's. At 3 GiB begins the direct map of
//! the low 768 MiB, with the image; above it are windows on high memory and the registers of the
//! interrupt controller. Tables and files lie in low memory, data frames in high memory first.

use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan_kernel_x86::table::TablePage;

/// Where the low 768 MiB of physical memory are mapped, in every space.
pub const DIRECT_MAP: u64 = 0xc000_0000;
/// The first physical address that cannot be mapped there.
pub const DIRECT_MAP_END: u64 = 768 << 20;
/// The first physical address that is not reached there.
static LIMIT: AtomicU32 = AtomicU32::new(DIRECT_MAP_END as u32);

/// Returns the first physical address that is high memory.
#[inline]
pub fn limit() -> u64 {
    LIMIT.load(Ordering::Relaxed).into()
}

/// Makes high memory of the frames above `limit`. Boot does it, before any access.
pub fn set_limit(limit: u64) {
    LIMIT.store(limit.min(DIRECT_MAP_END) as u32, Ordering::Relaxed);
}

// The assembly fills them in.
#[unsafe(no_mangle)]
static boot_root: TablePage<4> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directory: TablePage<512> = TablePage::new();

/// Returns the root that the machine booted on: every other one copies its kernel entry from it.
pub fn kernel_root() -> &'static TablePage<4> {
    &boot_root
}
