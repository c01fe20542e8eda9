//! LoongArch with 64 bits: three levels of 2,048 entries of 8 bytes, pages of 16 KiB (Reference
//! Manual volume 1, 5.4 and 7.5: `TLBELO`, `PWCL`, `PWCH`, `LDDIR`, `LDPTE`).
//!
//! Software fills the TLB, walking with `LDDIR` and `LDPTE`. An empty entry is 0 at every level.
//! A refill must test the result of each `LDDIR` for 0, as `LDDIR` would go on at physical address
//! 0. Other kernels link a table of invalid pages instead.
//!
//! A TLB entry holds a pair of pages, the even one and the odd one. It keeps a page whose V is
//! clear beside a mapped one, and a page whose D is clear, and a fault drops neither. So a machine
//! of LoongArch sets `tlb::Mmu::NEEDS_ENTRY_VALID`.
//!
//! | bits | | |
//! |---|---|---|
//! | 0 | V | valid |
//! | 1 | D | the MMU lets writes through: software sets it with W and M |
//! | 2, 3 | PLV | 3: the user's; 0: the kernel's |
//! | 4, 5 | MAT | 0: strongly ordered, not cached; 1: coherent, cached; 2: weakly ordered, not cached |
//! | 6 | G | the same in all spaces, if both pages of the pair have it |
//! | 7, 8 | P W | present, may be written; the TLB ignores both |
//! | 9–13 | | software's, as the page has 16 KiB |
//! | 14–47 | PPN | the frame |
//! | 61–63 | NR NX RPLV | not readable, not executable, of this privilege alone |
//!
//! The G of a TLB entry is the AND of both pages' bits. A global page beside an empty entry, or
//! beside a page that is not global, is cached under the ASID of the space.
//!
//! A link has the table's address in bits 14 to 47, and 9 in the highest four: that is its place in
//! the cached window where kernels map physical memory. `LDDIR` and `LDPTE` drop these four bits.
use super::attr::{Types, attr_of, bits_of, memory_bits, memory_of};
use super::refilled::refilled_tree;
use super::{Access, Attr, Format, MemoryType, Rights, Slot64};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const V: u64 = 1;
const D: u64 = 1 << 1;
const USER: u64 = 3 << 2;
const MAT: u64 = 3 << 4;
const G: u64 = 1 << 6;
const P: u64 = 1 << 7;
const W: u64 = 1 << 8;
/// Software's: written to.
const MODIFIED: u64 = 1 << 9;
/// Software's: an entry that is not valid keeps its frame (`PROT_NONE`).
const KEEPS: u64 = 1 << 10;
/// Software's: the frame is not counted by references.
const SPECIAL: u64 = 1 << 11;
/// Software's: used.
const ACCESSED: u64 = 1 << 12;
/// Software's: the caller's.
const SOFT: u64 = 1 << 13;
const NR: u64 = 1 << 61;
const NX: u64 = 1 << 62;
const ADDRESS: u64 = ((1 << 48) - 1) & !0x3fff;
/// The highest bits of a link.
const WINDOW: u64 = 9 << 60;

const TYPES: &Types =
    &[(MemoryType::WriteBack, 1 << 4), (MemoryType::WriteCombining, 2 << 4), (MemoryType::Device, 0)];

const BITS: [(Attr, u64); 7] = [
    (Attr::WRITE, W),
    (Attr::USER, USER),
    (Attr::GLOBAL, G),
    (Attr::ACCESSED, ACCESSED),
    (Attr::DIRTY, MODIFIED),
    (Attr::SPECIAL, SPECIAL),
    (Attr::SOFT0, SOFT),
];

/// LoongArch with 64 bits, pages of 16 KiB and 47 bits of address: the user's tree below `PGDL`.
/// All of its root is the user's, so roots are made with
/// [`NoConstruct`](crate::page::NoConstruct).
///
/// It has no large pages. No MMU notes uses: [`Attr::ACCESSED`] is software's. [`Attr::DIRTY`] is
/// noted by the fault of the first write.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoongArch64;

// SAFETY: 1. Bits 14 to 47 hold what `link` was given; tables are aligned to 16 KiB, and entries
// above level 0 are links or empty. 2. The same bits hold the frame, which `write_protected` leaves
// alone; bit 11 is `SPECIAL` alone. 3. A link has `WINDOW`, a leaf V or `KEEPS`. 4. and 7.
// Reference Manual 5.4, for PLV 3; D is set in entries with W and `MODIFIED` alone. 5. The frame's
// number is in consecutive bits. 6. An entry may be replaced at any time, before the `INVTLB`: the
// TLB is filled by software.
unsafe impl Format for LoongArch64 {
    type Slot = Slot64;
    const NAME: &'static str = "LoongArch64";
    const PHYS_BITS: u32 = 48;
    const RIGHTS: Rights = Rights::PLAIN
        .with_execute_only(true)
        .with_soft(1)
        .with_memory(&[MemoryType::WriteCombining, MemoryType::Device]);
    refilled_tree!(page: 14, address: ADDRESS, link: WINDOW, present: V, special: SPECIAL);

    #[inline]
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        let mut raw = pfn.addr().0 | memory_bits(TYPES, attr) | bits_of(&BITS, attr);
        raw |= match attr.0 & (Attr::READ.0 | Attr::WRITE.0 | Attr::EXEC.0) {
            access if access & Attr::READ.0 != 0 => V | P,
            access if access == Attr::EXEC.0 => V | P | NR,
            _ => KEEPS,
        };
        if attr.has(Attr::WRITE | Attr::DIRTY) {
            raw |= D;
        }
        if attr.has(Attr::EXEC) { raw } else { raw | NX }
    }

    #[inline]
    fn attr(_: Level, raw: u64) -> Attr {
        let mut attr = attr_of(&BITS, raw) | memory_of(TYPES, raw & MAT);
        if raw & (V | NR) == V {
            attr = attr | Attr::READ;
        }
        if raw & NX == 0 { attr | Attr::EXEC } else { attr }
    }

    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let (set, clear) = match access {
            Access::Read => (V | USER, NR),
            Access::Write => (V | USER | D, 0),
            Access::Exec => (V | USER, NX),
        };
        raw & (set | clear) == set
    }

    #[inline]
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw & !(W | D)
    }
}
