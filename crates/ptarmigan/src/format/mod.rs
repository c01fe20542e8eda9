//! What each architecture's entries look like. Formats are data and pure functions: all compile on every host.
mod attr;
mod slot;
mod x86;

pub use attr::Attr;
pub use slot::{Slot, Slot64};
pub use x86::{X86_64, X86Pae};

use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level};

/// A format of tables and entries: a tree of tables whose entries are 32 or 64 bits wide, handled as 64 bits.
///
/// An entry is *none* (all zero), a link to a table of the level below, or a leaf: a frame with attributes. A leaf
/// without [`Attr::READ`] is not present for the MMU but keeps its frame (`PROT_NONE`).
pub trait Format: Copy + Default + Send + Sync + 'static {
    /// How an entry is stored.
    type Slot: Slot;
    /// For messages.
    const NAME: &'static str;
    /// Levels and the size of their tables.
    const LAYOUT: Layout;
    /// Names of the levels, lowest first, as statistics print them.
    const LEVEL_NAMES: &'static [&'static str];
    /// Binary logarithm of the page size.
    const PAGE_SHIFT: u32;
    /// First address that is not the user's. User addresses start at 0.
    const USER_END: u64;
    /// Entries of the top table that are the user's; those after them are the kernel's.
    const USER_TOP: usize;
    /// The MMU keeps the top's entries in registers and reads them only when the root is loaded: they are filled
    /// when the space is made, and stay (semantics.md §5, PAE).
    const TOP_IN_REGISTERS: bool;

    /// Binary logarithm of the bytes that one entry of `level` maps.
    fn shift(level: Level) -> u32;

    /// Number of entries of a table of `level`.
    fn entries(level: Level) -> usize;

    /// The entry of a table of `level` that maps `va`.
    #[inline(always)]
    fn index(level: Level, va: u64) -> usize {
        (va >> Self::shift(level)) as usize & (Self::entries(level) - 1)
    }

    /// An entry of a table of `level` that links the table at `at`.
    fn link(level: Level, at: PhysAddr) -> u64;

    /// The table that an entry links; `None` if it is no link. `level` (not 0) is that of the table it is in.
    fn linked(level: Level, raw: u64) -> Option<PhysAddr>;

    /// A leaf in a table of level 0.
    fn leaf(pfn: Pfn, attr: Attr) -> u64;

    /// The frame of a leaf.
    fn frame(raw: u64) -> Pfn;

    /// The attributes of a leaf.
    fn attr(raw: u64) -> Attr;

    /// Whether the MMU would use the leaf.
    fn is_present(raw: u64) -> bool;

    /// The leaf without write permission.
    fn write_protected(raw: u64) -> u64;

    /// Whether the MMU would let a write through.
    fn is_writable(raw: u64) -> bool;

    /// Whether the frame of the leaf is not counted by references ([`Attr::SPECIAL`]).
    fn is_special(raw: u64) -> bool;
}
