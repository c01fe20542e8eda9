//! Itanium: three levels of 2,048 entries of 8 bytes, pages of 16 KiB.
//!
//! Leaves are in the format of translation insertion (Intel Itanium Software Developer's Manual
//! volume 2, 4.1.1.5), which software gives to `itc`. No MMU knows the tree: links are the
//! library's.
//!
//! | bits | | |
//! |---|---|---|
//! | 0 | p | present: without it the others are software's |
//! | 2–4 | ma | memory: 0 is write-back, 4 not cached, 6 written combined |
//! | 5, 6 | a, d | accessed, dirty: an access, a write faults while it is clear |
//! | 7, 8 | pl | 3: the user's; 0: the kernel's |
//! | 9–11 | ar | rights: 0 to read, 1 to execute too, 2 to write, 3 all |
//! | 12–49 | ppn | the address, in units of 4 KiB |
//! | 52 | ed | defers exceptions of speculative loads: clear |
//! | 53–63 | | software's |
use super::attr::{Types, attr_of, bits_of, memory_bits, memory_of};
use super::refilled::refilled_tree;
use super::{Access, Attr, Format, MemoryType, Rights, Slot64};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const P: u64 = 1;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
const USER: u64 = 3 << 7;
/// The values of ar that leaves have are made of two bits.
const EXECUTE: u64 = 1 << 9;
const WRITE: u64 = 1 << 10;
/// Software's: the frame is not counted by references.
const SPECIAL: u64 = 1 << 53;
/// Software's: an entry that is not present keeps its frame (`PROT_NONE`).
const KEEPS: u64 = 1 << 54;
/// Software's: the caller's, four bits.
const SOFT0: u64 = 1 << 55;
const LINK: u64 = 1 << 63;
const ADDRESS: u64 = ((1 << 50) - 1) & !0xfff;

const MA: u64 = 7 << 2;
const TYPES: &Types =
    &[(MemoryType::WriteBack, 0), (MemoryType::WriteCombining, 6 << 2), (MemoryType::Device, 4 << 2)];

const BITS: [(Attr, u64); 11] = [
    (Attr::READ, P),
    (Attr::WRITE, WRITE),
    (Attr::EXEC, EXECUTE),
    (Attr::USER, USER),
    (Attr::ACCESSED, A),
    (Attr::DIRTY, D),
    (Attr::SPECIAL, SPECIAL),
    (Attr::SOFT0, SOFT0),
    (Attr::SOFT1, SOFT0 << 1),
    (Attr::SOFT2, SOFT0 << 2),
    (Attr::SOFT3, SOFT0 << 3),
];

/// Itanium with pages of 16 KiB: one region, of which the tree translates 47 bits. All of its root
/// is the user's, so roots are made with [`NoConstruct`](crate::page::NoConstruct).
///
/// The number of the region, bits 61 to 63 of an address, is outside of the format: a kernel has a
/// tree for each region and takes these bits away before it asks. Rights are values of ar from 0 to
/// 3 with pl 0 or 3. Rights that differ by privilege (4 to 7) and levels 1 and 2 cannot be said,
/// nor can large pages. There are no global pages, as spaces share regions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ia64;

// SAFETY: 1. Bits 12 to 49 hold what `link` was given, and the others are `LINK`, which no leaf
// has. 2. The same bits hold the frame, which `write_protected` leaves alone; bit 53 is `SPECIAL`
// alone. 3. A link has `LINK`, a leaf p or `KEEPS`. 4. and 7. Itanium manual volume 2, tables
// 4-1 and 4-2, for privilege level 3, where software handles the faults of a and d. 5. The frame's
// number is in consecutive bits. 6. No MMU walks the tree: an entry may be replaced at any time,
// before the purge (`ptc`).
unsafe impl Format for Ia64 {
    type Slot = Slot64;
    const NAME: &'static str = "IA-64";
    const PHYS_BITS: u32 = 50;
    const RIGHTS: Rights = Rights::PLAIN
        .without_global()
        .with_soft(4)
        .with_memory(&[MemoryType::WriteCombining, MemoryType::Device]);
    refilled_tree!(page: 14, address: ADDRESS, link: LINK, present: P, special: SPECIAL);

    #[inline]
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        let keeps = if attr.has(Attr::READ) { 0 } else { KEEPS };
        pfn.addr().0 | bits_of(&BITS, attr) | memory_bits(TYPES, attr) | keeps
    }

    #[inline]
    fn attr(_: Level, raw: u64) -> Attr {
        attr_of(&BITS, raw) | memory_of(TYPES, raw & MA)
    }

    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let needed = match access {
            Access::Read => P | A | USER,
            Access::Write => P | A | USER | WRITE | D,
            Access::Exec => P | A | USER | EXECUTE,
        };
        raw & needed == needed
    }

    #[inline]
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw & !WRITE
    }
}
