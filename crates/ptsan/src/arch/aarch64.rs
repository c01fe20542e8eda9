//! AArch64, granules of 4, 16 and 64 KiB, stages 1 and 2 (Arm ARM, D8 "The AArch64 Virtual Memory
//! System Architecture").
//!
//! Levels count from the leaves here: level 0 is the manual's level 3. Output addresses have 48
//! bits, or 52 with the 64 KiB granule. The dirty state is set by hardware if
//! [`crate::Config::accessed_dirty`] says so. Hardware that sets the access flag is not modelled.
use super::format::{
    Arch, ByGuestAddress, Canonical, Contiguous, Entry, HardwareBits, Level, MemoryType, SecondStage,
    StoreOrdering, StructureScope,
};
use super::perms::Perms;

const VALID: u64 = 1 << 0;
/// A table, or a page at the last level; clear: a block.
const TABLE_OR_PAGE: u64 = 1 << 1;
const ACCESS_FLAG: u64 = 1 << 10;
/// AP[2] of stage 1.
const READ_ONLY: u64 = 1 << 7;
/// DBM.
const DIRTY_MODIFIER: u64 = 1 << 51;
/// The entry belongs to a run of entries that hardware may cache as one.
const CONTIGUOUS: u64 = 1 << 52;
/// Distinguishes a block from pages with the same content while one replaces the other (FEAT_BBM).
const BLOCK_NT: u64 = 1 << 16;

/// The levels as the manual numbers them, for every granule: the last is 3.
const NAMES: [&str; 4] = ["Arm level 3 (leaf)", "Arm level 2", "Arm level 1", "Arm level 0"];

/// The smallest page, and the size of a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granule {
    /// 4 KiB.
    K4,
    /// 16 KiB.
    K16,
    /// 64 KiB.
    K64,
}

impl Granule {
    const fn shift(self) -> u8 {
        match self {
            Self::K4 => 12,
            Self::K16 => 14,
            Self::K64 => 16,
        }
    }

    /// Returns the number of index bits of a whole table of 8-byte entries.
    const fn index_bits(self) -> u8 {
        self.shift() - 3
    }

    /// Returns the widest input address. Only the largest granule goes beyond 48 bits (FEAT_LVA;
    /// FEAT_LPA2 is not modelled).
    const fn most_bits(self) -> u8 {
        match self {
            Self::K4 | Self::K16 => 48,
            Self::K64 => 52,
        }
    }

    const fn least_bits(self) -> u8 {
        match self {
            Self::K4 | Self::K16 => 16,
            Self::K64 => 17,
        }
    }
}

impl Arch {
    /// Describes AArch64 stage 1 with 4 KiB pages and `va_bits` (16 to 48) bits of virtual address,
    /// as `TTBR0` translates it. See [`Arch::upper`] for `TTBR1`.
    ///
    /// An entry whose access flag is clear faults and is not cached. Invalidation by address
    /// (`TLBI VAE1`) drops the walk-cache entries for that address. Invalidation of the last level
    /// only (`VALE1`) spares them.
    #[must_use]
    pub fn aarch64_4k(va_bits: u8) -> Self {
        stage1("AArch64 4K stage 1", Granule::K4, va_bits, stage1_entry::<12>)
    }

    /// Describes AArch64 stage 1 with 16 KiB pages and `va_bits` (16 to 48) bits; see
    /// [`Arch::aarch64_4k`].
    #[must_use]
    pub fn aarch64_16k(va_bits: u8) -> Self {
        stage1("AArch64 16K stage 1", Granule::K16, va_bits, stage1_entry::<14>)
    }

    /// Describes AArch64 stage 1 with 64 KiB pages and `va_bits` (17 to 52) bits; see
    /// [`Arch::aarch64_4k`].
    #[must_use]
    pub fn aarch64_64k(va_bits: u8) -> Self {
        stage1("AArch64 64K stage 1", Granule::K64, va_bits, stage1_entry::<16>)
    }

