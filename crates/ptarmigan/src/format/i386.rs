//! 32-bit x86 without PAE (Intel SDM volume 3, section 4.3).
use super::attr::{attr_of, bits_of};
use super::x86::{memory_bits, memory_of};
use super::{Access, Attr, Format, MemoryType, Rights, Slot32Le};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const P: u64 = 1;
const RW: u64 = 1 << 1;
const US: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// In a present entry above level 0: a large page, not a link.
const PS: u64 = 1 << 7;
/// In a present entry: global. In one that is not: the entry keeps its frame (`PROT_NONE`).
const G: u64 = 1 << 8;
/// Ignored by the MMU: the frame is not counted.
const SPECIAL: u64 = 1 << 9;
/// Ignored by the MMU: the caller's.
const SOFT: u64 = 1 << 10;
/// Ignored by the MMU, which has no permission to execute.
const EXEC: u64 = 1 << 11;
const ADDR: u64 = 0xffff_f000;
/// Of a large page, below 4 GiB: bits 13 to 21 would be those above 32 (PSE-36), and bit 12 belongs
/// to the memory type.
const LARGE_ADDR: u64 = 0xffc0_0000;

const ATTRIBUTES: [(Attr, u64); 8] = [
    (Attr::READ, P),
    (Attr::WRITE, RW),
    (Attr::USER, US),
    (Attr::ACCESSED, ACCESSED),
    (Attr::DIRTY, DIRTY),
    (Attr::SPECIAL, SPECIAL),
    (Attr::EXEC, EXEC),
    (Attr::SOFT0, SOFT),
];

/// 32-bit x86 without PAE: two levels of 1,024 entries of 32 bits; the user has 3 GiB.
///
/// Frames lie below 4 GiB. The MMU has no permission to execute: [`Attr::EXEC`] is software's, and
/// every page that may be read may be executed.
#[derive(Clone, Copy, Debug, Default)]
pub struct I386;

// SAFETY: 1. the address bits hold the argument of `link`; no leaf of level 0 is asked, and large
// pages have `PS`. 2. the same bits hold the frame, which is below 4 GiB, and `SPECIAL` says that
// it is special. 3. a link is present, and a leaf has `P` or `G`. 4. and 7. SDM volume 3, section
// 4.6, with CR0.WP set. 5. the frame's number is in consecutive bits. 6. as for `X86_64`.
unsafe impl Format for I386 {
    type Slot = Slot32Le;
    const NAME: &'static str = "i386";
    const LAYOUT: Layout = Layout { levels: 2, table_shift: [12, 12, 0, 0, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pgd"];
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = [10, 10, 0, 0, 0];
    const USER_END: u64 = 3 << 30;
    const KERNEL_START: u64 = 3 << 30;
    const USER_ROOT_ENTRIES: usize = 768;
    const PHYS_BITS: u32 = 32;
    const LEAF_LEVELS: u8 = 0b11;
    const RIGHTS: Rights =
        Rights::PLAIN.without_refusing_execution().with_soft(1).with_memory(&MemoryType::ALL);

    #[inline]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 | P | RW | US
    }

    #[inline]
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        (raw & (P | PS) == P).then_some(PhysAddr(raw & ADDR))
    }

    #[inline]
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        let mut raw = pfn.addr().0 | bits_of(&ATTRIBUTES, attr) | memory_bits(level, attr);
        // Global, or not present and yet there.
        if attr.has(Attr::GLOBAL) || !attr.has(Attr::READ) {
            raw |= G;
        }
        if level > Level::PTE { raw | PS } else { raw }
    }

    #[inline]
    fn frame(level: Level, raw: u64) -> Pfn {
        PhysAddr(raw & if level > Level::PTE { LARGE_ADDR } else { ADDR }).pfn()
    }

    #[inline]
    fn attr(level: Level, raw: u64) -> Attr {
        let attr = attr_of(&ATTRIBUTES, raw) | memory_of(level, raw);
        if raw & (P | G) == P | G { attr | Attr::GLOBAL } else { attr }
    }

    #[inline]
    fn is_present(_: Level, raw: u64) -> bool {
        raw & P != 0
    }

    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        match access {
            Access::Read | Access::Exec => raw & P != 0,
            Access::Write => raw & (P | RW) == P | RW,
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
    use super::super::Entry;
    use super::*;
    use crate::format::FormatExt;

    #[test]
    fn leaves_keep_frame_and_attributes() {
        for given in (0..256).map(Attr) {
            let raw = I386::leaf(Level::PTE, Pfn(0xf_2345), given);
            assert!(raw < 1 << 32 && raw != 0, "{raw:#x}");
            assert_eq!(I386::frame(Level::PTE, raw), Pfn(0xf_2345));
            let kept = if given.has(Attr::READ) { given } else { given.without(Attr::GLOBAL) };
            assert_eq!(I386::attr(Level::PTE, raw), kept, "{given}");
            assert_eq!(I386::is_present(Level::PTE, raw), given.has(Attr::READ));
            assert_eq!(I386::is_special(Level::PTE, raw), given.has(Attr::SPECIAL));
            assert!(!I386::allows(Level::PTE, I386::write_protected(Level::PTE, raw), Access::Write));
        }
    }

    #[test]
    fn a_large_page_is_no_link() {
        let link = I386::link(Level(1), PhysAddr(0x3000));
        assert_eq!(I386::entry(Level(1), link), Entry::Link(PhysAddr(0x3000)));
        assert_eq!(I386::entry(Level(1), 0x40_0000 | P | RW | US | PS), Entry::Leaf);
        assert_eq!(I386::entry(Level(1), 0), Entry::None);
    }
}
