//! Describes the second stage of translation: from a guest's physical addresses to the host's.
//!
//! These formats have [`Format::GUEST`]. A tree maps the whole physical space of a guest, so all of
//! its root is "the user's", and roots are made with [`NoConstruct`](crate::page::NoConstruct).
//! Every leaf is the user's, and none is global. Execution is allowed to the guest in whatever
//! mode.
use super::aarch64::{CONTIGUOUS, contiguous_bit};
use super::attr::{Types, attr_of, bits_of, memory_bits, memory_of};
use super::riscv::rights;
use super::{Access, Attr, Format, MemoryType, Rights, Slot64, Sv, X86_64};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};

/// Returns the attributes of a leaf that is given `attr`, whatever it says: it is the user's, and
/// not global.
#[inline]
fn guests(attr: Attr) -> Attr {
    (attr | Attr::USER).without(Attr::GLOBAL)
}

/// Defines the functions of a format that has the leaves of `$host` with the user's bit.
macro_rules! leaves_of {
    ($host:ty, $rights:expr) => {
        type Slot = Slot64;
        const PAGE_SHIFT: u32 = 12;
        const GUEST: bool = true;
        const RIGHTS: Rights = $rights;
        const PHYS_BITS: u32 = <$host>::PHYS_BITS;
        const LEAF_LEVELS: u8 = <$host>::LEAF_LEVELS;
        const LEVEL_NAMES: &'static [&'static str] = <$host>::LEVEL_NAMES;
        const GROUP_BITS: [u8; MAX_LEVELS] = <$host>::GROUP_BITS;

        #[inline]
        fn hinted(level: Level, raw: u64) -> u64 {
            <$host>::hinted(level, raw)
        }
        #[inline]
        fn is_hinted(level: Level, raw: u64) -> bool {
            <$host>::is_hinted(level, raw)
        }
        #[inline]
        fn unhinted(level: Level, index: usize, raw: u64) -> u64 {
            <$host>::unhinted(level, index, raw)
        }
        #[inline]
        fn link(level: Level, at: PhysAddr) -> u64 {
            <$host>::link(level, at)
        }
        #[inline]
        fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
            <$host>::linked(level, raw)
        }
        #[inline]
        fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
            <$host>::leaf(level, pfn, guests(attr))
        }
        #[inline]
        fn frame(level: Level, raw: u64) -> Pfn {
            <$host>::frame(level, raw)
        }
        #[inline]
        fn attr(level: Level, raw: u64) -> Attr {
            <$host>::attr(level, raw)
        }
        #[inline]
        fn is_present(level: Level, raw: u64) -> bool {
            <$host>::is_present(level, raw)
        }
        #[inline]
        fn allows(level: Level, raw: u64, access: Access) -> bool {
            <$host>::allows(level, raw, access)
        }
        #[inline]
        fn write_protected(level: Level, raw: u64) -> u64 {
            <$host>::write_protected(level, raw)
        }
        #[inline]
        fn is_special(level: Level, raw: u64) -> bool {
            <$host>::is_special(level, raw)
        }
    };
}

/// Nested tables of AMD: four levels, 48 bits of the guest's physical address (APM volume 2,
/// 15.25).
///
/// Entries are as in [`X86_64`]. Nested walks are user accesses, so every entry has `U/S`; the bit
/// G has no effect. Memory types are from the host's PAT ([`X86_64::PAT`]); the stricter one of
/// this type and the guest's own has effect (15.25.8).
#[derive(Clone, Copy, Debug, Default)]
pub struct Npt;

// SAFETY: as for `X86_64`, whose bits these are; `guests` leaves the frame and `SPECIAL` alone.
unsafe impl Format for Npt {
    leaves_of!(X86_64, X86_64::RIGHTS.users_only().without_global());
    const NAME: &'static str = "NPT";
    const LAYOUT: Layout = X86_64::LAYOUT;
    const INDEX_BITS: [u8; MAX_LEVELS] = X86_64::INDEX_BITS;
    const USER_END: u64 = 1 << 48;
    const KERNEL_START: u64 = u64::MAX << 48;
    const USER_ROOT_ENTRIES: usize = 512;
}

