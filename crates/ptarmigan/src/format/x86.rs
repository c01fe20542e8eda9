//! x86-64 with four and five levels, and 32-bit x86 with PAE (Intel SDM volume 3, chapter 4).
use super::attr::{attr_of, bits_of};
use super::{Access, Attr, Format, MemoryType, Rights, Slot64};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

const P: u64 = 1;
const RW: u64 = 1 << 1;
const US: u64 = 1 << 2;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
/// In a present entry above level 0: a large page, not a link.
const PS: u64 = 1 << 7;
/// In a present entry: global. In one that is not: the entry keeps its frame (`PROT_NONE`).
const G: u64 = 1 << 8;
/// Ignored by the MMU: the frame is not counted.
const SOFT_SPECIAL: u64 = 1 << 9;
/// The MMU ignores bits 10 and 11 as well. They lie beside each other as the attributes do.
const SOFT: Attr = Attr::SPECIAL.with(Attr::SOFT0).with(Attr::SOFT1);
const SOFT_SHIFT: u32 = SOFT_SPECIAL.trailing_zeros() - Attr::SPECIAL.0.trailing_zeros();
/// What leaves of all four formats can have.
pub(super) const RIGHTS: Rights = Rights::PLAIN.with_soft(2).with_memory(&MemoryType::ALL);
/// PWT and PCD: the lower bits of the index in the PAT, which is the number of the memory type.
const PWT: u64 = 1 << 3;
const LOWER: Attr = Attr(Attr::MEMORY.0 & 3 << Attr::MEMORY.0.trailing_zeros());
const LOWER_SHIFT: u32 = LOWER.0.trailing_zeros() - PWT.trailing_zeros();
const UPPER: Attr = Attr::MEMORY.without(LOWER);
/// The upper bit of the index: in a large page, where a page has one of the frame, and in a page,
/// where a large one has `PS`.
const PAT_OF_LARGE: u64 = 1 << 12;
const PAT: u64 = 1 << 7;
const NX: u64 = 1 << 63;
const ADDR: u64 = 0x000f_ffff_ffff_f000;

/// Attributes and the bits that stand for them.
const ATTRIBUTES: [(Attr, u64); 5] =
    [(Attr::READ, P), (Attr::WRITE, RW), (Attr::USER, US), (Attr::ACCESSED, A), (Attr::DIRTY, D)];

/// The bits of a leaf of `level` for the memory type of `attr`. PWT and PCD are at the same place
/// at all levels.
#[inline]
pub(super) fn memory_bits(level: Level, attr: Attr) -> u64 {
    let upper = if attr.has(UPPER) { pat(level) } else { 0 };
    u64::from(attr.only(LOWER).0) >> LOWER_SHIFT | upper
}

/// The memory type of a leaf, as an attribute.
#[inline]
pub(super) fn memory_of(level: Level, raw: u64) -> Attr {
    let upper = if raw & pat(level) != 0 { UPPER } else { Attr::default() };
    Attr((raw as u32) << LOWER_SHIFT).only(LOWER) | upper
}

/// The upper bit of the index in the PAT, in a leaf of `level`.
#[inline]
const fn pat(level: Level) -> u64 {
    if level.0 > Level::PTE.0 { PAT_OF_LARGE } else { PAT }
}

impl X86_64 {
    /// The value of the register `IA32_PAT` (0x277) that memory types stand for, on every CPU, from
    /// index 0 on: WB, WC, UC-, UC, WB, WP, UC-, WT. It is the one of Linux. After a reset the
    /// register has WT at index 1 and UC at index 7: [`MemoryType::WriteCombining`] would be WT,
    /// and [`MemoryType::WriteThrough`] UC. A kernel writes it before it maps a page with another
    /// type than [`MemoryType::WriteBack`] (Intel SDM volume 3, "Page Attribute Table"). For all
    /// formats of x86; for [`Npt`](super::Npt) it is the register of the host.
    pub const PAT: u64 = 0x0407_0506_0007_0106;
}

#[cfg_attr(not(feature = "small"), inline)]
fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
    let mut raw = pfn.addr().0
        | memory_bits(level, attr)
        | bits_of(&ATTRIBUTES, attr)
        | u64::from(attr.only(SOFT).0) << SOFT_SHIFT;
    if attr.has(Attr::GLOBAL) || !attr.has(Attr::READ) {
        raw |= G;
    }
    if !attr.has(Attr::EXEC) {
        raw |= NX;
    }
    if level > Level::PTE { raw | PS } else { raw }
}

