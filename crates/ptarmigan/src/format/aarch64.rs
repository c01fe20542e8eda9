//! AArch64 stage 1, with granules of 4, 16 and 64 KiB (Arm ARM, D8.3 "Translation table descriptor
//! formats").
//!
//! | granule | bits of address | levels | entries of a table | entries of the root |
//! |---|---|---|---|---|
//! | 4 KiB | 48 | 4 | 512 | 512 |
//! | 16 KiB | 47 | 3 | 2,048 | 2,048 |
//! | 64 KiB | 48 | 3 | 8,192 | 64 |
//!
//! | bits | | |
//! |---|---|---|
//! | 0 | valid | without it all other bits are software's |
//! | 1 | | in a valid entry: a link (above level 0), or a page (at level 0); clear: a block |
//! | 2–4 | AttrIndx | which memory type of `MAIR_EL1` |
//! | 6 | AP\[1\] | the user may read it, and write it where the kernel may |
//! | 7 | AP\[2\] | nobody may write |
//! | 8, 9 | SH | 3: inner shareable |
//! | 10 | AF | accessed: an access faults while it is clear (Armv8.0 has no hardware update) |
//! | 11 | nG | of one ASID |
//! | 12–47 | | the output address, aligned to the granule |
//! | 51 | DBM | software: may be written. With `FEAT_HAFDBS` the MMU clears AP\[2\] then |
//! | 52 | Contiguous | the hint: the entry is one of a [group](Format::GROUP_BITS) |
//! | 53, 54 | PXN, UXN | the kernel, the user may not execute |
//! | 55–58 | | software's |

use super::attr::{Types, attr_of, bits_of, memory_bits, memory_of};
use super::{Access, Attr, Format, MemoryType, Rights, Slot64};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const VALID: u64 = 1;
/// A link above level 0, a page at level 0.
const TABLE: u64 = 1 << 1;
/// AttrIndx.
const INDEX: u64 = 7 << 2;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const INNER: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const MAY_WRITE: u64 = 1 << 51;
/// The hint. Its place is the same in stage 2.
pub(super) const CONTIGUOUS: u64 = 1 << 52;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
/// Software's: written to.
const DIRTY: u64 = 1 << 55;
/// Software's: the frame is not counted by references.
const SPECIAL: u64 = 1 << 56;
/// Software's: the caller's.
const SOFT: u64 = 1 << 57;
/// Software's: an entry that is not valid keeps its frame (`PROT_NONE`).
const KEEPS: u64 = 1 << 58;
const ADDRESS: u64 = ((1 << 48) - 1) & !0xfff;
/// Attributes that one bit each stands for in every entry.
const NOTED: [(Attr, u64); 5] = [
    (Attr::WRITE, MAY_WRITE),
    (Attr::ACCESSED, ACCESSED),
    (Attr::DIRTY, DIRTY),
    (Attr::SPECIAL, SPECIAL),
    (Attr::SOFT0, SOFT),
];
/// All bits of AttrIndx, and of shareability.
const TYPE: u64 = INDEX | INNER;
/// AttrIndx and shareability, which memory of devices has none of.
const TYPES: &Types = &[
    (MemoryType::WriteBack, INNER),
    (MemoryType::Device, 1 << 2),
    (MemoryType::WriteCombining, 2 << 2 | INNER),
    (MemoryType::WriteThrough, 3 << 2 | INNER),
];

/// AArch64 stage 1 with a granule of 2^`GRANULE` bytes: the half below `TTBR0`, or the `UPPER` one
/// below `TTBR1`. [`Aarch64`] and its neighbours name those that there are.
///
/// A page of the user's for execution alone has AP\[1\] and UXN clear. The kernel may read it, also
/// with `PSTATE.PAN` set, unless the CPU has `FEAT_EPAN` and `SCTLR_EL1.EPAN` is set. The kernel
/// executes no page that the user may write. Permission overlays (`FEAT_S1POE`) cannot be said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aarch64Stage1<const GRANULE: u32, const UPPER: bool>;

/// AArch64 with pages of 4 KiB, the user's tree below `TTBR0`: all of its root is the user's, so
/// roots are made with [`NoConstruct`](crate::page::NoConstruct).
pub type Aarch64 = Aarch64Stage1<12, false>;
/// AArch64 with pages of 4 KiB, the kernel's tree below `TTBR1`: all of its root is the kernel's.
pub type Aarch64Upper = Aarch64Stage1<12, true>;
/// As [`Aarch64`], with pages of 16 KiB.
pub type Aarch64K16 = Aarch64Stage1<14, false>;
/// As [`Aarch64Upper`], with pages of 16 KiB.
pub type Aarch64K16Upper = Aarch64Stage1<14, true>;
/// As [`Aarch64`], with pages of 64 KiB.
pub type Aarch64K64 = Aarch64Stage1<16, false>;
/// As [`Aarch64Upper`], with pages of 64 KiB.
pub type Aarch64K64Upper = Aarch64Stage1<16, true>;

