//! 32-bit PowerPC: the tables that software keeps beside the hash table.
//!
//! No MMU walks these tables. The bits of an entry besides the frame are for software alone, and
//! lie where Linux has them on implementations with a hash table.
use super::attr::{Types, attr_of, bits_of, memory_bits, memory_of};
use super::{Access, Attr, Format, MemoryType, Rights, Slot32Be};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const PRESENT: u64 = 1;
/// The page was put into the hash table since it was flushed last.
const HASHPTE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// In an entry that is not present: it keeps its frame (`PROT_NONE`).
const KEEPS: u64 = 1 << 3;
/// The caller's.
const SOFT0: u64 = 1 << 4;
/// Not cached.
const NO_CACHE: u64 = 1 << 5;
/// Written through. Together with the other bit, which no CPU supports: guarded, too.
const WRITE_THROUGH: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const ACCESSED: u64 = 1 << 8;
const EXEC: u64 = 1 << 9;
const RW: u64 = 1 << 10;
const SPECIAL: u64 = 1 << 11;
const LOW: u64 = 0xfff;
const ADDR: u64 = 0xffff_f000;

const TYPES: &Types = &[
    (MemoryType::WriteBack, 0),
    (MemoryType::WriteThrough, WRITE_THROUGH),
    (MemoryType::WriteCombining, NO_CACHE),
    (MemoryType::Device, NO_CACHE | WRITE_THROUGH),
];

const ATTRIBUTES: [(Attr, u64); 8] = [
    (Attr::READ, PRESENT),
    (Attr::WRITE, RW),
    (Attr::EXEC, EXEC),
    (Attr::USER, USER),
    (Attr::ACCESSED, ACCESSED),
    (Attr::DIRTY, DIRTY),
    (Attr::SPECIAL, SPECIAL),
    (Attr::SOFT0, SOFT0),
];

/// PowerPC with a hash table (601, 604, 750, 74xx): two levels of 1,024 big-endian entries of 32
/// bits; the user has 3 GiB.
///
/// Frames lie below 4 GiB. The MMU has no permission to execute: [`Attr::EXEC`] is software's, and
/// every page that may be read may be executed. Nor are there global pages, as the kernel's
/// segments are the same in all spaces.
///
/// The refill of the hash table gives the memory type to the MMU: [`storage`](Self::storage).
#[derive(Clone, Copy, Debug, Default)]
pub struct Ppc32;

impl Ppc32 {
    /// Returns the storage attributes of a leaf, as they lie in bits 3 to 6 of the lower word of an
    /// entry of the hash table: W, I, M and G (PowerPC Operating Environment Architecture, "Storage
    /// Control Attributes"). M is set for memory that is cached, so that CPUs agree about it.
    #[inline]
    pub fn storage(raw: u64) -> u32 {
        const W: u32 = 1 << 6;
        const I: u32 = 1 << 5;
        const M: u32 = 1 << 4;
        const G: u32 = 1 << 3;
        match memory_of(TYPES, raw & (NO_CACHE | WRITE_THROUGH)).memory() {
            MemoryType::WriteBack => M,
            MemoryType::WriteThrough => W | M,
            MemoryType::WriteCombining => I,
            _ => I | G,
        }
    }
}

// SAFETY: 1. `link` sets no low bit but the lowest, and tables are aligned to more than the others.
// Entries above level 0 are links or empty. 2. the address bits hold the frame, which is below 4
// GiB, and `SPECIAL` says that it is special. 3. a link is present, and a leaf is present or has
// `KEEPS`. 4. and 7. the refill of the hash table looks at these bits and at no others. 5. the
// frame's number is in consecutive bits. 6. no MMU walks the tree; the hash table's entries are
// `tlb`'s.
unsafe impl Format for Ppc32 {
    type Slot = Slot32Be;
    const NAME: &'static str = "ppc32";
    const LAYOUT: Layout = Layout { levels: 2, table_shift: [12, 12, 0, 0, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pgd"];
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = [10, 10, 0, 0, 0];
    const USER_END: u64 = 3 << 30;
    const KERNEL_START: u64 = 3 << 30;
    const USER_ROOT_ENTRIES: usize = 768;
    const PHYS_BITS: u32 = 32;
    const KEPT: u64 = HASHPTE;
    const RIGHTS: Rights = Rights::PLAIN
        .without_refusing_execution()
        .without_global()
        .with_soft(1)
        .with_memory(&[MemoryType::WriteThrough, MemoryType::WriteCombining, MemoryType::Device]);

    #[inline]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 | PRESENT
    }

    #[inline]
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        (raw & LOW == PRESENT).then_some(PhysAddr(raw & ADDR))
    }

