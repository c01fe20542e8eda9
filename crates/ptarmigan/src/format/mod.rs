//! Describes the entries of each architecture. Formats are data and pure functions: all compile on
//! every host.
//!
//! A format makes no decision: which entries are written, when and in which order is `table`'s
//! business. It knows [`page::Level`](crate::page::Level) and
//! [`page::Layout`](crate::page::Layout), and no other part of the library.
mod aarch64;
mod around;
mod attr;
mod check;
mod encrypted;
mod formats;
mod guest;
mod i386;
mod ia64;
mod keyed;
mod loongarch;
mod memory;
mod ppc;
mod refilled;
mod rights;
mod riscv;
mod slot;
mod sparc;
mod x86;

pub use aarch64::{
    Aarch64, Aarch64K16, Aarch64K16Upper, Aarch64K64, Aarch64K64Upper, Aarch64Stage1, Aarch64Upper,
};
pub use attr::{Access, Attr};
pub use check::check;
pub(crate) use check::check_tables;
pub use encrypted::{Encrypted, Sev, Tdx};
pub use formats::Formats;
pub use guest::{
    Aarch64Stage2, Ept, Npt, Sv39x4, Sv39x4Napot, Sv39x4Pbmt, Sv48x4, Sv48x4Napot, Sv48x4Pbmt, SvX4,
};
pub use i386::I386;
pub use ia64::Ia64;
pub use keyed::Keyed;
pub use loongarch::LoongArch64;
pub use memory::MemoryType;
pub use ppc::Ppc32;
pub use rights::{Cause, Inexpressible, KernelFetch, Rights};
pub use riscv::{Sv, Sv32, Sv39, Sv39Napot, Sv39Pbmt, Sv48, Sv48Napot, Sv48Pbmt, Sv57, Sv57Napot, Sv57Pbmt};
pub use slot::{Slot, Slot32, Slot32Be, Slot32Le, Slot64, Slot64Be};
pub use sparc::Sparc64;
pub use x86::{X86_64, X86_64La57, X86Pae};

use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Empty, but for bits that [`Format::KEPT`] names.
    None,
    /// A link to a table of the level below.
    Link(PhysAddr),
    /// A frame with attributes: one page in a table of level 0, a large page above.
    Leaf,
}