impl<const GRANULE: u32, const UPPER: bool> Aarch64Stage1<GRANULE, UPPER> {
    /// Bits of address that a tree translates.
    const BITS: u32 = if GRANULE == 14 { 47 } else { 48 };

    /// The value of `MAIR_EL1` that memory types stand for, on every CPU:
    ///
    /// | index | value | |
    /// |---|---|---|
    /// | 0 | 0xff | [`MemoryType::WriteBack`]: normal memory, allocates for reads and writes |
    /// | 1 | 0x04 | [`MemoryType::Device`]: Device-nGnRE |
    /// | 2 | 0x44 | [`MemoryType::WriteCombining`]: normal memory, not cached |
    /// | 3 | 0xbb | [`MemoryType::WriteThrough`]: normal memory, written through |
    ///
    /// The others are the kernel's. [`MemoryType::Uncached`] is not among them: normal memory that
    /// is not cached may collect and reorder writes, and all else is a device's.
    pub const MAIR: u64 = 0xbb44_04ff;
}

/// Defines the functions of formats whose hint is the Contiguous bit, which changes nothing else.
macro_rules! contiguous_bit {
    () => {
        #[inline]
        fn hinted(_: Level, raw: u64) -> u64 {
            raw | CONTIGUOUS
        }

        #[inline]
        fn is_hinted(_: Level, raw: u64) -> bool {
            raw & CONTIGUOUS != 0
        }

        #[inline]
        fn unhinted(_: Level, _: usize, raw: u64) -> u64 {
            raw & !CONTIGUOUS
        }
    };
}
pub(super) use contiguous_bit;

/// Written through, as software or the MMU notes it.
#[inline]
fn is_dirty(raw: u64) -> bool {
    raw & DIRTY != 0 || raw & (MAY_WRITE | READ_ONLY) == MAY_WRITE
}