    #[inline]
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        let keeps = if attr.has(Attr::READ) { 0 } else { KEEPS };
        pfn.addr().0 | bits_of(&ATTRIBUTES, attr) | memory_bits(TYPES, attr) | keeps
    }

    #[inline]
    fn frame(_: Level, raw: u64) -> Pfn {
        PhysAddr(raw & ADDR).pfn()
    }

    #[inline]
    fn attr(_: Level, raw: u64) -> Attr {
        attr_of(&ATTRIBUTES, raw) | memory_of(TYPES, raw & (NO_CACHE | WRITE_THROUGH))
    }

    #[inline]
    fn is_present(_: Level, raw: u64) -> bool {
        raw & PRESENT != 0
    }

    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        match access {
            Access::Read | Access::Exec => raw & PRESENT != 0,
            Access::Write => raw & (PRESENT | RW) == PRESENT | RW,
        }
    }

    #[inline]
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw & !RW
    }

    #[inline]
    fn is_special(_: Level, raw: u64) -> bool {
        raw & SPECIAL != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Entry, Slot};
    use super::*;
    use crate::format::FormatExt;

    #[test]
    fn leaves_keep_frame_and_attributes() {
        for given in (0..256).map(Attr) {
            let raw = Ppc32::leaf(Level::PTE, Pfn(0xf_2345), given);
            assert!(raw < 1 << 32 && Ppc32::cleared(raw) == 0, "{raw:#x}");
            assert_eq!(Ppc32::frame(Level::PTE, raw), Pfn(0xf_2345));
            assert_eq!(Ppc32::attr(Level::PTE, raw), given.without(Attr::GLOBAL), "{given}");
            assert_eq!(Ppc32::is_present(Level::PTE, raw), given.has(Attr::READ));
            assert_eq!(Ppc32::is_special(Level::PTE, raw), given.has(Attr::SPECIAL));
            assert_eq!(
                Ppc32::allows(Level::PTE, raw, Access::Write),
                given.has(Attr::READ) && given.has(Attr::WRITE),
                "{given}"
            );
            assert_eq!(
                Ppc32::attr(Level::PTE, Ppc32::write_protected(Level::PTE, raw)),
                Ppc32::attr(Level::PTE, raw).without(Attr::WRITE)
            );
        }
        assert!(!Ppc32::is_none(Ppc32::leaf(Level::PTE, Pfn(0), Attr::default())), "a leaf is never none");
    }

    #[test]
    fn an_entry_that_only_says_that_it_was_hashed_is_none() {
        let hashed = Ppc32::leaf(Level::PTE, Pfn(7), Attr::READ) | HASHPTE;
        assert_eq!((Ppc32::cleared(hashed), Ppc32::frame(Level::PTE, hashed)), (HASHPTE, Pfn(7)));
        assert!(Ppc32::is_none(HASHPTE) && Ppc32::entry(Level::PTE, HASHPTE) == Entry::None);
        assert_eq!(Ppc32::entry(Level::PTE, hashed), Entry::Leaf);
    }

    #[test]
    fn the_root_maps_four_mebibytes_with_each_entry() {
        let link = Ppc32::link(Level(1), PhysAddr(0x7f_f000));
        assert_eq!(Ppc32::entry(Level(1), link), Entry::Link(PhysAddr(0x7f_f000)));
        assert_eq!(Ppc32::entry(Level(1), 0), Entry::None);
        assert_eq!((Ppc32::shift(Level(1)), Ppc32::entries(Level(1))), (22, 1024));
        assert_eq!(Ppc32::index(Level(1), 0xbfff_ffff), 767);
        assert_eq!(Ppc32::index(Level(0), 0x1234_5678), 0x345);
    }

    #[test]
    fn entries_in_memory_are_big_endian() {
        // SAFETY: an atomic of 0.
        let slot: Slot32Be = unsafe { core::mem::zeroed() };
        let bytes = |slot: &Slot32Be| {
            // SAFETY: the slot is four bytes, all of them initialised, and borrowed.
            unsafe { core::ptr::from_ref(slot).cast::<[u8; 4]>().read() }
        };
        assert!(slot.fill(0x1234_5678) && !slot.fill(1));
        assert_eq!((bytes(&slot), slot.load()), ([0x12, 0x34, 0x56, 0x78], 0x1234_5678));
        assert_eq!(slot.exchange(5, 6), Err(0x1234_5678));
        assert_eq!(slot.exchange(0x1234_5678, 0xfedc_ba98), Ok(()));
        assert_eq!(slot.swap(0x0102_0304), 0xfedc_ba98);
        assert_eq!(bytes(&slot), [1, 2, 3, 4]);
        slot.store(HASHPTE);
        assert_eq!(bytes(&slot), [0, 0, 0, 2]);
    }
}