/// G-stage translation of RISC-V with `LEVELS` levels: [`Sv39x4`] or [`Sv48x4`] (privileged
/// specification, "Two-Stage Address Translation").
///
/// Entries are as in [`Sv`]; roots have four times as many, in 16 KiB. Leaves have U, as the walker
/// demands, and no G, which it ignores. With `PBMT` pages have memory types (Svpbmt,
/// `menvcfg.PBMTE`), which the guest's own override. With `NAPOT` there are groups (Svnapot).
#[derive(Clone, Copy, Debug, Default)]
pub struct SvX4<const LEVELS: u8, const PBMT: bool = false, const NAPOT: bool = false>;

/// G-stage of RISC-V with three levels: 41 bits of the guest's physical address.
pub type Sv39x4 = SvX4<3>;
/// G-stage of RISC-V with four levels: 50 bits of the guest's physical address.
pub type Sv48x4 = SvX4<4>;
/// As [`Sv39x4`], with memory types (Svpbmt).
pub type Sv39x4Pbmt = SvX4<3, true>;
/// As [`Sv48x4`], with memory types (Svpbmt).
pub type Sv48x4Pbmt = SvX4<4, true>;
/// As [`Sv39x4Pbmt`], with groups (Svnapot).
pub type Sv39x4Napot = SvX4<3, true, true>;
/// As [`Sv48x4Pbmt`], with groups (Svnapot).
pub type Sv48x4Napot = SvX4<4, true, true>;

// SAFETY: as for `Sv`, whose bits these are; `guests` leaves the frame and `SPECIAL` alone.
unsafe impl<const LEVELS: u8, const PBMT: bool, const NAPOT: bool> Format for SvX4<LEVELS, PBMT, NAPOT> {
    leaves_of!(Sv<LEVELS, PBMT, NAPOT>, rights(PBMT).users_only().without_global());
    const NAME: &'static str = match (LEVELS, PBMT, NAPOT) {
        (3, false, false) => "Sv39x4",
        (4, false, false) => "Sv48x4",
        (3, true, false) => "Sv39x4 with Svpbmt",
        (4, true, false) => "Sv48x4 with Svpbmt",
        (3, false, true) => "Sv39x4 with Svnapot",
        (4, false, true) => "Sv48x4 with Svnapot",
        (3, true, true) => "Sv39x4 with Svpbmt and Svnapot",
        (4, true, true) => "Sv48x4 with Svpbmt and Svnapot",
        _ => panic!("the G-stage has three or four levels"),
    };
    const LAYOUT: Layout = match LEVELS {
        3 => Layout { levels: 3, table_shift: [12, 12, 14, 0, 0] },
        _ => Layout { levels: 4, table_shift: [12, 12, 12, 14, 0] },
    };
    const INDEX_BITS: [u8; MAX_LEVELS] = if LEVELS == 3 { [9, 9, 11, 0, 0] } else { [9, 9, 9, 11, 0] };
    const USER_END: u64 = 1 << (9 * LEVELS as u32 + 14);
    const KERNEL_START: u64 = u64::MAX << (9 * LEVELS as u32 + 14);
    const USER_ROOT_ENTRIES: usize = 2048;
}

/// Bits of EPT entries (Intel SDM volume 3, 29.3.2).
mod ept {
    pub(super) const R: u64 = 1;
    pub(super) const W: u64 = 1 << 1;
    pub(super) const X: u64 = 1 << 2;
    /// The memory type, and the bit that has the guest's own ignored.
    pub(super) const TYPE: u64 = 0xf << 3;
    pub(super) const IGNORE_PAT: u64 = 1 << 6;
    pub(super) const PS: u64 = 1 << 7;
    pub(super) const A: u64 = 1 << 8;
    pub(super) const D: u64 = 1 << 9;
    /// Software's: the frame is not counted by references.
    pub(super) const SPECIAL: u64 = 1 << 52;
    /// Software's: the caller's.
    pub(super) const SOFT0: u64 = 1 << 56;
    pub(super) const SOFT1: u64 = 1 << 11;
    /// Software's: an entry that is not present keeps its frame.
    pub(super) const KEEPS: u64 = 1 << 53;
    /// Software's: W and X that the MMU is not to see lie this much higher.
    pub(super) const HIDDEN: u32 = 53;
    pub(super) const ADDRESS: u64 = ((1 << 52) - 1) & !0xfff;
    /// All three permissions, and the bit that tells a large page.
    pub(super) const KIND: u64 = R | W | X | PS;
}