    /// Describes AArch64 stage 2: `ipa_bits` bits of intermediate physical address, walked from
    /// `start_level` as the manual numbers it (0 to 3). The address space is the VMID. There are no
    /// global translations.
    ///
    /// Where one table is too small for the root, up to 16 are concatenated and aligned to their
    /// total size. With 4 KiB pages, 40 bits and start level 1, the root is two tables, 8192 bytes.
    #[must_use]
    pub fn aarch64_stage2(granule: Granule, ipa_bits: u8, start_level: u8) -> Self {
        let (name, decode): (_, fn(u8, u64) -> Entry) = match granule {
            Granule::K4 => ("AArch64 4K stage 2", stage2_entry::<12>),
            Granule::K16 => ("AArch64 16K stage 2", stage2_entry::<14>),
            Granule::K64 => ("AArch64 64K stage 2", stage2_entry::<16>),
        };
        let arch = match 4u8.checked_sub(start_level) {
            Some(levels) => tree(name, granule, ipa_bits, levels, 4, decode),
            None => tree(name, granule, 0, 1, 4, decode),
        };
        let by_address = ByGuestAddress::SparesCombined;
        let second_stage = Some(SecondStage { by_address, host: None });
        Self {
            hardware_bits: Some(stage2_hardware_bits),
            used: Some(stage2_used),
            memory: stage2_memory,
            second_stage,
            ..arch
        }
    }

    /// Returns the same format for the upper of two trees (`TTBR1`): the bits above
    /// [`Arch::va_bits`] are all one.
    ///
    /// A CPU of the sanitizer has one root. Use a sanitizer for each tree.
    #[must_use]
    pub fn upper(self) -> Self {
        Self { canonical: Canonical::OnesExtended, ..self }
    }
}

fn stage1(name: &'static str, granule: Granule, va_bits: u8, decode: fn(u8, u64) -> Entry) -> Arch {
    let levels = va_bits.saturating_sub(granule.shift()).div_ceil(granule.index_bits());
    tree(name, granule, va_bits, levels, 0, decode)
}

/// Describes a tree of `levels` levels. The root takes the index bits that are left, at most `more`
/// beyond a whole table.
fn tree(
    name: &'static str,
    granule: Granule,
    bits: u8,
    levels: u8,
    more: u8,
    decode: fn(u8, u64) -> Entry,
) -> Arch {
    let (shift, index_bits) = (granule.shift(), granule.index_bits());
    let mut arch = Arch {
        name,
        level_names: &NAMES,
        levels: Vec::new(),
        va_bits: bits,
        canonical: Canonical::ZeroExtended,
        structures: StructureScope::Tagged,
        top_registers: false,
        break_before_make: true,
        keeps_denied: true,
        keeps_invalid: false,
        ordering: StoreOrdering::Completed,
        hardware_bits: Some(hardware_bits),
        sets_dirty: false,
        used: Some(used),
        contiguous: Some(match granule {
            Granule::K4 => |level, raw| run(level, raw, &[4, 4, 4]),
            Granule::K16 => |level, raw| run(level, raw, &[7, 5]),
            Granule::K64 => |level, raw| run(level, raw, &[5, 5]),
        }),
        hashed: None,
        second_stage: None,
        memory: stage1_memory,
        decode,
    };
    let top_bits = bits.saturating_sub(shift + levels.saturating_sub(1) * index_bits);
    let fits = (1..=4).contains(&levels)
        && (granule.least_bits()..=granule.most_bits()).contains(&bits)
        && (1..=index_bits + more).contains(&top_bits);
    if !fits {
        return arch.unusable();
    }
    let level = |l: u8, bits: u8| Level {
        index_bits: bits,
        shift: shift + l * index_bits,
        entry_bytes: 8,
        table_bytes: 8 << bits,
    };
    arch.levels = (0..levels - 1).map(|l| level(l, index_bits)).collect();
    arch.levels.push(level(levels - 1, top_bits));
    arch
}

/// Returns the run of entries, whose length is two to the power of `log2[level]` (Arm ARM, "The
/// Contiguous bit").
fn run(level: u8, raw: u64, log2: &[u8]) -> Contiguous {
    let page = (level == 0) == (raw & TABLE_OR_PAGE != 0);
    let hint = raw & CONTIGUOUS != 0 && raw & VALID != 0 && page;
    let entries_log2 = log2.get(usize::from(level)).copied().filter(|_| hint).unwrap_or(0);
    Contiguous { entries_log2, one_output: false }
}