#[cfg_attr(not(feature = "small"), inline)]
fn attr(level: Level, raw: u64) -> Attr {
    let global = if raw & (P | G) == P | G { Attr::GLOBAL } else { Attr::default() };
    let exec = if raw & NX == 0 { Attr::EXEC } else { Attr::default() };
    attr_of(&ATTRIBUTES, raw)
        | Attr((raw >> SOFT_SHIFT) as u32).only(SOFT)
        | global
        | exec
        | memory_of(level, raw)
}

/// Above level 0 an entry is 0, a link, which is present and has no `PS`, or a large page, which
/// has
/// `PS` whether it is present or not. So the sign of the low byte tells a link.
#[cfg_attr(not(feature = "small"), inline)]
fn linked(raw: u64) -> Option<PhysAddr> {
    const { assert!(PS == 1 << (i8::BITS - 1)) };
    (raw as i8 > 0).then_some(PhysAddr(raw & ADDR))
}

/// Holds the common part of both formats.
macro_rules! x86_entries {
    () => {
        type Slot = Slot64;
        const PAGE_SHIFT: u32 = 12;
        const PHYS_BITS: u32 = 52;
        const RIGHTS: Rights = RIGHTS;

        #[cfg_attr(not(feature = "small"), inline)]
        fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
            linked(raw)
        }
        #[cfg_attr(not(feature = "small"), inline)]
        fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
            leaf(level, pfn, attr)
        }
        #[inline]
        fn frame(level: Level, raw: u64) -> Pfn {
            PhysAddr(raw & if level > Level::PTE { ADDR & !PAT_OF_LARGE } else { ADDR }).pfn()
        }
        #[cfg_attr(not(feature = "small"), inline)]
        fn attr(level: Level, raw: u64) -> Attr {
            attr(level, raw)
        }
        #[inline]
        fn is_present(_: Level, raw: u64) -> bool {
            raw & P != 0
        }
        #[inline]
        fn write_protected(_: Level, raw: u64) -> u64 {
            raw & !RW
        }
        #[inline]
        fn allows(_: Level, raw: u64, access: Access) -> bool {
            match access {
                Access::Read => raw & P != 0,
                Access::Write => raw & (P | RW) == P | RW,
                Access::Exec => raw & (P | NX) == P,
            }
        }
        #[inline]
        fn is_special(_: Level, raw: u64) -> bool {
            raw & SOFT_SPECIAL != 0
        }
    };
}

/// x86-64, four levels of 512 entries; the upper half of the root is the kernel's.
#[derive(Clone, Copy, Debug, Default)]
pub struct X86_64;

