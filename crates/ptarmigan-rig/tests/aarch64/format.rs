//! AArch64 stage 1, 4 KiB granule, 48 bits of address below `TTBR0`, with break before make for
//! frames (Arm ARM, D8.3 "Translation table descriptor formats").

use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{Access, Attr, Format, Slot64};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};

const VALID: u64 = 1;
/// A link above level 0, a page at level 0.
const TABLE: u64 = 1 << 1;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const INNER: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const MAY_WRITE: u64 = 1 << 51;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
/// Software's: written to.
const DIRTY: u64 = 1 << 55;
/// Software's: the frame is not counted by references.
const SPECIAL: u64 = 1 << 56;
/// Software's: an entry that is not valid keeps its frame (`PROT_NONE`).
const KEEPS: u64 = 1 << 58;
/// Frame numbers of the library have 32 bits: 44 bits of address.
const ADDRESS: u64 = ((1 << 44) - 1) & !0xfff;

/// The user's tree, below `TTBR0`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AArch64;

/// Written through, as software or the MMU notes it.
#[inline(always)]
fn is_dirty(raw: u64) -> bool {
    raw & DIRTY != 0 || raw & (MAY_WRITE | READ_ONLY) == MAY_WRITE
}

// SAFETY: 1. Bits 12 to 43 hold what `link` was given; bits 0 and 1 are set in links, and no other
// entry above level 0 is made. 2. The same bits hold the frame, which `write_protected` leaves
// alone; bit 56 is `SPECIAL` and nothing else. 3. A link is valid, a leaf is valid or has `KEEPS`.
// 4. Arm ARM D8.4, for EL0, with `SCTLR_EL1.WXN` clear, `TCR_EL1.HA` and `HD` clear or set. 5. The
// frame's number is in consecutive bits.
unsafe impl Format for AArch64 {
    type Slot = Slot64;
    const NAME: &'static str = "AArch64 4K";
    const LAYOUT: Layout = Layout { levels: 4, table_shift: [12, 12, 12, 12, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pud", "pgd"];
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = [9, 9, 9, 9, 0];
    const USER_END: u64 = 1 << 48;
    const KERNEL_START: u64 = 0xffff_0000_0000_0000;
    /// All entries of the user's roots are the user's: the kernel's tree is another.
    const USER_ROOT_ENTRIES: usize = 512;
    const ROOT_IN_REGISTERS: bool = false;
    const PHYS_BITS: u32 = 44;
    const LEAF_LEVELS: u8 = 1;
    const EVER_BREAKS: bool = true;
    const KEPT: u64 = 0;

    #[inline(always)]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 | VALID | TABLE
    }

    #[inline(always)]
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        (raw & (VALID | TABLE) == VALID | TABLE).then_some(PhysAddr(raw & ADDRESS))
    }

    #[inline(always)]
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        let mut raw = pfn.addr().0 | INNER;
        raw |= if attr.has(Attr::READ) { VALID | TABLE } else { KEEPS };
        raw |= if attr.has(Attr::USER) {
            USER | PXN | if attr.has(Attr::EXEC) { 0 } else { UXN }
        } else {
            UXN | if attr.has(Attr::EXEC) { 0 } else { PXN }
        };
        // What may be written is read-only for the MMU until it is dirty.
        if !attr.has(Attr::WRITE | Attr::DIRTY) {
            raw |= READ_ONLY;
        }
        if !attr.has(Attr::GLOBAL) {
            raw |= NOT_GLOBAL;
        }
        for (bit, to) in [
            (Attr::WRITE, MAY_WRITE),
            (Attr::ACCESSED, ACCESSED),
            (Attr::DIRTY, DIRTY),
            (Attr::SPECIAL, SPECIAL),
        ] {
            if attr.has(bit) {
                raw |= to;
            }
        }
        raw
    }

    #[inline(always)]
    fn frame(_: Level, raw: u64) -> Pfn {
        PhysAddr(raw & ADDRESS).pfn()
    }

    #[inline(always)]
    fn attr(_: Level, raw: u64) -> Attr {
        let no_execute = if raw & USER != 0 { UXN } else { PXN };
        let mut attr = Attr::default();
        for (bit, has) in [
            (Attr::READ, raw & VALID != 0),
            (Attr::WRITE, raw & MAY_WRITE != 0),
            (Attr::EXEC, raw & no_execute == 0),
            (Attr::USER, raw & USER != 0),
            (Attr::GLOBAL, raw & NOT_GLOBAL == 0),
            (Attr::ACCESSED, raw & ACCESSED != 0),
            (Attr::DIRTY, is_dirty(raw)),
            (Attr::SPECIAL, raw & SPECIAL != 0),
        ] {
            if has {
                attr = attr | bit;
            }
        }
        attr
    }

    #[inline(always)]
    fn is_present(_: Level, raw: u64) -> bool {
        raw & VALID != 0
    }

    /// What the MMU lets through; an access whose flag is clear faults. Execution at EL0 asks for
    /// UXN alone, but what the library makes executable is the user's.
    #[inline(always)]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let (set, clear) = match access {
            Access::Read => (VALID | ACCESSED | USER, 0),
            Access::Write => (VALID | ACCESSED | USER, READ_ONLY),
            Access::Exec => (VALID | ACCESSED | USER, UXN),
        };
        raw & (set | clear) == set
    }

    /// Without the permission to write. The MMU may have noted that it is dirty in that very bit.
    #[inline(always)]
    fn write_protected(_: Level, raw: u64) -> u64 {
        let dirty = if is_dirty(raw) { DIRTY } else { 0 };
        raw & !MAY_WRITE | READ_ONLY | dirty
    }

    #[inline(always)]
    fn is_special(_: Level, raw: u64) -> bool {
        raw & SPECIAL != 0
    }

    fn needs_break(_: Level, old: u64, new: u64) -> bool {
        let to_global = old & !new & NOT_GLOBAL != 0;
        old & new & VALID != 0 && ((old ^ new) & (ADDRESS | INNER) != 0 || to_global)
    }
}