/// Returns the access flag and the dirty state, as machines have them that set these themselves
/// (FEAT_HAFDBS): a page whose dirty bit modifier is set becomes writable when it is written.
fn hardware_bits(_: u8, raw: u64) -> HardwareBits {
    let (modifier, read_only) = (raw & DIRTY_MODIFIER != 0, raw & READ_ONLY != 0);
    let accessed = raw & ACCESS_FLAG != 0;
    HardwareBits { accessed, dirty: modifier && !read_only, sets_dirty: modifier && read_only }
}

/// The same in stage 2, where the bit is set if the page is writable.
fn stage2_hardware_bits(level: u8, raw: u64) -> HardwareBits {
    hardware_bits(level, raw ^ READ_ONLY)
}

/// Returns an entry as a CPU with FEAT_HAFDBS leaves it: in a link it sets no flag.
fn used(level: u8, raw: u64, written: bool) -> u64 {
    if level > 0 && raw & TABLE_OR_PAGE != 0 {
        return raw;
    }
    let dirty = written && hardware_bits(level, raw).sets_dirty;
    (raw | ACCESS_FLAG) & !(if dirty { READ_ONLY } else { 0 })
}

fn stage2_used(level: u8, raw: u64, written: bool) -> u64 {
    used(level, raw ^ READ_ONLY, written) ^ READ_ONLY
}

/// Returns the meaning of AttrIndx where `MAIR_EL1` is 0xbb4404ff: normal memory that is written
/// back, Device-nGnRE, normal memory that is not cached, and that is written through.
fn stage1_memory(index: u8) -> MemoryType {
    match index {
        0 => MemoryType::WriteBack,
        1 => MemoryType::Device,
        2 => MemoryType::WriteCombining,
        3 => MemoryType::WriteThrough,
        _ => MemoryType::Other,
    }
}

/// Returns the meaning of MemAttr of stage 2 (Arm ARM, "Stage 2 memory type and Cacheability
/// attributes when FEAT_S2FWB is disabled"): the outer attribute above the inner one, which are the
/// same in the types that have a name here.
fn stage2_memory(attr: u8) -> MemoryType {
    match (attr >> 2, attr & 3) {
        (0, _) => MemoryType::Device,
        (1, 1) => MemoryType::WriteCombining,
        (2, 2) => MemoryType::WriteThrough,
        (3, 3) => MemoryType::WriteBack,
        _ => MemoryType::Other,
    }
}

/// The kind of an entry, before permissions.
enum Shape {
    Empty,
    Table(u64),
    Leaf(u64),
    Malformed,
}

fn shape<const SHIFT: u32>(level: u8, raw: u64) -> Shape {
    if raw & VALID == 0 {
        return Shape::Empty;
    }
    let low = raw & ((1 << 48) - 1) & !((1 << SHIFT) - 1);
    // With 64 KiB pages, bits 15..12 are bits 51..48 of the address (FEAT_LPA; zero without).
    let high = if SHIFT == 16 { (raw >> 12 & 0xf) << 48 } else { 0 };
    match (level, raw & TABLE_OR_PAGE != 0) {
        (0, true) => return Shape::Leaf(low | high),
        (_, true) => return Shape::Table(low | high),
        // "This encoding must not be used in level 3 translation tables."
        (0, false) => return Shape::Malformed,
        (_, false) => {}
    }
    let blocks = match SHIFT {
        12 => level <= 2,
        14 => level == 1,
        // The larger of the two needs FEAT_LPA.
        _ => level <= 2,
    };
    let span = 1u64 << (SHIFT + (SHIFT - 3) * u32::from(level));
    let below = raw & (span - 1) & !0xfff & !BLOCK_NT;
    let reserved = if SHIFT == 16 { below & !0xf000 } else { below };
    if !blocks || reserved != 0 {
        return Shape::Malformed;
    }
    Shape::Leaf(low & !(span - 1) | high)
}

