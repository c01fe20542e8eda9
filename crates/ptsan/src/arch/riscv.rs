//! RISC-V Sv32, Sv39, Sv48 and Sv57 (privileged architecture, supervisor level).
use super::format::{
    Arch, ByGuestAddress, Canonical, Contiguous, Entry, HardwareBits, Level, MemoryType, SecondStage,
    StoreOrdering, StructureScope,
};
use super::perms::Perms;

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
/// Accessed, dirty and user: reserved in an entry that points at a table.
const LEAF_ONLY: u64 = USER | ACCESSED | DIRTY;
/// Bit 63: the page belongs to 64 KiB that are mapped as one (Svnapot).
const NAPOT: u64 = 1 << 63;
/// The low bits of the frame number of such an entry. They say the size, and no other is defined.
const NAPOT_SIZE: u64 = 0b1000;
const NAPOT_ENTRIES_LOG2: u8 = 4;
/// Bits 60..54.
const RESERVED: u64 = 0x7f << 54;
/// Where the frame number starts, and its width.
const FRAME_SHIFT: u32 = 10;
const FRAME_MASK: u64 = (1 << 44) - 1;
/// Bits 62 and 61: the memory type (Svpbmt).
const MEMORY_TYPE_SHIFT: u32 = 61;
const RESERVED_TYPE: u8 = 3;

impl Arch {
    /// Describes 32-bit RISC-V with 2 levels, 4-byte entries and 34-bit physical addresses; see
    /// [`Arch::riscv_sv39`].
    #[must_use]
    pub fn riscv_sv32() -> Self {
        let table = Level { index_bits: 10, shift: 12, entry_bytes: 4, table_bytes: 4096 };
        Arch {
            name: "RISC-V Sv32",
            levels: vec![table, Level { shift: 22, ..table }],
            va_bits: 32,
            canonical: Canonical::ZeroExtended,
            // Frame numbers take all bits from 10 up: no bit is reserved.
            decode: |level, raw| one_stage(level, raw & u64::from(u32::MAX), 10),
            ..riscv("", 2)
        }
    }

    /// Describes RISC-V with 3 levels and 39-bit addresses.
    ///
    /// An invalidation by address drops the entries that the architecture promises: leaf entries
    /// only. Entries that are not valid are cached ([`Arch::keeps_invalid`]).
    #[must_use]
    pub fn riscv_sv39() -> Self {
        riscv("RISC-V Sv39", 3)
    }

    /// Describes RISC-V with 4 levels and 48-bit addresses; see [`Arch::riscv_sv39`].
    #[must_use]
    pub fn riscv_sv48() -> Self {
        riscv("RISC-V Sv48", 4)
    }

    /// Describes RISC-V with 5 levels and 57-bit addresses; see [`Arch::riscv_sv39`].
    #[must_use]
    pub fn riscv_sv57() -> Self {
        riscv("RISC-V Sv57", 5)
    }

    /// Describes the G-stage of RISC-V with 3 levels and 41 bits of guest physical address: the
    /// root has four times as many entries. An entry without U faults, and G has no effect.
    #[must_use]
    pub fn riscv_sv39x4() -> Self {
        g_stage("RISC-V Sv39x4", 3)
    }

    /// Describes the G-stage with 4 levels and 50 bits; see [`Arch::riscv_sv39x4`].
    #[must_use]
    pub fn riscv_sv48x4() -> Self {
        g_stage("RISC-V Sv48x4", 4)
    }
}

fn g_stage(name: &'static str, levels: u8) -> Arch {
    let mut arch = riscv(name, levels);
    arch.va_bits += 2;
    arch.canonical = Canonical::ZeroExtended;
    if let Some(root) = arch.levels.last_mut() {
        root.index_bits += 2;
        root.table_bytes *= 4;
    }
    arch.decode = |level, raw| decode(level, raw & !GLOBAL, 9);
    let by_address = ByGuestAddress::DropsCombined;
    arch.second_stage = Some(SecondStage { by_address, host: None });
    arch
}

fn riscv(name: &'static str, levels: u8) -> Arch {
    Arch {
        name,
        level_names: &["level 0 (leaf)", "level 1", "level 2", "level 3", "level 4"],
        levels: (0..levels)
            .map(|l| Level { index_bits: 9, shift: 12 + 9 * l, entry_bytes: 8, table_bytes: 4096 })
            .collect(),
        va_bits: 12 + 9 * levels,
        canonical: Canonical::SignExtended,
        structures: StructureScope::WholeSpace,
        top_registers: false,
        break_before_make: false,
        keeps_denied: false,
        keeps_invalid: true,
        ordering: StoreOrdering::Fenced,
        hardware_bits: Some(hardware_bits),
        sets_dirty: false,
        used: Some(used),
        contiguous: Some(contiguous),
        hashed: None,
        second_stage: None,
        memory,
        decode: |level, raw| one_stage(level, raw, 9),
    }
}