const EPT_TYPES: &Types = &[
    (MemoryType::WriteBack, 6 << 3),
    (MemoryType::WriteThrough, 4 << 3),
    (MemoryType::WriteCombining, 1 << 3),
    (MemoryType::Uncached, 0),
    (MemoryType::Device, ept::IGNORE_PAT),
];

const EPT_NOTED: [(Attr, u64); 5] = [
    (Attr::ACCESSED, ept::A),
    (Attr::DIRTY, ept::D),
    (Attr::SPECIAL, ept::SPECIAL),
    (Attr::SOFT0, ept::SOFT0),
    (Attr::SOFT1, ept::SOFT1),
];

/// Extended page tables of Intel: four levels, 48 bits of the guest's physical address (SDM volume
/// 3, 29.3), with accessed and dirty bits (bit 6 of the EPTP).
///
/// Bit 63, which suppresses `#VE`, is clear in every entry, the empty one among them. The control
/// "EPT-violation #VE" must be 0, as every violation would be convertible otherwise.
///
/// A page for execution alone needs a CPU that says so (bit 0 of `IA32_VMX_EPT_VPID_CAP`).
///
/// A memory type is combined with the guest's own, as an MTRR would be (29.3.7): a guest may have
/// [`MemoryType::Uncached`] memory written combined. [`MemoryType::Device`] is the same type with
/// the bit that has the guest's own ignored. There is no execution that depends on the guest's
/// mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ept;

// SAFETY: 1. Bits 12 to 51 hold what `link` was given; a link has R, W and X, and large pages have
// `PS`. 2. The same bits hold the frame, which `write_protected` leaves alone; bit 52 is `SPECIAL`
// alone. 3. A link has R, a leaf R, X or `KEEPS`. 4. and 7. SDM volume 3, 29.3.3, without
// mode-based control of execution. An entry without R has no W. 5. The frame's number is
// in consecutive bits. 6. An entry may be replaced at any time, before the `INVEPT`.
unsafe impl Format for Ept {
    type Slot = Slot64;
    const NAME: &'static str = "EPT";
    const LAYOUT: Layout = Layout { levels: 4, table_shift: [12, 12, 12, 12, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pud", "pgd"];
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = [9, 9, 9, 9, 0];
    const USER_END: u64 = 1 << 48;
    const KERNEL_START: u64 = u64::MAX << 48;
    const USER_ROOT_ENTRIES: usize = 512;
    const GUEST: bool = true;
    const PHYS_BITS: u32 = 52;
    const LEAF_LEVELS: u8 = 0b111;
    const RIGHTS: Rights = Rights::PLAIN
        .with_execute_only(false)
        .users_only()
        .without_global()
        .with_soft(2)
        .with_memory(&MemoryType::ALL);

    #[inline]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 | ept::R | ept::W | ept::X
    }

    #[inline]
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        (raw & ept::KIND == ept::KIND & !ept::PS).then_some(PhysAddr(raw & ept::ADDRESS))
    }

    #[inline]
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        let rights = bits_of(&[(Attr::READ, ept::R), (Attr::WRITE, ept::W), (Attr::EXEC, ept::X)], attr);
        // W without R is a misconfiguration.
        let rights = match rights & ept::R != 0 || rights == ept::X {
            true => rights,
            false => rights << ept::HIDDEN | ept::KEEPS,
        };
        let noted = bits_of(&EPT_NOTED, attr);
        let raw = pfn.addr().0 | rights | noted | memory_bits(EPT_TYPES, attr);
        if level > Level::PTE { raw | ept::PS } else { raw }
    }

    #[inline]
    fn frame(_: Level, raw: u64) -> Pfn {
        PhysAddr(raw & ept::ADDRESS).pfn()
    }

    #[inline]
    fn attr(_: Level, raw: u64) -> Attr {
        let rights = raw | raw >> ept::HIDDEN & (ept::W | ept::X);
        let table = [(Attr::READ, ept::R), (Attr::WRITE, ept::W), (Attr::EXEC, ept::X)];
        let noted = attr_of(&EPT_NOTED, raw) | memory_of(EPT_TYPES, raw & ept::TYPE);
        attr_of(&table, rights) | noted | Attr::USER
    }

    #[inline]
    fn is_present(_: Level, raw: u64) -> bool {
        raw & (ept::R | ept::X) != 0
    }

    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let needed = match access {
            Access::Read => ept::R,
            Access::Write => ept::R | ept::W,
            Access::Exec => ept::X,
        };
        raw & needed == needed
    }

    #[inline]
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw & !(ept::W | ept::W << ept::HIDDEN)
    }

    #[inline]
    fn is_special(_: Level, raw: u64) -> bool {
        raw & ept::SPECIAL != 0
    }
}

