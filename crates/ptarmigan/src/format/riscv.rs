//! RISC-V: two levels of 1,024 entries of 4 bytes, or three, four or five levels of 512 entries of
//! 8 bytes (privileged specification, chapters "Sv32", "Sv39", "Sv48" and "Sv57").
//!
//! | bits | | |
//! |---|---|---|
//! | 0 | V | valid: without it the MMU ignores all others, and they are software's |
//! | 1–3 | R W X | permissions; all clear in a valid entry: it links a table. X alone: for execution only |
//! | 4, 5 | U G | user's; the same in all spaces |
//! | 6, 7 | A D | accessed, dirty: set by the MMU, or it faults and software sets them |
//! | 8, 9 | | software's: the caller's; the frame is not counted |
//! | 10–53 | PPN | the frame's number, to bit 31 in Sv32 |
//! | 61, 62 | PBMT | with Svpbmt: the memory type. 1 is NC, 2 is IO; a fault without Svpbmt |
//! | 63 | N | with Svnapot: one of 16 pages that are a [group](Format::GROUP_BITS). Bits 10 to 13 are 8 then, and a page has its place in the group for its place in the group's frames |
use super::attr::{Types, attr_of, bits_of, memory_bits, memory_of};
use super::{Access, Attr, Format, MemoryType, Rights, Slot32Le, Slot64};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const V: u64 = 1;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const U: u64 = 1 << 4;
const G: u64 = 1 << 5;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;
/// In an entry without V, which software has for itself: it keeps its frame (`PROT_NONE`). An entry
/// of frame 0 would be 0 without it.
const KEEPS: u64 = R;
/// Software's: the frame is not counted by references.
const SPECIAL: u64 = 1 << 9;
/// The caller's.
const SOFT: u64 = 1 << 8;
const PPN_SHIFT: u32 = 10;
const PPN: u64 = (1 << 44) - 1;

/// PBMT: PMA, which leaves it to the physical address, NC and IO.
const PBMT_BITS: u64 = 3 << 61;
const TYPES: &Types =
    &[(MemoryType::WriteBack, 0), (MemoryType::WriteCombining, 1 << 61), (MemoryType::Device, 2 << 61)];

/// N: the hint.
const HINT: u64 = 1 << 63;
/// Binary logarithm of the pages of a group: other sizes are for later use.
const GROUP_PAGES: u8 = 4;
/// The part of the frame's number that is an entry's place in its group.
const GROUP_PLACE: u64 = ((1 << GROUP_PAGES) - 1) << PPN_SHIFT;
/// The value there that says the size of the group.
const GROUP_SIZE: u64 = 1 << (PPN_SHIFT + GROUP_PAGES as u32 - 1);

/// The rights of leaves, with Svpbmt or without.
pub(super) const fn rights(pbmt: bool) -> Rights {
    let rights = Rights::PLAIN.with_execute_only(true).with_soft(1);
    if pbmt { rights.with_memory(&[MemoryType::WriteCombining, MemoryType::Device]) } else { rights }
}

/// Attributes and the bits that stand for them, but for `READ`, see [`Format::leaf`].
const BITS: [(Attr, u64); 8] = [
    (Attr::WRITE, W),
    (Attr::EXEC, X),
    (Attr::USER, U),
    (Attr::GLOBAL, G),
    (Attr::ACCESSED, A),
    (Attr::DIRTY, D),
    (Attr::SPECIAL, SPECIAL),
    (Attr::SOFT0, SOFT),
];

