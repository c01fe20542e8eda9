//! Checks at compile time that a format meets the demands of a tree.
use super::{Attr, Format};
use crate::addr::FRAME_SHIFT;
use crate::page::MAX_LEVELS;

/// Binary logarithm of the largest block of frames that there is, in bytes.
const LARGEST: u32 = FRAME_SHIFT + 10;

/// Length of the tables by level: a power of two, so that an index can be masked.
pub(super) const SHIFTS: usize = 8;

/// Binary logarithm of the bytes that an entry maps, by level.
pub(super) const fn shifts(page_shift: u32, index_bits: &[u8; MAX_LEVELS]) -> [u32; SHIFTS] {
    let mut shifts = [page_shift; SHIFTS];
    let mut level = 1;
    while level < SHIFTS {
        let below = if level <= MAX_LEVELS { index_bits[level - 1] as u32 } else { 0 };
        shifts[level] = shifts[level - 1] + below;
        level += 1;
    }
    shifts
}

/// The number of entries of a table, by level.
pub(super) const fn entries(index_bits: &[u8; MAX_LEVELS]) -> [usize; SHIFTS] {
    let mut entries = [1; SHIFTS];
    let mut level = 0;
    while level < MAX_LEVELS {
        entries[level] = 1 << index_bits[level];
        level += 1;
    }
    entries
}

/// The entries that a table has, if tables of all levels have equally many: most formats are so,
/// and then no code depends on the level.
pub(super) const fn entries_of_all(levels: u8, index_bits: &[u8; MAX_LEVELS]) -> Option<usize> {
    let mut level = 1;
    while level < levels as usize {
        if index_bits[level] != index_bits[0] {
            return None;
        }
        level += 1;
    }
    Some(1 << index_bits[0])
}

/// Refuses, at compile time, a format whose shape trees do not support. Every tree evaluates it.
///
/// # Panics
///
/// While compiling, with the name of the format and the demand that it does not meet:
///
/// ```compile_fail,E0080
/// use ptarmigan::{addr::{Pfn, PhysAddr}, format::{Access, Attr, Format, Slot64, check}, page::{Layout, Level}};
/// #[derive(Clone, Copy, Default)]
/// struct Tiny;
/// // SAFETY: an example that does not compile.
/// unsafe impl Format for Tiny {
///     type Slot = Slot64;
///     const NAME: &'static str = "32 entries in leaf tables of 256 bytes";
///     const LAYOUT: Layout = Layout { levels: 2, table_shift: [8, 12, 0, 0, 0] };
///     const LEVEL_NAMES: &'static [&'static str] = &["pte", "root"];
///     const PAGE_SHIFT: u32 = 12;
///     const INDEX_BITS: [u8; 5] = [5, 9, 0, 0, 0];
///     const USER_END: u64 = 1 << 25;
///     const KERNEL_START: u64 = 1 << 25;
///     const USER_ROOT_ENTRIES: usize = 256;
///     const PHYS_BITS: u32 = 44;
///     # fn link(_: Level, at: PhysAddr) -> u64 { at.0 | 1 }
///     # fn linked(_: Level, raw: u64) -> Option<PhysAddr> { (raw & 1 != 0).then_some(PhysAddr(raw & !1)) }
///     # fn leaf(_: Level, pfn: Pfn, _: Attr) -> u64 { pfn.addr().0 | 1 }
///     # fn frame(_: Level, raw: u64) -> Pfn { PhysAddr(raw).pfn() }
///     # fn attr(_: Level, _: u64) -> Attr { Attr::READ }
///     # fn is_present(_: Level, raw: u64) -> bool { raw & 1 != 0 }
///     # fn allows(_: Level, raw: u64, _: Access) -> bool { raw & 1 != 0 }
///     # fn write_protected(_: Level, raw: u64) -> u64 { raw }
///     # fn is_special(_: Level, _: u64) -> bool { false }
///     // …
/// }
/// const _: () = check::<Tiny>(); // leaf tables smaller than a frame are not supported
/// ```
///
/// Nor is a root that maps pages itself: walks begin above the leaves.
///
/// ```compile_fail,E0080
/// # use ptarmigan::{addr::{Pfn, PhysAddr}, format::{Access, Attr, Format, Slot64, check}, page::{Layout, Level}};
/// #[derive(Clone, Copy, Default)]
/// struct Flat;
/// // SAFETY: an example that does not compile.
/// unsafe impl Format for Flat {
///     const LAYOUT: Layout = Layout { levels: 1, table_shift: [12, 0, 0, 0, 0] };
///     const LEVEL_NAMES: &'static [&'static str] = &["root"];
///     const INDEX_BITS: [u8; 5] = [9, 0, 0, 0, 0];
///     // …
///     # type Slot = Slot64;
///     # const NAME: &'static str = "flat";
///     # const PAGE_SHIFT: u32 = 12;
///     # const USER_END: u64 = 1 << 20;
///     # const KERNEL_START: u64 = 1 << 20;
///     # const USER_ROOT_ENTRIES: usize = 256;
///     # const PHYS_BITS: u32 = 44;
///     # fn link(_: Level, at: PhysAddr) -> u64 { at.0 | 1 }
///     # fn linked(_: Level, raw: u64) -> Option<PhysAddr> { (raw & 1 != 0).then_some(PhysAddr(raw & !1)) }
///     # fn leaf(_: Level, pfn: Pfn, _: Attr) -> u64 { pfn.addr().0 | 1 }
///     # fn frame(_: Level, raw: u64) -> Pfn { PhysAddr(raw).pfn() }
///     # fn attr(_: Level, _: u64) -> Attr { Attr::READ }
///     # fn is_present(_: Level, raw: u64) -> bool { raw & 1 != 0 }
///     # fn allows(_: Level, raw: u64, _: Access) -> bool { raw & 1 != 0 }
///     # fn write_protected(_: Level, raw: u64) -> u64 { raw }
///     # fn is_special(_: Level, _: u64) -> bool { false }
/// }
/// const _: () = check::<Flat>(); // a tree has 2 to MAX_LEVELS levels
/// ```
pub const fn check<F: Format>() {
    check_tables::<F>();
    demand::<F>(F::LAYOUT.levels >= 2, "a tree has 2 to MAX_LEVELS levels");
}

