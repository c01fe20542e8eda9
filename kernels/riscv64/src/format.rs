//! Sv39: three levels of 512 entries of 8 bytes (RISC-V privileged specification, chapter "Sv39").
//!
//! | bits | | |
//! |---|---|---|
//! | 0 | V | valid: without it the MMU ignores all others, and they are software's |
//! | 1–3 | R W X | permissions; all clear in a valid entry: it links a table |
//! | 4, 5 | U G | user's; the same in all spaces |
//! | 6, 7 | A D | accessed, dirty: set by the MMU, or it faults and software sets them |
//! | 8, 9 | | software's |
//! | 10–53 | PPN | the frame's number |

use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{Access, Attr, Format, Slot64};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};

/// Valid.
const V: u64 = 1;
/// Readable.
const R: u64 = 1 << 1;
/// Writable.
const W: u64 = 1 << 2;
/// Executable.
const X: u64 = 1 << 3;
const U: u64 = 1 << 4;
const G: u64 = 1 << 5;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;
/// Software's: an entry without V that keeps its frame (`PROT_NONE`). An entry of frame 0 would be
/// 0 without it.
const NO_ACCESS: u64 = 1 << 8;
/// Software's: the frame is not counted by references.
const SPECIAL: u64 = 1 << 9;
const PPN_SHIFT: u32 = 10;
const PPN: u64 = (1 << 44) - 1;

/// Attributes and the bits that stand for them. `READ` is V, see [`Sv39::leaf`].
const BITS: [(Attr, u64); 7] = [
    (Attr::WRITE, W),
    (Attr::EXEC, X),
    (Attr::USER, U),
    (Attr::GLOBAL, G),
    (Attr::ACCESSED, A),
    (Attr::DIRTY, D),
    (Attr::SPECIAL, SPECIAL),
];

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sv39;

// SAFETY: 1. The number of the table's frame is shifted there and back; what `leaf` makes has R or
// no V, and gigapages and megapages have R. 2. The same for the frame's number, which
// `write_protected` leaves alone; bit 9 is `SPECIAL` and nothing else. 3. A link has V, a leaf V or
// bit 8. 4. Privileged specification, "Virtual Address Translation Process", for user mode, with
// `mstatus.MXR` clear, and for harts that leave A and D to software too. 5. The frame's number is
// in consecutive bits. 6. An entry may be replaced at any time, before the `SFENCE.VMA`.
unsafe impl Format for Sv39 {
    type Slot = Slot64;
    const NAME: &'static str = "Sv39";
    const LAYOUT: Layout = Layout { levels: 3, table_shift: [12, 12, 12, 0, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pgd"];
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = [9, 9, 9, 0, 0];
    /// Addresses are sign-extended from bit 38: the user's half is the lower one.
    const USER_END: u64 = 1 << 38;
    const KERNEL_START: u64 = 0xffff_ffc0_0000_0000;
    const USER_ROOT_ENTRIES: usize = 256;
    const ROOT_IN_REGISTERS: bool = false;
    const PHYS_BITS: u32 = 56;
    const LEAF_LEVELS: u8 = 0b111;
    const EVER_BREAKS: bool = false;
    const KEPT: u64 = 0;

    #[inline(always)]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 >> 12 << PPN_SHIFT | V
    }

    #[inline(always)]
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        (raw & (V | R | W | X) == V).then_some(PhysAddr((raw >> PPN_SHIFT & PPN) << 12))
    }

    #[inline(always)]
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        let mut raw = u64::from(pfn.0) << PPN_SHIFT;
        // What may be written or executed may be read: W without R is reserved, and the library
        // knows no X alone.
        raw |= if attr.has(Attr::READ) { V | R } else { NO_ACCESS };
        for (bit, to) in BITS {
            if attr.has(bit) {
                raw |= to;
            }
        }
        raw
    }

    #[inline(always)]
    fn frame(_: Level, raw: u64) -> Pfn {
        Pfn((raw >> PPN_SHIFT & PPN) as u32)
    }

    #[inline(always)]
    fn attr(_: Level, raw: u64) -> Attr {
        let mut attr = if raw & V != 0 { Attr::READ } else { Attr::default() };
        for (bit, from) in BITS {
            if raw & from != 0 {
                attr = attr | bit;
            }
        }
        attr
    }

    #[inline(always)]
    fn is_present(_: Level, raw: u64) -> bool {
        raw & V != 0
    }

    #[inline(always)]
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw & !W
    }

    /// A hart that leaves A and D to software faults where they are clear: the access is not let
    /// through then, or the library would call that fault spurious for ever.
    #[inline(always)]
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

    #[inline(always)]
    fn is_special(_: Level, raw: u64) -> bool {
        raw & SPECIAL != 0
    }

    #[inline(always)]
    fn needs_break(_: Level, _: u64, _: u64) -> bool {
        false
    }
}