/// A format of tables and entries: a tree of tables whose entries are 32 or 64 bits wide, handled
/// as 64 bits.
///
/// An entry is an [`Entry`]: empty, a link, or a leaf. A leaf without permissions is not present
/// for the MMU but keeps its frame (`PROT_NONE`).
///
/// A tree refuses to compile with a format whose shape it does not support: see [`check`]. The
/// promises below are tested by `ptarmigan_ptsan::conform`, for every format that `ptsan` can
/// decode; write that test first.
///
/// Every function of an entry takes the level of its table, as its meaning depends on the level: a
/// large page has its frame, its memory type and the bit that tells it from a link in other places.
///
/// # Safety
///
/// The library follows the results of these functions without a check, and calls them while entries
/// are half changed: none of them may unwind. An implementation promises, for each level, and for
/// each frame below 2^[`PHYS_BITS`](Self::PHYS_BITS) bytes:
///
/// 1. [`linked`](Self::linked) gives back the address that [`link`](Self::link) was given, and
///    `None` for every entry that `link` did not make.
/// 2. [`frame`](Self::frame) gives back the frame that [`leaf`](Self::leaf) was given, also after
///    [`write_protected`](Self::write_protected); [`is_special`](Self::is_special) says whether it
///    was made with [`Attr::SPECIAL`].
/// 3. Neither `link` nor `leaf` makes an entry that [`is_none`](FormatExt::is_none).
/// 4. [`allows`](Self::allows) and [`is_present`](Self::is_present) must answer as the MMU would.
/// 5. For one `attr` and level, `leaf` grows by the same amount from the frames of one page to the
///    frames of the next, wrapping. Mapping a run of pages adds that amount; debug builds compare.
/// 6. [`needs_break`](Self::needs_break) says yes wherever the architecture demands a break, and
///    never for an entry that loses permissions alone, or all of them. It never says yes if
///    [`EVER_BREAKS`](Self::EVER_BREAKS) is false.
/// 7. [`attr`](Self::attr) gives back the attributes that `leaf` was given, if
///    [`RIGHTS`](Self::RIGHTS) can say them, and the MMU allows what they say and no more, but for
///    execution where [it does not refuse it](Rights::refuses_execution), and caches the memory as
///    their [type](MemoryType) says. With other attributes,
///    the entry is a leaf nevertheless, and lets through no access that they do not name.
/// 8. [`unhinted`](Self::unhinted) gives back the leaf that [`hinted`](Self::hinted) was given, if
///    the index is its place in the table, and every other entry as it is;
///    [`is_hinted`](Self::is_hinted) tells the two kinds apart. But for [`frame`](Self::frame), all
///    functions answer for a leaf with the hint as for the one without, and `write_protected`
///    keeps the hint. `needs_break` may tell the two apart.
/// 9. A format of the same [`NAME`](Self::NAME), the same shape and the same
///    [`PHYS_BITS`](Self::PHYS_BITS) means the same to an MMU. [`Formats`] compares these.
pub unsafe trait Format: FormatExt + Copy + Default + Send + Sync + 'static {
    /// How an entry is stored.
    type Slot: Slot;
    /// The name, for messages and [comparisons](Formats).
    const NAME: &'static str;
    /// Levels and the size of their tables.
    const LAYOUT: Layout;
    /// Names of the levels, lowest first, as statistics print them.
    const LEVEL_NAMES: &'static [&'static str];
    /// Binary logarithm of the page size in bytes; a page is at least a frame. A page is a block of
    /// frames, aligned to its size.
    const PAGE_SHIFT: u32;
    /// Binary logarithm of the number of entries of a table, by level.
    const INDEX_BITS: [u8; MAX_LEVELS];
    /// First address that is not the user's. User addresses start at 0.
    const USER_END: u64;
    /// First address of the kernel's half, which the first entry of the root maps that is not the
    /// user's. The half goes on to where the last entry ends, which may be the end of the address
    /// space.
    const KERNEL_START: u64;
    /// Entries of the root that are the user's; those after them are the kernel's. All of them
    /// where the kernel has a tree of its own, and 0 in the format of that tree, whose
    /// [`USER_END`](Self::USER_END) is 0.
    const USER_ROOT_ENTRIES: usize;
    /// The MMU keeps the root's entries in registers and reads them only when the root is loaded
    /// (x86 PAE). They are filled when the space is made, and stay.
    const ROOT_IN_REGISTERS: bool = false;
    /// The tree is a second stage, of a guest's physical addresses. Its MMU tells no users apart:
    /// every leaf is the user's, and [`attr`](Self::attr) says [`Attr::USER`] for it.
    const GUEST: bool = false;
    /// Bits of a physical address that entries have room for. Memory whose last frame lies higher
    /// is refused, as two of its frames would have the same entry.
    const PHYS_BITS: u32;
    /// The levels whose tables may have leaves, a bit for each: bit 0 always, others where the
    /// architecture has large pages. [Trees](crate::table::TreeMut::map_large) map pages of all
    /// these sizes, spaces only pages of level 0.
    const LEAF_LEVELS: u8 = 1;
    /// Binary logarithm of the entries of a group in tables of each level; 0 where there are no
    /// groups.
    ///
    /// A *group* is 2^k neighbouring leaves of one table, aligned to their number, that map
    /// neighbouring frames, aligned to the size of all, with the same attributes but for bits that
    /// MMUs set. A *hint* in each of them lets a TLB keep one entry for all: the Contiguous bit of
    /// AArch64, Svnapot of RISC-V.
    const GROUP_BITS: [u8; MAX_LEVELS] = [0; MAX_LEVELS];
    /// Whether [`needs_break`](Self::needs_break) ever says yes. If not, the code that breaks
    /// entries is not compiled.
    const EVER_BREAKS: bool = false;
    /// The attributes that leaves can have.
    const RIGHTS: Rights = Rights::PLAIN;
    /// Bits of a leaf that survive when the entry is cleared: PowerPC's hash bit. 0 for other
    /// formats.
    const KEPT: u64 = 0;

    /// An entry of a table of `level` that links the table at `at`.
    fn link(level: Level, at: PhysAddr) -> u64;

    /// Returns the table that an entry links; `None` if it is no link. `level` (not 0) is the level
    /// of the table that has the entry.
    fn linked(level: Level, raw: u64) -> Option<PhysAddr>;

    /// A leaf in a table of `level`, one of [`LEAF_LEVELS`](Self::LEAF_LEVELS). `pfn` is the first
    /// of the frames that the entry maps, aligned to their number.
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64;

    /// The first frame of a leaf in a table of `level`, one without the hint.
    fn frame(level: Level, raw: u64) -> Pfn;

    /// The attributes of a leaf in a table of `level`.
    fn attr(level: Level, raw: u64) -> Attr;

    /// Whether the MMU would use the leaf at all.
    fn is_present(level: Level, raw: u64) -> bool;

    /// Whether the MMU would let a user's access through.
    fn allows(level: Level, raw: u64, access: Access) -> bool;

    /// The leaf without write permission.
    fn write_protected(level: Level, raw: u64) -> u64;

    /// Whether the frame of the leaf is not counted by references ([`Attr::SPECIAL`]).
    fn is_special(level: Level, raw: u64) -> bool;

    /// The leaf `raw` of a table of `level` with [groups](Self::GROUP_BITS), one of a group that
    /// has no hint, with the hint. Its frame has the same place in the group's frames as the entry
    /// in the group.
    #[inline]
    fn hinted(level: Level, raw: u64) -> u64 {
        let _ = level;
        raw
    }

    /// Whether the entry of a table of `level` has the hint. Links and empty entries have none.
    #[inline]
    fn is_hinted(level: Level, raw: u64) -> bool {
        let _ = (level, raw);
        false
    }

    /// The entry at `index` of a table of `level` without the hint, and with its own frame.
    #[inline]
    fn unhinted(level: Level, index: usize, raw: u64) -> u64 {
        let _ = (level, index);
        raw
    }

    /// Whether the architecture demands that the entry `old` of a table of `level` is made invalid,
    /// and flushed on all CPUs, before `new` takes its place (AArch64's break-before-make): for
    /// another frame, memory type or size, for a page that becomes global, or for the hint. Either
    /// may be a leaf, a link or empty.
    fn needs_break(level: Level, old: u64, new: u64) -> bool {
        let _ = (level, old, new);
        false
    }
}

