//! The tables that the machine boots on.
//!
//! Layout of every address space: slots 0 to 255 of the root table are the user's; slot 256 is the
//! direct map of the low 4 GiB, and the image is linked into it.

use ptarmigan_kernel_x86::table::TablePage;

/// Where the low 4 GiB of physical memory are mapped: slot 256 of every root.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// The first physical address that is not mapped there.
pub const DIRECT_MAP_END: u64 = 4 << 30;

/// Returns the first physical address that is not reached there.
#[inline]
pub fn limit() -> u64 {
    DIRECT_MAP_END
}

// The assembly fills them in.
#[unsafe(no_mangle)]
static boot_top: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_upper: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directories: [TablePage<512>; 4] = [const { TablePage::new() }; 4];

/// Returns the root that the machine booted on: every other one copies its kernel entries from it.
pub fn kernel_root() -> &'static TablePage<512> {
    &boot_top
}
