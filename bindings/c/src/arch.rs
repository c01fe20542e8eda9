//! The one configuration of each target.
use ptarmigan::format::Format;
use ptarmigan::page::Level;

/// The format of entries.
#[cfg(target_arch = "x86_64")]
pub(crate) type Entries = ptarmigan::format::X86_64;
/// The format of entries.
#[cfg(target_arch = "x86")]
pub(crate) type Entries = ptarmigan::format::X86Pae;
/// What entries look like.
#[cfg(target_arch = "aarch64")]
pub(crate) type Entries = ptarmigan::format::Aarch64;
/// What entries look like.
#[cfg(target_arch = "riscv64")]
pub(crate) type Entries = ptarmigan::format::Sv48;

/// The number of levels of a tree. Level 0 are the tables that hold pages; the root is the highest.
#[cfg(not(target_arch = "x86"))]
pub const PT_LEVELS: u32 = 4;
/// The number of levels of a tree. Level 0 are the tables that hold pages; the root is the highest.
#[cfg(target_arch = "x86")]
pub const PT_LEVELS: u32 = 3;

/// The first address that is not the user's.
#[cfg(any(target_arch = "x86_64", target_arch = "riscv64"))]
pub const PT_USER_END: u64 = 0x8000_0000_0000;
/// The first address that is not the user's.
#[cfg(target_arch = "x86")]
pub const PT_USER_END: u64 = 0xc000_0000;
/// The first address that is not the user's.
#[cfg(target_arch = "aarch64")]
pub const PT_USER_END: u64 = 0x1_0000_0000_0000;

const _: () = assert!(PT_LEVELS == Entries::LAYOUT.levels as u32 && PT_USER_END == Entries::USER_END);

/// The value of `IA32_PAT` (0x277) with which memory types are what they are called. The kernel
/// loads it on each CPU.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
pub const PT_MEMORY_TYPES: u64 = 0x0407_0506_0007_0106;
/// The value of `MAIR_EL1` with which memory types are what they are called. The kernel loads it on
/// each CPU.
#[cfg(target_arch = "aarch64")]
pub const PT_MEMORY_TYPES: u64 = 0xbb44_04ff;

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
const _: () = assert!(PT_MEMORY_TYPES == ptarmigan::format::X86_64::PAT);
#[cfg(target_arch = "aarch64")]
const _: () = assert!(PT_MEMORY_TYPES == Entries::MAIR);

/// The bytes of a page.
pub const PT_PAGE_SIZE: u64 = 4096;

/// An entry of a table of each level maps `1 << PT_LEVEL_BITS` times as much as one of the level
/// below.
pub const PT_LEVEL_BITS: u32 = 9;

/// Returns the bytes that an entry of a table of `level` maps.
pub(crate) const fn level_bytes(level: Level) -> u64 {
    PT_PAGE_SIZE << (level.0 as u32 * PT_LEVEL_BITS)
}

/// With `largest` of `pt_tree_map_range_large`: groups, too. Entries of 16 pages that follow each
/// other, or of 16 large pages, have a hint there with which the MMU may keep them as one. AArch64
/// alone.
pub const PT_GROUPS: u32 = 0x100;

/// Whether the entries of any table can be groups.
pub(crate) const HAS_GROUPS: bool = {
    let (mut level, mut any) = (0, false);
    while level < PT_LEVELS as usize {
        any |= Entries::GROUP_BITS[level] != 0;
        level += 1;
    }
    any
};

/// Returns the bytes that a group of entries of a table of `level` maps, if there are groups.
pub(crate) fn group_bytes(level: Level) -> Option<u64> {
    let bits = *Entries::GROUP_BITS.get(usize::from(level.0))?;
    (bits != 0).then(|| level_bytes(level) << bits)
}

/// Whether tables of `level` have entries for large pages, or pages.
pub(crate) const fn has_pages(level: Level) -> bool {
    Entries::LEAF_LEVELS >> level.0 & 1 != 0
}

const _: () = assert!(
    Entries::PAGE_SHIFT == PT_PAGE_SIZE.ilog2() && {
        let mut level = 0;
        // The root of i386 has fewer entries.
        while level + 1 < PT_LEVELS as usize {
            assert!(Entries::INDEX_BITS[level] as u32 == PT_LEVEL_BITS);
            level += 1;
        }
        true
    }
);

/// The first and the last entry of a root that are the kernel's; none on AArch64, where the kernel
/// has a root of its own.
pub(crate) const KERNEL_ENTRIES: core::ops::Range<usize> =
    Entries::USER_ROOT_ENTRIES..1 << Entries::INDEX_BITS[PT_LEVELS as usize - 1];

/// The alignment of a root, in bytes.
pub(crate) const ROOT_ALIGN: u64 = 1 << Entries::LAYOUT.table_shift[PT_LEVELS as usize - 1];

/// Roots are frames of their own, so that each has a record.
pub(crate) const ROOT_IS_FRAME: bool = ROOT_ALIGN == PT_PAGE_SIZE;
