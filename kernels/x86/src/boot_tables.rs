//! The tables that 64-bit images boot on.
//!
//! Layout of every address space: slots 0 to 255 of the root table are the user's; slot 256 is the
//! direct map of the low 4 GiB, and the image is linked into it.

use crate::table::TablePage;

/// Where the low 4 GiB of physical memory are mapped: slot 256 of every root.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// The first physical address that is not mapped there.
pub const DIRECT_MAP_END: u64 = 4 << 30;

// The assembly fills them in. They belong to the MMU; only the root is ever read again, entry by
// entry.
#[unsafe(no_mangle)]
static boot_top: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_upper: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directories: [TablePage<512>; 4] = [const { TablePage::new() }; 4];

/// Returns the root that the machine booted on: every other one copies its kernel entries, 256 to
/// 511, from it. The lower half is empty.
pub fn kernel_root() -> &'static TablePage<512> {
    &boot_top
}

/// Returns the tables that all kernel halves share, by physical address, each with its level.
pub fn shared_tables() -> impl Iterator<Item = (u64, u8)> {
    let directories = boot_directories.iter().map(|directory| (directory.physical(DIRECT_MAP), 1));
    core::iter::once((boot_upper.physical(DIRECT_MAP), 2)).chain(directories)
}