/// Decodes an entry of stage 1. Entries that point at tables take permissions away from everything
/// below (`APTable`, `PXNTable`, `UXNTable`).
fn stage1_entry<const SHIFT: u32>(level: u8, raw: u64) -> Entry {
    let bit = |n: u32| raw & 1 << n != 0;
    match shape::<SHIFT>(level, raw) {
        Shape::Empty => Entry::Empty,
        Shape::Malformed => Entry::Malformed,
        Shape::Table(phys) => {
            let perms = Perms::ALL
                .without_if(Perms::KERNEL_EXEC, bit(59))
                .without_if(Perms::USER_EXEC, bit(60))
                .without_if(Perms::USER, bit(61))
                .with_if(Perms::USER_FETCH, bit(61))
                .without_if(Perms::WRITE, bit(62));
            Entry::Table { phys, perms }
        }
        Shape::Leaf(phys) => {
            // Fetches at EL0 do not ask AP[1]. EL1 executes no page that EL0 may write, whatever
            // PXN says; here PXN alone decides, as a page that becomes writable would be found to
            // lose a right.
            let perms = Perms::READ
                .with_if(Perms::USER, bit(6))
                .with_if(Perms::USER_FETCH, !bit(54))
                .with_if(Perms::WRITE, !bit(7))
                .with_if(Perms::KERNEL_EXEC, !bit(53))
                .with_if(Perms::USER_EXEC, !bit(54));
            let accessed = raw & ACCESS_FLAG != 0;
            let memory_type = (raw >> 2 & 7) as u8;
            Entry::Leaf { phys, perms, global: !bit(11), accessed, memory_type }
        }
    }
}