/// Functions derived from a [`Format`]: a format cannot override them.
///
/// Tables are reached with the indices that these functions return, so their results are within the
/// tables that [`check`] has seen. A format that could say otherwise would write outside of them:
///
/// ```compile_fail,E0407
/// # use ptarmigan::{addr::{Pfn, PhysAddr}, format::{Access, Attr, Format, Slot64}, page::{Layout, Level}};
/// #[derive(Clone, Copy, Default)]
/// struct Wide;
/// // SAFETY: an example that does not compile.
/// unsafe impl Format for Wide {
///     fn entries(_: Level) -> usize {
///         4096 // in a table of 512
///     }
///     // ...
/// #   type Slot = Slot64;
/// #   const NAME: &'static str = "wide";
/// #   const LAYOUT: Layout = Layout { levels: 2, table_shift: [12, 12, 0, 0, 0] };
/// #   const LEVEL_NAMES: &'static [&'static str] = &["pte", "root"];
/// #   const PAGE_SHIFT: u32 = 12;
/// #   const INDEX_BITS: [u8; 5] = [9, 9, 0, 0, 0];
/// #   const USER_END: u64 = 1 << 29;
/// #   const KERNEL_START: u64 = 1 << 29;
/// #   const USER_ROOT_ENTRIES: usize = 256;
/// #   const PHYS_BITS: u32 = 44;
/// #   fn link(_: Level, at: PhysAddr) -> u64 { at.0 | 1 }
/// #   fn linked(_: Level, raw: u64) -> Option<PhysAddr> { (raw & 1 != 0).then_some(PhysAddr(raw & !1)) }
/// #   fn leaf(_: Level, pfn: Pfn, _: Attr) -> u64 { pfn.addr().0 | 1 }
/// #   fn frame(_: Level, raw: u64) -> Pfn { PhysAddr(raw).pfn() }
/// #   fn attr(_: Level, _: u64) -> Attr { Attr::READ }
/// #   fn is_present(_: Level, raw: u64) -> bool { raw & 1 != 0 }
/// #   fn allows(_: Level, raw: u64, _: Access) -> bool { raw & 1 != 0 }
/// #   fn write_protected(_: Level, raw: u64) -> u64 { raw }
/// #   fn is_special(_: Level, _: u64) -> bool { false }
/// }
/// ```
pub trait FormatExt {
    /// Order of a page: binary logarithm of the frames that it has.
    const PAGE_ORDER: u8;

    /// Checks that leaves can have exactly the attributes `attr`.
    ///
    /// # Errors
    ///
    /// [`Inexpressible`] if the format cannot say them.
    fn expresses(attr: Attr) -> Result<(), Inexpressible>;

    /// The same for pages of a tree, which differ from space to space: none is global.
    ///
    /// # Errors
    ///
    /// [`Inexpressible`] if the format cannot say them, or [`Attr::GLOBAL`] is among them.
    fn expresses_in_tree(attr: Attr) -> Result<(), Inexpressible>;

    /// Checks that leaves can have the attributes `attr`, and that all are the caller's own
    /// ([`Attr::SOFT`]).
    ///
    /// # Errors
    ///
    /// [`Inexpressible`] otherwise.
    fn expresses_soft(attr: Attr) -> Result<(), Inexpressible>;