/// The functions of all formats: in Sv32, an entry has no bits above 31, so `$pbmt` and `$napot`
/// are false.
macro_rules! riscv_entries {
    ($pbmt:expr, $napot:expr) => {
        const RIGHTS: Rights = rights($pbmt).without_kernel_fetch();
        const GROUP_BITS: [u8; MAX_LEVELS] = [if $napot { GROUP_PAGES } else { 0 }, 0, 0, 0, 0];

        #[inline]
        fn hinted(level: Level, raw: u64) -> u64 {
            if $napot && level == Level::PTE { raw & !GROUP_PLACE | GROUP_SIZE | HINT } else { raw }
        }

        #[inline]
        fn is_hinted(_: Level, raw: u64) -> bool {
            $napot && raw & HINT != 0
        }

        #[inline]
        fn unhinted(level: Level, index: usize, raw: u64) -> u64 {
            if !Self::is_hinted(level, raw) {
                return raw;
            }
            raw & !(HINT | GROUP_PLACE) | (index as u64) << PPN_SHIFT & GROUP_PLACE
        }

        #[inline]
        fn link(_: Level, at: PhysAddr) -> u64 {
            at.0 >> 12 << PPN_SHIFT | V
        }

        #[inline]
        fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
            (raw & (V | R | W | X) == V).then_some(PhysAddr((raw >> PPN_SHIFT & PPN) << 12))
        }

        #[inline]
        fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
            // W without R is reserved: without V the MMU ignores both.
            let access = match attr.0 & (Attr::READ.0 | Attr::WRITE.0 | Attr::EXEC.0) {
                access if access & Attr::READ.0 != 0 => V | R,
                access if access == Attr::EXEC.0 => V,
                _ => KEEPS,
            };
            let memory = if $pbmt { memory_bits(TYPES, attr) } else { 0 };
            u64::from(pfn.0) << PPN_SHIFT | access | bits_of(&BITS, attr) | memory
        }

        #[inline]
        fn frame(_: Level, raw: u64) -> Pfn {
            Pfn((raw >> PPN_SHIFT & PPN) as u32)
        }

        #[inline]
        fn attr(_: Level, raw: u64) -> Attr {
            let memory = if $pbmt { memory_of(TYPES, raw & PBMT_BITS) } else { Attr::default() };
            let attr = attr_of(&BITS, raw) | memory;
            if raw & (V | R) == V | R { attr | Attr::READ } else { attr }
        }

        #[inline]
        fn is_present(_: Level, raw: u64) -> bool {
            raw & V != 0
        }

        #[inline]
        fn write_protected(_: Level, raw: u64) -> u64 {
            raw & !W
        }

        /// A hart that leaves A and D to software faults where they are clear: the access is not
        /// let through then, or the library would take that fault for a spurious one, again and
        /// again.
        #[inline]
        fn allows(_: Level, raw: u64, access: Access) -> bool {
            let needed = match access {
                Access::Read => R,
                Access::Write => R | W | D,
                Access::Exec => X,
            } | V
                | U
                | A;
            raw & needed == needed
        }

        #[inline]
        fn is_special(_: Level, raw: u64) -> bool {
            raw & SPECIAL != 0
        }
    };
}

/// RISC-V with `LEVELS` levels: [`Sv39`], [`Sv48`] or [`Sv57`]. The upper half of the root is the
/// kernel's.
///
/// With `PBMT`, on harts with the extension Svpbmt, pages have memory types: NC for
/// [`MemoryType::WriteCombining`] and IO for [`MemoryType::Device`]. Without it physical addresses
/// decide (PMAs), and the bits fault. A kernel for both kinds of harts has a tree of each type, and
/// chooses when it has read the device tree; the second stage needs `menvcfg.PBMTE` or
/// `henvcfg.PBMTE`.
///
/// With `NAPOT`, on harts with the extension Svnapot, 16 pages may be a
/// [group](Format::GROUP_BITS). Without it, the bit faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sv<const LEVELS: u8, const PBMT: bool = false, const NAPOT: bool = false>;

/// RISC-V with three levels: 39 bits of address, 256 GiB of them the user's.
pub type Sv39 = Sv<3>;
/// RISC-V with four levels: 48 bits of address, 128 TiB of them the user's.
pub type Sv48 = Sv<4>;
/// RISC-V with five levels: 57 bits of address, 64 PiB of them the user's.
pub type Sv57 = Sv<5>;
/// As [`Sv39`], with memory types (Svpbmt).
pub type Sv39Pbmt = Sv<3, true>;
/// As [`Sv48`], with memory types (Svpbmt).
pub type Sv48Pbmt = Sv<4, true>;
/// As [`Sv57`], with memory types (Svpbmt).
pub type Sv57Pbmt = Sv<5, true>;
/// As [`Sv39Pbmt`], with groups (Svnapot).
pub type Sv39Napot = Sv<3, true, true>;
/// As [`Sv48Pbmt`], with groups (Svnapot).
pub type Sv48Napot = Sv<4, true, true>;
/// As [`Sv57Pbmt`], with groups (Svnapot).
pub type Sv57Napot = Sv<5, true, true>;