/// Decodes an entry of stage 2. Entries that point at tables have no permissions. The guest's modes
/// differ for fetches only (FEAT_XNX).
fn stage2_entry<const SHIFT: u32>(level: u8, raw: u64) -> Entry {
    match shape::<SHIFT>(level, raw) {
        Shape::Empty => Entry::Empty,
        Shape::Malformed => Entry::Malformed,
        Shape::Table(phys) => Entry::Table { phys, perms: Perms::ALL },
        Shape::Leaf(phys) => {
            let never = raw >> 53 & 3;
            let perms = Perms::USER
                .with_if(Perms::READ, raw & 1 << 6 != 0)
                .with_if(Perms::WRITE, raw & 1 << 7 != 0)
                .with_if(Perms::USER_EXEC, never <= 1)
                .with_if(Perms::KERNEL_EXEC, never == 0 || never == 3);
            let accessed = raw & ACCESS_FLAG != 0;
            let memory_type = (raw >> 2 & 0xf) as u8;
            Entry::Leaf { phys, perms, global: false, accessed, memory_type }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = VALID | TABLE_OR_PAGE | ACCESS_FLAG;
    const BLOCK: u64 = VALID | ACCESS_FLAG;

    fn shape_of(arch: &Arch) -> Vec<(u8, u8, u32)> {
        arch.levels.iter().map(|l| (l.index_bits, l.shift, l.table_bytes)).collect()
    }

    fn perms(entry: Entry) -> Perms {
        match entry {
            Entry::Leaf { perms, .. } | Entry::Table { perms, .. } => perms,
            Entry::Empty | Entry::Malformed => panic!("{entry:?}"),
        }
    }

    #[test]
    fn the_number_of_levels_follows_from_the_address_bits() {
        assert_eq!(
            shape_of(&Arch::aarch64_4k(48)),
            [(9, 12, 4096), (9, 21, 4096), (9, 30, 4096), (9, 39, 4096)]
        );
        assert_eq!(shape_of(&Arch::aarch64_4k(39)).len(), 3);
        assert_eq!(shape_of(&Arch::aarch64_4k(40))[3], (1, 39, 16));
        assert_eq!(
            shape_of(&Arch::aarch64_16k(48)),
            [(11, 14, 16384), (11, 25, 16384), (11, 36, 16384), (1, 47, 16)]
        );
        assert_eq!(shape_of(&Arch::aarch64_16k(36)), [(11, 14, 16384), (11, 25, 16384)]);
        assert_eq!(shape_of(&Arch::aarch64_64k(52)), [(13, 16, 65536), (13, 29, 65536), (10, 42, 8192)]);
        assert_eq!(shape_of(&Arch::aarch64_64k(42)).len(), 2);
        for bits in 0..=255u8 {
            assert_eq!(Arch::aarch64_4k(bits).is_usable(), (16..=48).contains(&bits), "{bits}");
            assert_eq!(Arch::aarch64_16k(bits).is_usable(), (16..=48).contains(&bits), "{bits}");
            assert_eq!(Arch::aarch64_64k(bits).is_usable(), (17..=52).contains(&bits), "{bits}");
        }
    }

    #[test]
    fn stage_2_concatenates_up_to_16_tables_at_the_top() {
        let two = Arch::aarch64_stage2(Granule::K4, 40, 1);
        assert_eq!(shape_of(&two), [(9, 12, 4096), (9, 21, 4096), (10, 30, 8192)]);
        assert_eq!(shape_of(&Arch::aarch64_stage2(Granule::K4, 40, 0))[3], (1, 39, 16));
        assert_eq!(shape_of(&Arch::aarch64_stage2(Granule::K4, 43, 1))[2], (13, 30, 65536));
        assert!(!Arch::aarch64_stage2(Granule::K4, 44, 1).is_usable(), "32 tables");
        assert_eq!(shape_of(&Arch::aarch64_stage2(Granule::K16, 40, 2))[1], (15, 25, 262144));
        assert_eq!(shape_of(&Arch::aarch64_stage2(Granule::K64, 46, 2))[1], (17, 29, 1 << 20));
        for (bits, start) in [(40, 4), (40, 200), (40, 3), (21, 1), (0, 0), (255, 0)] {
            assert!(!Arch::aarch64_stage2(Granule::K4, bits, start).is_usable(), "{bits} {start}");
        }
    }

    #[test]
    fn stage_1_permissions_of_pages() {
        let decode = Arch::aarch64_4k(48).decode;
        let of = |bits: u64| perms(decode(0, 0x5000 | PAGE | bits)).to_string();
        assert_eq!(of(0), "rwx-");
        assert_eq!(of(1 << 6), "rwxu", "AP[1]: EL0 too");
        assert_eq!(of(1 << 7), "r-x-", "AP[2]: read-only");
        assert_eq!(of(1 << 53), "rwe-", "PXN");
        assert_eq!(of(1 << 54 | 3 << 6), "r-ku", "UXN");
        assert!(perms(decode(0, 0x5000 | PAGE | 1 << 54 | 3 << 6)).allows(crate::Access::EXEC.kernel()));
        assert!(!perms(decode(0, 0x5000 | PAGE | 1 << 54 | 3 << 6)).allows(crate::Access::EXEC));
        let execute_only = perms(decode(0, 0x5000 | PAGE | 1 << 53 | 1 << 7));
        assert!(execute_only.allows(crate::Access::EXEC) && !execute_only.allows(crate::Access::READ));
        assert!(execute_only.allows(crate::Access::READ.kernel()));
    }

    #[test]
    fn stage_1_permissions_of_tables_take_away() {
        let decode = Arch::aarch64_4k(48).decode;
        let of = |bits: u64| perms(decode(1, 0x5000 | VALID | TABLE_OR_PAGE | bits)).to_string();
        assert_eq!(of(0), "rwxu");
        assert_eq!(of(1 << 59), "rweu", "PXNTable");
        assert_eq!(of(1 << 60), "rwku", "UXNTable");
        assert_eq!(of(1 << 61), "rwx-", "APTable[0]: not at EL0");
        assert_eq!(of(1 << 62), "r-xu", "APTable[1]: no write");
    }

    #[test]
    fn stage_1_pages_say_type_access_and_reach() {
        let decode = Arch::aarch64_4k(48).decode;
        let leaf = |bits: u64| match decode(0, 0x5000 | VALID | TABLE_OR_PAGE | bits) {
            Entry::Leaf { global, accessed, memory_type, phys: 0x5000, .. } => {
                (global, accessed, memory_type)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(leaf(0), (true, false, 0));
        assert_eq!(leaf(1 << 11), (false, false, 0), "nG");
        assert_eq!(leaf(ACCESS_FLAG | 7 << 2), (true, true, 7));
        // Contiguous, shareability, and bits left to software have no effect.
        assert_eq!(leaf(1 << 52 | 3 << 8 | 0xf << 55), (true, false, 0));
    }

    #[test]
    fn stage_2_permissions() {
        let decode = Arch::aarch64_stage2(Granule::K4, 40, 1).decode;
        let of = |bits: u64| perms(decode(0, 0x5000 | PAGE | bits)).to_string();
        assert_eq!(of(0), "--xu", "S2AP = 0");
        assert_eq!(of(1 << 6), "r-xu");
        assert_eq!(of(3 << 6), "rwxu");
        assert_eq!(of(3 << 6 | 1 << 53), "rweu", "not at EL1");
        assert_eq!(of(3 << 6 | 2 << 53), "rw-u");
        assert_eq!(of(3 << 6 | 3 << 53), "rwku", "not at EL0");
        let Entry::Leaf { global, memory_type, .. } = decode(0, 0x5000 | PAGE | 0xf << 2 | 1 << 11) else {
            panic!("a page");
        };
        assert_eq!((global, memory_type), (false, 15));
        assert_eq!(perms(decode(1, 0x5000 | VALID | TABLE_OR_PAGE | 0x1f << 59)), Perms::ALL);
    }

    #[test]
    fn blocks_stand_where_the_granule_allows_them() {
        let leaf_at = |arch: Arch, level: u8, raw: u64| match (arch.decode)(level, raw | BLOCK) {
            Entry::Leaf { phys, .. } => Some(phys),
            Entry::Malformed => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(leaf_at(Arch::aarch64_4k(48), 0, 0x5000), None, "reserved at the last level");
        assert_eq!(leaf_at(Arch::aarch64_4k(48), 1, 0x20_0000), Some(0x20_0000));
        assert_eq!(leaf_at(Arch::aarch64_4k(48), 1, 0x20_1000), None, "misaligned");
        assert_eq!(leaf_at(Arch::aarch64_4k(48), 1, 0x20_0000 | BLOCK_NT), Some(0x20_0000));
        assert_eq!(leaf_at(Arch::aarch64_4k(48), 2, 0x4000_0000), Some(0x4000_0000));
        assert_eq!(leaf_at(Arch::aarch64_4k(48), 3, 0x80_0000_0000), None);
        assert_eq!(leaf_at(Arch::aarch64_16k(48), 1, 0x200_0000), Some(0x200_0000));
        assert_eq!(leaf_at(Arch::aarch64_16k(48), 2, 0x10_0000_0000), None);
        assert_eq!(leaf_at(Arch::aarch64_64k(52), 1, 0x2000_0000), Some(0x2000_0000));
        assert_eq!(leaf_at(Arch::aarch64_64k(52), 2, 0x400_0000_0000), Some(0x400_0000_0000));
    }

    #[test]
    fn with_64k_pages_addresses_have_52_bits() {
        let decode = Arch::aarch64_64k(52).decode;
        let high = 0x000f_0000_0005_0000;
        let raw = 0x5_0000 | 0xf << 12;
        assert!(matches!(decode(0, raw | PAGE), Entry::Leaf { phys, .. } if phys == high));
        assert!(matches!(decode(1, raw | PAGE), Entry::Table { phys, .. } if phys == high));
        let block = 0x2000_0000 | 0xf << 12 | BLOCK;
        assert!(matches!(decode(1, block), Entry::Leaf { phys: 0x000f_0000_2000_0000, .. }));
    }

    #[test]
    fn the_contiguous_hint_makes_runs_of_pages_and_blocks() {
        let log2 = |arch: Arch, level, raw| arch.run_of(level, raw | CONTIGUOUS).entries_log2;
        assert_eq!(log2(Arch::aarch64_4k(48), 0, PAGE), 4);
        assert_eq!(log2(Arch::aarch64_4k(48), 1, BLOCK), 4);
        assert_eq!(log2(Arch::aarch64_4k(48), 1, PAGE), 0, "an entry for a table has no hint");
        assert_eq!(log2(Arch::aarch64_16k(48), 0, PAGE), 7);
        assert_eq!(log2(Arch::aarch64_16k(48), 1, BLOCK), 5);
        assert_eq!(log2(Arch::aarch64_64k(48), 1, BLOCK), 5);
        assert_eq!(Arch::aarch64_4k(48).run_of(0, PAGE), Contiguous::default());
    }

    #[test]
    fn lower_and_upper_addresses() {
        let lower = Arch::aarch64_4k(48);
        assert!(lower.is_canonical(0xffff_ffff_ffff) && !lower.is_canonical(1 << 48));
        let upper = lower.upper();
        assert!(upper.is_canonical(0xffff_0000_0000_0000) && !upper.is_canonical(0));
        assert_eq!(upper.extend(0x1000), 0xffff_0000_0000_1000);
    }
}