/// Bits of AArch64's second stage (Arm ARM, D8.3 "VMSAv8-64 descriptors", stage 2).
mod arm {
    pub(super) const VALID: u64 = 1;
    /// A link above level 0, a page at level 0.
    pub(super) const TABLE: u64 = 1 << 1;
    /// MemAttr: the outer and the inner attributes of normal memory, or 0 and the kind of device.
    pub(super) const TYPE: u64 = 0xf << 2;
    /// S2AP: may be read, may be written.
    pub(super) const READ: u64 = 1 << 6;
    pub(super) const WRITE: u64 = 1 << 7;
    pub(super) const INNER: u64 = 3 << 8;
    pub(super) const ACCESSED: u64 = 1 << 10;
    /// DBM: may be written. With `FEAT_HAFDBS` the MMU sets `WRITE` then.
    pub(super) const MAY_WRITE: u64 = 1 << 51;
    pub(super) const XN: u64 = 1 << 54;
    /// Software's, as in stage 1.
    pub(super) const DIRTY: u64 = 1 << 55;
    pub(super) const SPECIAL: u64 = 1 << 56;
    pub(super) const SOFT: u64 = 1 << 57;
    pub(super) const KEEPS: u64 = 1 << 58;
    pub(super) const ADDRESS: u64 = ((1 << 48) - 1) & !0xfff;
}

const ARM_TYPES: &Types = &[
    (MemoryType::WriteBack, 0b1111 << 2 | arm::INNER),
    (MemoryType::WriteThrough, 0b1010 << 2 | arm::INNER),
    (MemoryType::WriteCombining, 0b0101 << 2 | arm::INNER),
    // Device-nGnRE.
    (MemoryType::Device, 0b0001 << 2),
];

const ARM_NOTED: [(Attr, u64); 5] = [
    (Attr::WRITE, arm::MAY_WRITE),
    (Attr::ACCESSED, arm::ACCESSED),
    (Attr::DIRTY, arm::DIRTY),
    (Attr::SPECIAL, arm::SPECIAL),
    (Attr::SOFT0, arm::SOFT),
];

/// AArch64's second stage with pages of 4 KiB: 40 bits of intermediate physical address in three
/// levels; the root is two tables side by side, 8 KiB (Arm ARM, D8.2 "Concatenated translation
/// tables").
///
/// The stricter of a memory type and of the guest's own has effect: `HCR_EL2.FWB` must be 0. There
/// is no page that may be written and not read, and no execution that depends on the guest's
/// exception level (`FEAT_XNX`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Aarch64Stage2;

/// Written through, as software or the MMU notes it.
#[inline]
fn is_dirty(raw: u64) -> bool {
    let written = arm::MAY_WRITE | arm::WRITE;
    raw & arm::DIRTY != 0 || raw & written == written
}