/// `each` for every level that there is, 0 for the others.
const fn by_level(levels: u8, each: u8) -> [u8; MAX_LEVELS] {
    assert!(levels >= 2 && levels <= 5, "RISC-V has two to five levels");
    let mut all = [0; MAX_LEVELS];
    let mut level = 0;
    while level < levels as usize {
        all[level] = each;
        level += 1;
    }
    all
}

// SAFETY: 1. The number of the table's frame is shifted there and back; every leaf has R, X or no
// V, large pages too. 2. The same for the frame's number, which `write_protected` leaves alone; bit
// 9 is `SPECIAL` and has no other use. 3. A link has V, a leaf V or `KEEPS`. 4. Privileged
// specification, "Virtual Address Translation Process", for user mode, with `mstatus.MXR` clear,
// and for harts that leave A and D to software too. 5. The frame's number is in consecutive bits.
// 6. An entry may be replaced at any time, before the `SFENCE.VMA`. 7. R, W and X are the MMU's,
// and what it ignores without V comes back; a hart never fetches from a page with U in supervisor
// mode. 8. Bit 63 has no other use, and only `hinted` sets it; the place that it takes from the
// frame's number is the lowest bits of the entry's index.
unsafe impl<const LEVELS: u8, const PBMT: bool, const NAPOT: bool> Format for Sv<LEVELS, PBMT, NAPOT> {
    type Slot = Slot64;
    const NAME: &'static str = match (LEVELS, PBMT, NAPOT) {
        (3, false, false) => "Sv39",
        (4, false, false) => "Sv48",
        (5, false, false) => "Sv57",
        (3, true, false) => "Sv39 with Svpbmt",
        (4, true, false) => "Sv48 with Svpbmt",
        (5, true, false) => "Sv57 with Svpbmt",
        (3, false, true) => "Sv39 with Svnapot",
        (4, false, true) => "Sv48 with Svnapot",
        (5, false, true) => "Sv57 with Svnapot",
        (3, true, true) => "Sv39 with Svpbmt and Svnapot",
        (4, true, true) => "Sv48 with Svpbmt and Svnapot",
        (5, true, true) => "Sv57 with Svpbmt and Svnapot",
        _ => panic!("RISC-V with entries of 64 bits has three, four or five levels"),
    };
    const LAYOUT: Layout = Layout { levels: LEVELS, table_shift: by_level(LEVELS, 12) };
    const LEVEL_NAMES: &'static [&'static str] = match LEVELS {
        3 => &["pte", "pmd", "pgd"],
        4 => &["pte", "pmd", "pud", "pgd"],
        _ => &["pte", "pmd", "pud", "p4d", "pgd"],
    };
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = by_level(LEVELS, 9);
    /// Addresses are sign-extended from their highest bit: the user's half is the lower one.
    const USER_END: u64 = 1 << (9 * LEVELS as u32 + 11);
    const KERNEL_START: u64 = Self::USER_END.wrapping_neg();
    const USER_ROOT_ENTRIES: usize = 256;
    const PHYS_BITS: u32 = 56;
    const LEAF_LEVELS: u8 = (1 << LEVELS) - 1;
    riscv_entries!(PBMT, NAPOT);
}

/// 32-bit RISC-V: two levels, 34 bits of physical address; the user has 3 GiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sv32;

// SAFETY: as for `Sv`, whose bits these are.
unsafe impl Format for Sv32 {
    type Slot = Slot32Le;
    const NAME: &'static str = "Sv32";
    const LAYOUT: Layout = Layout { levels: 2, table_shift: by_level(2, 12) };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pgd"];
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = by_level(2, 10);
    const USER_END: u64 = 3 << 30;
    const KERNEL_START: u64 = 3 << 30;
    const USER_ROOT_ENTRIES: usize = 768;
    const PHYS_BITS: u32 = 34;
    const LEAF_LEVELS: u8 = 0b11;
    riscv_entries!(false, false);
}