    /// Returns the attributes of a page that can do what one with `attr` could, for callers that
    /// serve all formats: with [`Attr::READ`] where the format has no page that may be written or
    /// executed and not read, with [`Attr::USER`] in a second stage, without [`Attr::GLOBAL`]
    /// where there are no global pages, and with the next stricter [`MemoryType`] that the format
    /// has where it does not have theirs. Other attributes that the format cannot say stay, and are
    /// refused by [`expresses`](Self::expresses).
    fn nearest(attr: Attr) -> Attr;

    /// Binary logarithm of the bytes that one entry of `level` maps.
    fn shift(level: Level) -> u32;

    /// The number of entries of a table of `level`, one that trees have.
    fn entries(level: Level) -> usize;

    /// The entry of a table of `level` that maps `va`.
    fn index(level: Level, va: u64) -> usize;

    /// Whether an entry is empty, whatever bits of [`KEPT`](Format::KEPT) it has.
    fn is_none(raw: u64) -> bool;

    /// The value of an entry after it was cleared.
    fn cleared(raw: u64) -> u64;

    /// Returns the kind of an entry of a table of `level`.
    fn entry(level: Level, raw: u64) -> Entry;

    /// The leaf `raw` of a table of `level` with the attributes that `change` makes of its own.
    fn map_attr(level: Level, raw: u64, change: impl FnOnce(Attr) -> Attr) -> u64;
}

impl<F: Format> FormatExt for F {
    const PAGE_ORDER: u8 = Self::PAGE_SHIFT.saturating_sub(FRAME_SHIFT) as u8;

    #[inline]
    fn expresses(attr: Attr) -> Result<(), Inexpressible> {
        let by = const { &rights::Named { name: Self::NAME, rights: Self::RIGHTS } };
        if by.rights.can_say(attr) { Ok(()) } else { Err(Inexpressible::new(attr, by)) }
    }

    #[inline]
    fn expresses_in_tree(attr: Attr) -> Result<(), Inexpressible> {
        let by = const { &rights::Named { name: Self::NAME, rights: Self::RIGHTS.without_global() } };
        if by.rights.can_say(attr) { Ok(()) } else { Err(Inexpressible::new(attr, by)) }
    }

    fn expresses_soft(attr: Attr) -> Result<(), Inexpressible> {
        let by = const { &rights::Named { name: Self::NAME, rights: Self::RIGHTS.soft_only() } };
        if by.rights.can_say(attr) { Ok(()) } else { Err(Inexpressible::new(attr, by)) }
    }

    #[inline]
    fn nearest(attr: Attr) -> Attr {
        Self::RIGHTS.nearest(attr)
    }

    #[inline]
    fn shift(level: Level) -> u32 {
        let shifts = const { check::shifts(Self::PAGE_SHIFT, &Self::INDEX_BITS) };
        shifts[level.at() & (check::SHIFTS - 1)]
    }

    #[inline]
    fn entries(level: Level) -> usize {
        if let Some(entries) = const { check::entries_of_all(Self::LAYOUT.levels, &Self::INDEX_BITS) } {
            return entries;
        }
        let entries = const { check::entries(&Self::INDEX_BITS) };
        entries[level.at() & (check::SHIFTS - 1)]
    }

    #[inline]
    fn index(level: Level, va: u64) -> usize {
        (va >> Self::shift(level)) as usize & (Self::entries(level) - 1)
    }

    #[inline]
    fn is_none(raw: u64) -> bool {
        raw & !Self::KEPT == 0
    }

    #[inline]
    fn cleared(raw: u64) -> u64 {
        raw & Self::KEPT
    }

    #[inline]
    fn entry(level: Level, raw: u64) -> Entry {
        if Self::is_none(raw) {
            return Entry::None;
        }
        let link = if level == Level::PTE { None } else { Self::linked(level, raw) };
        link.map_or(Entry::Leaf, Entry::Link)
    }

    #[inline]
    fn map_attr(level: Level, raw: u64, change: impl FnOnce(Attr) -> Attr) -> u64 {
        Self::leaf(level, Self::frame(level, raw), change(Self::attr(level, raw)))
    }
}

/// Returns by how much the entries of leaves of tables of `level` grow from one to the next, whose
/// frames follow each other: evenly ([`Format`], 5.).
#[inline(always)]
pub(crate) fn growth<F: Format>(level: Level, attr: Attr) -> u64 {
    let next = Pfn(1 << (F::shift(level) - FRAME_SHIFT));
    F::leaf(level, next, attr).wrapping_sub(F::leaf(level, Pfn(0), attr))
}
