//! SPARC with 64 bits: three levels of 1,024 big-endian entries of 8 bytes, pages of 8 KiB.
//!
//! Leaves are translation table entries of sun4v (UltraSPARC Architecture 2007, "TSB Translation
//! Table Entry"), which software copies to the TLB. No MMU knows the tree: links are the library's.
//!
//! | bits | | |
//! |---|---|---|
//! | 63 | V | valid |
//! | 62 | NFO | for loads that do not fault: leaves leave it clear, links have it without V |
//! | 56–61 | soft2 | software's |
//! | 13–55 | | the address |
//! | 9–12 | CV CP E IE | CP and CV: cached memory; E: accesses have side effects |
//! | 8 | P | the kernel's |
//! | 7 | EP | may be executed |
//! | 6 | W | the MMU lets writes through |
//! | 0–3 | | size: 0 for 8 KiB |
use super::attr::{Types, attr_of, bits_of, memory_bits, memory_of};
use super::refilled::refilled_tree;
use super::{Access, Attr, Format, MemoryType, Rights, Slot64Be};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const VALID: u64 = 1 << 63;
/// NFO without V.
const LINK: u64 = 1 << 62;
/// Software's: written to.
const MODIFIED: u64 = 1 << 61;
/// Software's: used.
const ACCESSED: u64 = 1 << 60;
/// Software's: an entry that is not valid keeps its frame (`PROT_NONE`).
const KEEPS: u64 = 1 << 59;
/// Software's: may be written, once it is noted as modified.
const MAY_WRITE: u64 = 1 << 58;
/// Software's: the frame is not counted by references.
const SPECIAL: u64 = 1 << 57;
/// Software's: the caller's.
const SOFT: u64 = 1 << 56;
/// CP, CV and E.
const TYPE: u64 = 7 << 9;
const TYPES: &Types =
    &[(MemoryType::WriteBack, 3 << 9), (MemoryType::WriteCombining, 0), (MemoryType::Device, 1 << 11)];
const PRIVILEGED: u64 = 1 << 8;
const EXECUTE: u64 = 1 << 7;
const WRITE: u64 = 1 << 6;
const ADDRESS: u64 = ((1 << 56) - 1) & !0x1fff;

const BITS: [(Attr, u64); 7] = [
    (Attr::READ, VALID),
    (Attr::WRITE, MAY_WRITE),
    (Attr::EXEC, EXECUTE),
    (Attr::ACCESSED, ACCESSED),
    (Attr::DIRTY, MODIFIED),
    (Attr::SPECIAL, SPECIAL),
    (Attr::SOFT0, SOFT),
];

/// SPARC with 64 bits (sun4v), pages of 8 KiB and 43 bits of address. All of the root is the
/// user's, so roots are made with [`NoConstruct`](crate::page::NoConstruct): the kernel has context
/// 0.
///
/// It has no large pages, and no page for execution alone. There are no global pages. No MMU notes
/// uses: [`Attr::ACCESSED`] is software's. [`Attr::DIRTY`] is noted by the fault of the first
/// write. Addresses above the hole of 64-bit SPARC are not translated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sparc64;

// SAFETY: 1. Bits 13 to 55 hold what `link` was given, and the others are `LINK`, which no leaf
// has. 2. The same bits hold the frame, which `write_protected` leaves alone; bit 57 is `SPECIAL`
// alone. 3. A link has `LINK`, a leaf V or `KEEPS`. 4. and 7. UltraSPARC Architecture 2007,
// as above, for nonprivileged accesses; W is set in entries with `MAY_WRITE` and `MODIFIED` alone.
// 5. The frame's number is in consecutive bits. 6. No MMU walks the tree: an entry may be replaced
// at any time, before the TLBs are flushed.
unsafe impl Format for Sparc64 {
    type Slot = Slot64Be;
    const NAME: &'static str = "sparc64";
    const PHYS_BITS: u32 = 56;
    const RIGHTS: Rights = Rights::PLAIN
        .without_global()
        .with_soft(1)
        .with_memory(&[MemoryType::WriteCombining, MemoryType::Device]);
    refilled_tree!(page: 13, address: ADDRESS, link: LINK, present: VALID, special: SPECIAL);

    #[inline]
    fn leaf(_: Level, pfn: Pfn, attr: Attr) -> u64 {
        let mut raw = pfn.addr().0 | memory_bits(TYPES, attr) | bits_of(&BITS, attr);
        if !attr.has(Attr::READ) {
            raw |= KEEPS;
        }
        if !attr.has(Attr::USER) {
            raw |= PRIVILEGED;
        }
        if attr.has(Attr::WRITE | Attr::DIRTY) { raw | WRITE } else { raw }
    }

    #[inline]
    fn attr(_: Level, raw: u64) -> Attr {
        let attr = attr_of(&BITS, raw) | memory_of(TYPES, raw & TYPE);
        if raw & PRIVILEGED == 0 { attr | Attr::USER } else { attr }
    }

    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let set = match access {
            Access::Read => VALID,
            Access::Write => VALID | WRITE,
            Access::Exec => VALID | EXECUTE,
        };
        raw & (set | PRIVILEGED) == set
    }

    #[inline]
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw & !(MAY_WRITE | WRITE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Entry, Slot};
    use super::*;
    use crate::format::FormatExt;

    #[test]
    fn entries_in_memory_are_big_endian() {
        // SAFETY: atomics of 0.
        let slot: Slot64Be = unsafe { core::mem::zeroed() };
        let bytes = || {
            // SAFETY: the slot is eight bytes, all of them initialised, and borrowed.
            unsafe { core::ptr::from_ref(&slot).cast::<[u8; 8]>().read() }
        };
        assert!(slot.fill(0x0123_4567_89ab_cdef) && !slot.fill(1));
        assert_eq!(
            (bytes(), slot.load()),
            ([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef], 0x0123_4567_89ab_cdef)
        );
        assert_eq!(slot.exchange(5, 6), Err(0x0123_4567_89ab_cdef));
        assert_eq!(slot.exchange(0x0123_4567_89ab_cdef, VALID), Ok(()));
        assert_eq!((bytes(), slot.swap(3)), ([0x80, 0, 0, 0, 0, 0, 0, 0], VALID));
        slot.store(LINK | 0x2000);
        assert_eq!(bytes(), [0x40, 0, 0, 0, 0, 0, 0x20, 0]);
    }

    #[test]
    fn a_leaf_is_no_link_whatever_its_attributes_and_frame() {
        for attr in (0..256).map(Attr) {
            for pfn in [0, 2, 0xffff_fffe] {
                let raw = Sparc64::leaf(Level::PTE, Pfn(pfn), attr);
                assert_eq!(Sparc64::entry(Level(1), raw), Entry::Leaf, "{raw:#x}");
            }
        }
        assert_eq!(Sparc64::entry(Level(1), Sparc64::link(Level(1), PhysAddr(0))), Entry::Link(PhysAddr(0)));
    }
}