// SAFETY: 1. Bits 12 to 47 hold what `link` was given; bits 0 and 1 are set in links, and bit 1 is
// clear in blocks. 2. The same bits hold the frame, which `write_protected` leaves alone; bit 56 is
// `SPECIAL` and nothing else. 3. A link is valid, a leaf is valid or has `KEEPS`. 4. and 7. Arm ARM
// D8.4, for EL0, with `SCTLR_EL1.WXN` clear, `TCR_EL1.HA` and `HD` clear or set. 5. The frame's
// number is in consecutive bits. 6. Arm ARM, "Using break-before-make when updating translation
// table entries". 8. Bit 52 has no other use, and only `hinted` sets it.
unsafe impl<const GRANULE: u32, const UPPER: bool> Format for Aarch64Stage1<GRANULE, UPPER> {
    type Slot = Slot64;
    const NAME: &'static str = match (GRANULE, UPPER) {
        (12, false) => "AArch64 4K",
        (14, false) => "AArch64 16K",
        (_, false) => "AArch64 64K",
        (12, true) => "AArch64 4K, upper half",
        (14, true) => "AArch64 16K, upper half",
        (_, true) => "AArch64 64K, upper half",
    };
    const LAYOUT: Layout = match GRANULE {
        12 => Layout { levels: 4, table_shift: [12, 12, 12, 12, 0] },
        14 => Layout { levels: 3, table_shift: [14, 14, 14, 0, 0] },
        16 => Layout { levels: 3, table_shift: [16, 16, 9, 0, 0] },
        _ => panic!("granules of AArch64 are 12, 14 and 16"),
    };
    const LEVEL_NAMES: &'static [&'static str] =
        if GRANULE == 12 { &["pte", "pmd", "pud", "pgd"] } else { &["pte", "pmd", "pgd"] };
    const PAGE_SHIFT: u32 = GRANULE;
    const INDEX_BITS: [u8; MAX_LEVELS] = match GRANULE {
        12 => [9, 9, 9, 9, 0],
        14 => [11, 11, 11, 0, 0],
        _ => [13, 13, 6, 0, 0],
    };
    const USER_END: u64 = if UPPER { 0 } else { 1 << Self::BITS };
    const KERNEL_START: u64 = u64::MAX << Self::BITS;
    const USER_ROOT_ENTRIES: usize =
        if UPPER { 0 } else { 1 << Self::INDEX_BITS[Self::LAYOUT.levels as usize - 1] };
    const PHYS_BITS: u32 = 48;
    const LEAF_LEVELS: u8 = if GRANULE == 12 { 0b111 } else { 0b11 };
    const GROUP_BITS: [u8; MAX_LEVELS] = match GRANULE {
        12 => [4, 4, 4, 0, 0],
        14 => [7, 5, 0, 0, 0],
        _ => [5, 5, 0, 0, 0],
    };
    const EVER_BREAKS: bool = true;
    const RIGHTS: Rights = Rights::PLAIN
        .with_execute_only(false)
        .with_kernel_exec()
        .with_soft(1)
        .with_memory(&[MemoryType::Device, MemoryType::WriteCombining, MemoryType::WriteThrough]);

    #[inline]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 | VALID | TABLE
    }

    #[inline]
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        (raw & (VALID | TABLE) == VALID | TABLE).then_some(PhysAddr(raw & ADDRESS))
    }

    #[inline]
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        let mut raw = pfn.addr().0 | memory_bits(TYPES, attr);
        let rights = attr.0 & (Attr::READ.0 | Attr::WRITE.0 | Attr::EXEC.0 | Attr::USER.0);
        // For execution by the user alone.
        let execute_only = rights == Attr::EXEC.0 | Attr::USER.0;
        raw |= match attr.has(Attr::READ) || execute_only {
            true if level == Level::PTE => VALID | TABLE,
            true => VALID,
            false => KEEPS,
        };
        raw |= if attr.has(Attr::USER) {
            let kernel = if attr.has(Attr::KERNEL_EXEC) { 0 } else { PXN };
            kernel | if execute_only { 0 } else { USER } | if attr.has(Attr::EXEC) { 0 } else { UXN }
        } else {
            UXN | if attr.has(Attr::EXEC) { 0 } else { PXN }
        };
        // A page that may be written is read-only for the MMU until it is dirty.
        if !attr.has(Attr::WRITE | Attr::DIRTY) {
            raw |= READ_ONLY;
        }
        if !attr.has(Attr::GLOBAL) {
            raw |= NOT_GLOBAL;
        }
        raw | bits_of(&NOTED, attr)
    }

    #[inline]
    fn frame(_: Level, raw: u64) -> Pfn {
        PhysAddr(raw & ADDRESS).pfn()
    }

    #[inline]
    fn attr(_: Level, raw: u64) -> Attr {
        // The kernel's pages have UXN.
        let user = raw & USER != 0 || raw & UXN == 0;
        let no_execute = if user { UXN } else { PXN };
        let mut attr = attr_of(&NOTED, raw) | memory_of(TYPES, raw & TYPE);
        for (bit, has) in [
            (Attr::READ, raw & VALID != 0 && (raw & USER != 0 || !user)),
            (Attr::EXEC, raw & no_execute == 0),
            (Attr::USER, user),
            (Attr::KERNEL_EXEC, user && raw & PXN == 0),
            (Attr::GLOBAL, raw & NOT_GLOBAL == 0),
            (Attr::DIRTY, is_dirty(raw)),
        ] {
            if has {
                attr = attr | bit;
            }
        }
        attr
    }

    #[inline]
    fn is_present(_: Level, raw: u64) -> bool {
        raw & VALID != 0
    }

    /// An access whose flag is clear faults. Execution at EL0 asks for UXN alone.
    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let (set, clear) = match access {
            Access::Read => (VALID | ACCESSED | USER, 0),
            Access::Write => (VALID | ACCESSED | USER, READ_ONLY),
            Access::Exec => (VALID | ACCESSED, UXN),
        };
        raw & (set | clear) == set
    }

    /// Without the permission to write. The MMU may have noted that it is dirty in that very bit.
    #[inline]
    fn write_protected(_: Level, raw: u64) -> u64 {
        let dirty = if is_dirty(raw) { DIRTY } else { 0 };
        raw & !MAY_WRITE | READ_ONLY | dirty
    }

    #[inline]
    fn is_special(_: Level, raw: u64) -> bool {
        raw & SPECIAL != 0
    }

    contiguous_bit!();

    /// Another address, memory type, shareability or size, the hint, and a page that becomes global
    /// (Arm ARM, "Using break-before-make when updating translation table entries").
    #[inline]
    fn needs_break(_: Level, old: u64, new: u64) -> bool {
        let (changed, what) = (old ^ new, ADDRESS | TYPE | TABLE | CONTIGUOUS);
        old & new & VALID != 0 && (changed & what != 0 || old & changed & NOT_GLOBAL != 0)
    }
}