/// Decodes an entry of the only stage: the supervisor never fetches from pages with U, whatever
/// `sstatus.SUM` says.
fn one_stage(level: u8, raw: u64, index_bits: u32) -> Entry {
    match decode(level, raw, index_bits) {
        Entry::Leaf { phys, perms, global, accessed, memory_type } => {
            let perms = perms.without_if(Perms::KERNEL_EXEC, raw & USER != 0);
            Entry::Leaf { phys, perms, global, accessed, memory_type }
        }
        other => other,
    }
}

/// Returns the meaning of a memory type of Svpbmt: PMA, NC and IO. The attributes of the physical
/// address are taken for those of usual memory.
fn memory(pbmt: u8) -> MemoryType {
    match pbmt {
        0 => MemoryType::WriteBack,
        1 => MemoryType::WriteCombining,
        2 => MemoryType::Device,
        _ => MemoryType::Other,
    }
}

fn contiguous(level: u8, raw: u64) -> Contiguous {
    let run = level == 0 && raw & NAPOT != 0;
    Contiguous { entries_log2: if run { NAPOT_ENTRIES_LOG2 } else { 0 }, one_output: run }
}

/// Returns the accessed and dirty bits, as machines have them that set these themselves (Svadu).
fn hardware_bits(_: u8, raw: u64) -> HardwareBits {
    let dirty = raw & DIRTY != 0;
    HardwareBits { accessed: raw & ACCESSED != 0, dirty, sets_dirty: raw & WRITE != 0 && !dirty }
}

/// Returns an entry with the bits that such a machine sets in it: in a link none.
fn used(_: u8, raw: u64, written: bool) -> u64 {
    let leaf = raw & (READ | WRITE | EXECUTE) != 0;
    raw | if leaf { ACCESSED } else { 0 } | if leaf && written { DIRTY } else { 0 }
}