/// The same for roots that no tree is made of: they may be tables of pages.
pub(crate) const fn check_tables<F: Format>() {
    let layout = F::LAYOUT;
    demand::<F>(
        layout.levels >= 1 && layout.levels as usize <= MAX_LEVELS,
        "there are 1 to MAX_LEVELS levels",
    );
    let root = layout.levels as usize - 1;
    demand::<F>(F::LEVEL_NAMES.len() == layout.levels as usize, "every level has a name");
    demand::<F>(F::PAGE_SHIFT >= FRAME_SHIFT, "a page is one frame or more");
    demand::<F>(F::PAGE_SHIFT <= LARGEST, "a page is 4 MiB at the most");
    demand::<F>(F::PHYS_BITS > FRAME_SHIFT, "entries have room for the number of a frame");
    demand::<F>(F::LEAF_LEVELS & 1 != 0, "tables of level 0 have leaves");
    let user = Attr::READ.with(Attr::WRITE).with(Attr::USER);
    demand::<F>(F::RIGHTS.can_say(user), "the user's pages may be read and written");
    demand::<F>(
        F::GUEST != F::RIGHTS.can_say(Attr::READ),
        "a second stage, and no other tree, has pages of the user alone",
    );
    demand::<F>(F::LEAF_LEVELS >> layout.levels == 0, "levels that there are not have no leaves");
    let mut level = 0;
    while level < MAX_LEVELS {
        let bits = F::GROUP_BITS[level];
        demand::<F>(bits == 0 || F::LEAF_LEVELS >> level & 1 != 0, "groups are of leaves");
        demand::<F>(
            bits <= F::INDEX_BITS[level] && bits <= 7,
            "a group lies in one table, of 128 entries at most",
        );
        level += 1;
    }
    let entries = entries(&F::INDEX_BITS);
    let mut level = 0;
    while level <= root {
        let bytes = 1usize << layout.table_shift[level];
        let small = (layout.table_shift[level] as u32) < FRAME_SHIFT;
        demand::<F>(!small || level == root, "tables smaller than a frame are supported as roots only");
        demand::<F>(
            level == root || bytes == 1 << layout.table_shift[0],
            "tables below the root have one size",
        );
        demand::<F>(layout.table_shift[level] as u32 <= LARGEST, "a table is 4 MiB at the most");
        demand::<F>(entries[level] <= 1 << 15, "a table has 32,768 entries at the most");
        demand::<F>(small || entries[level] >= 64, "a table of a frame has 64 entries at least");
        // Models store entries in types of their own.
        demand::<F>(
            cfg!(loom) || entries[level] * size_of::<F::Slot>() <= bytes,
            "the entries fit into the table",
        );
        level += 1;
    }
    demand::<F>(F::USER_ROOT_ENTRIES <= entries[root], "the root has the entries that are the user's");
    let shift = shifts(F::PAGE_SHIFT, &F::INDEX_BITS)[root];
    demand::<F>(
        if F::USER_ROOT_ENTRIES == 0 {
            F::USER_END == 0
        } else {
            F::USER_END > 0 && (F::USER_END - 1) >> shift < F::USER_ROOT_ENTRIES as u64
        },
        "the user's entries map all user addresses",
    );
    demand::<F>(
        F::USER_ROOT_ENTRIES == entries[root]
            || (F::KERNEL_START >> shift) as usize & (entries[root] - 1) == F::USER_ROOT_ENTRIES,
        "the kernel's half begins where the user's entries of the root end",
    );
    demand::<F>(F::KERNEL_START & ((1 << shift) - 1) == 0, "an entry of the root begins the kernel's half");
    demand::<F>(!F::ROOT_IN_REGISTERS || root > 0, "a root in registers links tables");
}

/// Ends the compilation with the format's name and the demand, unless it is `met`.
const fn demand<F: Format>(met: bool, text: &str) {
    if !met {
        end_compilation(&[F::NAME, ": ", text]);
    }
}

/// Ends the compilation with a message of these parts.
pub(super) const fn end_compilation(parts: &[&str]) -> ! {
    let mut message = [0; 160];
    let mut len = 0;
    let mut part = 0;
    while part < parts.len() {
        let bytes = parts[part].as_bytes();
        let mut i = 0;
        while i < bytes.len() && len < message.len() {
            message[len] = bytes[i];
            (i, len) = (i + 1, len + 1);
        }
        part += 1;
    }
    match core::str::from_utf8(message.split_at(len).0) {
        Ok(message) => panic!("{}", message),
        // A name that is cut in the middle of a character.
        Err(_) => panic!("{}", parts[parts.len() - 1]),
    }
}