// SAFETY: 1. Bits 12 to 47 hold what `link` was given; bits 0 and 1 are set in links, and bit 1 is
// clear in blocks. 2. The same bits hold the frame, which `write_protected` leaves alone; bit 56 is
// `SPECIAL` alone. 3. A link is valid, a leaf is valid or has `KEEPS`. 4. and 7. Arm ARM D8.4,
// "Stage 2 permissions", with `VTCR_EL2.HA` and `HD` clear or set. 5. The frame's number is in
// consecutive bits. 6. Arm ARM, "Using break-before-make when updating translation table entries".
// 8. Bit 52 has no other use, and only `hinted` sets it.
unsafe impl Format for Aarch64Stage2 {
    type Slot = Slot64;
    const NAME: &'static str = "AArch64 4K stage 2";
    const LAYOUT: Layout = Layout { levels: 3, table_shift: [12, 12, 13, 0, 0] };
    const LEVEL_NAMES: &'static [&'static str] = &["pte", "pmd", "pgd"];
    const PAGE_SHIFT: u32 = 12;
    const INDEX_BITS: [u8; MAX_LEVELS] = [9, 9, 10, 0, 0];
    const USER_END: u64 = 1 << 40;
    const KERNEL_START: u64 = u64::MAX << 40;
    const USER_ROOT_ENTRIES: usize = 1024;
    const GUEST: bool = true;
    const PHYS_BITS: u32 = 48;
    const LEAF_LEVELS: u8 = 0b111;
    const GROUP_BITS: [u8; MAX_LEVELS] = [4, 4, 4, 0, 0];
    const EVER_BREAKS: bool = true;
    const RIGHTS: Rights = Rights::PLAIN
        .with_execute_only(false)
        .users_only()
        .without_global()
        .with_soft(1)
        .with_memory(&[MemoryType::WriteThrough, MemoryType::WriteCombining, MemoryType::Device]);

    #[inline]
    fn link(_: Level, at: PhysAddr) -> u64 {
        at.0 | arm::VALID | arm::TABLE
    }

    #[inline]
    fn linked(_: Level, raw: u64) -> Option<PhysAddr> {
        let link = arm::VALID | arm::TABLE;
        (raw & link == link).then_some(PhysAddr(raw & arm::ADDRESS))
    }

    #[inline]
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        let mut raw = pfn.addr().0 | memory_bits(ARM_TYPES, attr) | bits_of(&ARM_NOTED, attr);
        let access = attr.0 & (Attr::READ.0 | Attr::WRITE.0 | Attr::EXEC.0);
        raw |= match attr.has(Attr::READ) || access == Attr::EXEC.0 {
            true if level == Level::PTE => arm::VALID | arm::TABLE,
            true => arm::VALID,
            false => arm::KEEPS,
        };
        if attr.has(Attr::READ) {
            raw |= arm::READ;
        }
        // A page that may be written is read-only for the MMU until it is dirty.
        if attr.has(Attr::READ | Attr::WRITE | Attr::DIRTY) {
            raw |= arm::WRITE;
        }
        if attr.has(Attr::EXEC) { raw } else { raw | arm::XN }
    }

    #[inline]
    fn frame(_: Level, raw: u64) -> Pfn {
        PhysAddr(raw & arm::ADDRESS).pfn()
    }

    #[inline]
    fn attr(_: Level, raw: u64) -> Attr {
        let memory = memory_of(ARM_TYPES, raw & (arm::TYPE | arm::INNER));
        let mut attr = attr_of(&ARM_NOTED, raw) | memory | Attr::USER;
        for (bit, has) in [
            (Attr::READ, raw & (arm::VALID | arm::READ) == arm::VALID | arm::READ),
            (Attr::EXEC, raw & arm::XN == 0),
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
        raw & arm::VALID != 0
    }

    #[inline]
    fn allows(_: Level, raw: u64, access: Access) -> bool {
        let used = arm::VALID | arm::ACCESSED;
        let (set, clear) = match access {
            Access::Read => (used | arm::READ, 0),
            Access::Write => (used | arm::READ | arm::WRITE, 0),
            Access::Exec => (used, arm::XN),
        };
        raw & (set | clear) == set
    }

    /// Without the permission to write. The MMU may have noted that it is dirty in that very bit.
    #[inline]
    fn write_protected(_: Level, raw: u64) -> u64 {
        let dirty = if is_dirty(raw) { arm::DIRTY } else { 0 };
        raw & !(arm::MAY_WRITE | arm::WRITE) | dirty
    }

    #[inline]
    fn is_special(_: Level, raw: u64) -> bool {
        raw & arm::SPECIAL != 0
    }

    contiguous_bit!();

    /// Another address, memory type, shareability or size, and the hint.
    #[inline]
    fn needs_break(_: Level, old: u64, new: u64) -> bool {
        let what = arm::ADDRESS | arm::TYPE | arm::INNER | arm::TABLE | CONTIGUOUS;
        old & new & arm::VALID != 0 && (old ^ new) & what != 0
    }
}