// SAFETY: 1. the address bits hold the argument of `link`; no leaf of level 0 is asked, and large
// pages have `PS`. 2. the same bits hold the frame, and bit 9 says that it is special. 3. a link is
// present, and a leaf has `P` or `G`. 4. and 7. SDM volume 3, section 4.6, with CR0.WP and EFER.NXE
// set and without SMAP or protection keys. 5. the frame's number is in consecutive bits. 6. an
// entry may be replaced at any time, before the flush (SDM volume 3, section 4.10.4.2).
unsafe impl Format for X86_64 {
    x86_entries!();
    const NAME: &'static str = "x86-64";
    const LAYOUT: Layout = Layout { levels: 4, table_shift: [12, 12, 12, 12, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pud", "pgd"];
    const USER_END: u64 = 1 << 47;
    const KERNEL_START: u64 = 0xffff_8000_0000_0000;
    const INDEX_BITS: [u8; MAX_LEVELS] = [9, 9, 9, 9, 0];
    const LEAF_LEVELS: u8 = 0b111;
    const USER_ROOT_ENTRIES: usize = 256;
    #[inline]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 | P | RW | US
    }
}

/// x86-64 with five levels: 57 bits of address, 64 PiB of them the user's (`CR4.LA57`).
#[derive(Clone, Copy, Debug, Default)]
pub struct X86_64La57;

// SAFETY: as for `X86_64`, whose bits these are.
unsafe impl Format for X86_64La57 {
    x86_entries!();
    const NAME: &'static str = "x86-64, five levels";
    const LAYOUT: Layout = Layout { levels: 5, table_shift: [12; MAX_LEVELS] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pud", "p4d", "pgd"];
    const USER_END: u64 = 1 << 56;
    const KERNEL_START: u64 = 0xff00_0000_0000_0000;
    const INDEX_BITS: [u8; MAX_LEVELS] = [9; MAX_LEVELS];
    const LEAF_LEVELS: u8 = 0b111;
    const USER_ROOT_ENTRIES: usize = 256;
    #[inline]
    fn link(level: Level, at: PhysAddr) -> u64 {
        X86_64::link(level, at)
    }
}

/// 32-bit x86 with PAE: a root of 4 entries in 32 bytes, which the MMU reads when the root is
/// loaded and then keeps in registers; the last of them is the kernel's.
#[derive(Clone, Copy, Debug, Default)]
pub struct X86Pae;

// SAFETY: as for `X86_64`, whose bits these are.
unsafe impl Format for X86Pae {
    x86_entries!();
    const NAME: &'static str = "x86 PAE";
    const LAYOUT: Layout = Layout { levels: 3, table_shift: [12, 12, 5, 0, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pgd"];
    const USER_END: u64 = 3 << 30;
    const KERNEL_START: u64 = 3 << 30;
    const INDEX_BITS: [u8; MAX_LEVELS] = [9, 9, 2, 0, 0];
    const LEAF_LEVELS: u8 = 0b11;
    const USER_ROOT_ENTRIES: usize = 3;
    const ROOT_IN_REGISTERS: bool = true;

    /// Entries of the root have no permission bits: those places are reserved.
    #[inline]
    fn link(level: Level, at: PhysAddr) -> u64 {
        if level.0 == 2 { at.0 | P } else { at.0 | P | RW | US }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Entry;
    use super::*;
    use crate::format::FormatExt;

    #[test]
    fn leaves_keep_frame_and_attributes() {
        for given in (0..256).map(Attr) {
            let raw = X86_64::leaf(Level::PTE, Pfn(0x12345), given);
            assert_eq!(X86_64::frame(Level::PTE, raw), Pfn(0x12345));
            let kept = if given.has(Attr::READ) { given } else { given.without(Attr::GLOBAL) };
            assert_eq!(X86_64::attr(Level::PTE, raw), kept, "{given}");
            assert_eq!(X86_64::is_present(Level::PTE, raw), given.has(Attr::READ));
            assert_ne!(raw, 0, "a leaf is never none");
        }
    }

    #[test]
    fn a_page_without_permissions_keeps_its_frame() {
        let raw = X86Pae::leaf(Level::PTE, Pfn(7), Attr::USER);
        assert!(!X86Pae::is_present(Level::PTE, raw));
        assert_eq!(X86Pae::frame(Level::PTE, raw), Pfn(7));
    }

    #[test]
    fn a_page_without_execute_permission_is_not_jumped_into() {
        let data = X86_64::leaf(Level::PTE, Pfn(7), Attr::USER | Attr::READ | Attr::WRITE);
        assert!(
            X86_64::allows(Level::PTE, data, Access::Read) && X86_64::allows(Level::PTE, data, Access::Write)
        );
        assert!(!X86_64::allows(Level::PTE, data, Access::Exec));
        assert!(X86_64::allows(
            Level::PTE,
            X86_64::leaf(Level::PTE, Pfn(7), Attr::USER | Attr::READ | Attr::EXEC),
            Access::Exec
        ));
    }

    #[test]
    fn a_large_page_is_no_link() {
        let large = PhysAddr(0x20_0000).0 | P | RW | US | PS;
        assert_eq!(X86_64::entry(Level(1), large), Entry::Leaf);
        assert_eq!(
            X86_64::entry(Level(1), X86_64::link(Level(1), PhysAddr(0x3000))),
            Entry::Link(PhysAddr(0x3000))
        );
        assert_eq!(X86_64::entry(Level(1), 0), Entry::None);
    }

    #[test]
    fn pae_tops_have_no_permission_bits() {
        assert_eq!(X86Pae::link(Level(2), PhysAddr(0x3000)), 0x3001);
    }
}