fn decode(level: u8, raw: u64, index_bits: u32) -> Entry {
    if raw & VALID == 0 {
        return Entry::Empty;
    }
    let mut frame = raw >> FRAME_SHIFT & FRAME_MASK;
    if raw & NAPOT != 0 {
        let low = (1 << NAPOT_ENTRIES_LOG2) - 1;
        if level != 0 || frame & low != NAPOT_SIZE {
            return Entry::Malformed;
        }
        frame &= !low;
    }
    let memory_type = (raw >> MEMORY_TYPE_SHIFT & 3) as u8;
    if memory_type == RESERVED_TYPE || raw & RESERVED != 0 || raw & (READ | WRITE) == WRITE {
        return Entry::Malformed;
    }
    if raw & (READ | EXECUTE) == 0 {
        if level == 0 || raw & LEAF_ONLY != 0 || memory_type != 0 {
            return Entry::Malformed;
        }
        // Only leaf entries have permissions.
        return Entry::Table { phys: frame << 12, perms: Perms::ALL };
    }
    if frame & ((1 << (index_bits * u32::from(level))) - 1) != 0 {
        return Entry::Malformed;
    }
    let perms = Perms::NONE
        .with_if(Perms::READ, raw & READ != 0)
        .with_if(Perms::WRITE, raw & WRITE != 0)
        .with_if(Perms::EXEC, raw & EXECUTE != 0)
        .with_if(Perms::USER, raw & USER != 0);
    Entry::Leaf { phys: frame << 12, perms, global: raw & GLOBAL != 0, accessed: true, memory_type }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Fault, Session};

    #[test]
    fn leaves_tables_and_reserved_patterns() {
        let decode = Arch::riscv_sv39().decode;
        let table = 0x5 << 10 | VALID;
        assert_eq!(decode(1, table), Entry::Table { phys: 0x5000, perms: Perms::ALL });
        assert_eq!(decode(0, table), Entry::Malformed, "no table below the last level");
        assert_eq!(decode(1, table | USER), Entry::Malformed);
        assert_eq!(decode(0, table | WRITE), Entry::Malformed, "writable and not readable");
        assert!(matches!(decode(0, table | READ | USER), Entry::Leaf { phys: 0x5000, .. }));
        assert_eq!(decode(1, table | READ), Entry::Malformed, "misaligned large page");
        assert!(matches!(decode(1, 0x200 << 10 | VALID | EXECUTE), Entry::Leaf { phys: 0x20_0000, .. }));
        assert_eq!(decode(1, 0), Entry::Empty);
        // Svpbmt: one type is reserved, and links have none.
        let typed = |n: u64| decode(0, table | READ | n << 61);
        let of = |n| matches!(typed(n), Entry::Leaf { memory_type, .. } if u64::from(memory_type) == n);
        assert_eq!(([0, 1, 2].map(of), typed(3)), ([true; 3], Entry::Malformed));
        assert_eq!(decode(1, table | 1 << 61), Entry::Malformed);
    }

    #[test]
    fn execute_only_is_not_readable_and_user_pages_not_kernel_code() {
        let mut s = Session::new(Arch::riscv_sv39(), vec![0; 1 << 16]);
        let link = |at: u64| at >> 12 << 10 | VALID;
        let page = |bits: u64| 5 << 10 | VALID | ACCESSED | bits;
        let path = [
            (0x1000, link(0x2000)),
            (0x2000, link(0x3000)),
            (0x3000, page(EXECUTE | USER)),
            (0x3008, page(EXECUTE)),
        ];
        [0x1000, 0x2000, 0x3000].iter().for_each(|table| s.alloc(*table));
        path.iter().for_each(|(entry, raw)| s.put(*entry, *raw));
        s.load(0x1000);
        assert!(s.translate(0x123, Access::EXEC).is_ok());
        for denied in [Access::READ, Access::WRITE, Access::EXEC.kernel()] {
            assert_eq!(s.translate(0x123, denied).unwrap_err(), Fault::Permission, "{denied:?}");
        }
        assert!(s.translate(0x1123, Access::EXEC.kernel()).is_ok());
        for denied in [Access::READ.kernel(), Access::EXEC] {
            assert_eq!(s.translate(0x1123, denied).unwrap_err(), Fault::Permission, "{denied:?}");
        }
    }

    #[test]
    fn roots_of_the_g_stage_have_16_kib_and_pages_are_not_global() {
        let arch = Arch::riscv_sv39x4();
        assert!(arch.is_usable() && Arch::riscv_sv48x4().is_usable());
        assert_eq!((arch.levels[2].entries(), arch.levels[2].table_bytes, arch.va_bits), (2048, 16384, 41));
        let raw = 0x5 << 10 | VALID | READ | GLOBAL;
        assert!(matches!((arch.decode)(0, raw), Entry::Leaf { global: false, .. }));
        assert!(!arch.is_canonical(1 << 41) && arch.is_canonical(1 << 40));
    }

    #[test]
    fn an_entry_of_64_kib_has_the_address_of_its_place() {
        let arch = Arch::riscv_sv39();
        let raw = NAPOT | 0x28 << 10 | VALID | READ;
        assert!(matches!(arch.entry(0, 0x10, raw), Entry::Leaf { phys: 0x2_0000, .. }));
        assert!(matches!(arch.entry(0, 0x1f, raw), Entry::Leaf { phys: 0x2_f000, .. }));
        assert_eq!((arch.decode)(0, raw ^ 1 << 10), Entry::Malformed, "no such size");
        assert_eq!((arch.decode)(1, NAPOT | VALID), Entry::Malformed, "tables have none");
        assert_eq!(arch.run_of(0, raw).entries_log2, 4);
        assert_eq!(arch.run_of(0, raw & !NAPOT), Contiguous::default());
    }

    #[test]
    fn sv32_reaches_34_bits_of_physical_memory_with_4_byte_entries() {
        let arch = Arch::riscv_sv32();
        assert!(arch.is_usable());
        let decode = arch.decode;
        assert_eq!(
            decode(1, 0xffff_fc00 | VALID),
            Entry::Table { phys: 0x3_ffff_f000, perms: Perms::ALL },
            "22 bits of frame number"
        );
        assert!(matches!(decode(0, 0x8000_0000 | VALID | READ), Entry::Leaf { phys: 0x2_0000_0000, .. }));
        assert!(matches!(decode(1, 0x400 << 10 | VALID | READ), Entry::Leaf { phys: 0x40_0000, .. }));
        assert_eq!(decode(1, 0x200 << 10 | VALID | READ), Entry::Malformed, "half of a 4 MiB page");
        assert!(arch.is_canonical(0xffff_ffff) && !arch.is_canonical(1 << 32));
    }
}
