//! Machines whose software fills the TLB from a tree of its own: LoongArch, SPARC and Itanium.
//!
//! A TLB keeps an entry whose page denied an access, or lacks a dirty bit: the fault does not drop
//! it. Entries that are not valid, which LoongArch keeps beside valid ones, are not modelled.
//!
//! Pages are what the manuals say that the TLB takes. What links them is software's choice, except
//! on LoongArch.
use super::format::{Arch, Canonical, Entry, Level, MemoryType, StoreOrdering, StructureScope};
use super::perms::Perms;

impl Arch {
    /// Describes 64-bit LoongArch: 16 KiB pages, 3 levels of 2048 entries, 47 bits, as `PGDL` roots
    /// them (Reference Manual vol. 1, 5.4 and 7.5).
    ///
    /// An entry of a directory is empty if it is 0: the refill tests it. `LDDIR` takes 48 bits of
    /// any other as an address. The TLB faults for a page whose bit D is clear when it is written.
    /// A TLB entry holds two pages and is global if both are; each page is taken alone here.
    #[must_use]
    pub fn loongarch64() -> Self {
        let memory = |mat| match mat {
            0 => MemoryType::Device,
            1 => MemoryType::WriteBack,
            2 => MemoryType::WriteCombining,
            _ => MemoryType::Other,
        };
        refilled("LoongArch64", 14, memory, loongarch)
    }

    /// Describes 64-bit SPARC (sun4v): 8 KiB pages, 3 levels of 1024 big-endian entries, 43 bits.
    ///
    /// Pages are TTEs of 8 KiB (UltraSPARC Architecture 2007, "TSB Translation Table Entry"). An
    /// entry above has the address of a table in bits 55..13, bit 62 set, and no other.
    #[must_use]
    pub fn sparc64() -> Self {
        // Bits 12 to 9: IE, E, CP and CV. Stores that are not cached may be merged without E.
        let memory = |bits| match bits {
            0b0000 => MemoryType::WriteCombining,
            0b0011 => MemoryType::WriteBack,
            0b0100 => MemoryType::Device,
            _ => MemoryType::Other,
        };
        refilled("SPARC 64-bit", 13, memory, |level, raw| sparc(level, raw.swap_bytes()))
    }

    /// Describes one region of Itanium: 16 KiB pages, 3 levels of 2048 entries, 47 bits.
    ///
    /// Pages are in the format of translation insertion (manual vol. 2, 4.1.1.5). An entry above
    /// has the address of a table in bits 49..14, bit 63 set, and no other. The region's number is
    /// no part of addresses here.
    #[must_use]
    pub fn ia64() -> Self {
        // Table 4-11: WB, UC, UCE, WC, NaTPage.
        let memory = |ma| match ma {
            0 => MemoryType::WriteBack,
            4 => MemoryType::Device,
            6 => MemoryType::WriteCombining,
            _ => MemoryType::Other,
        };
        refilled("Itanium", 14, memory, itanium)
    }
}

/// Describes 3 levels of tables that are as large as a page.
fn refilled(
    name: &'static str,
    page_shift: u8,
    memory: fn(u8) -> MemoryType,
    decode: fn(u8, u64) -> Entry,
) -> Arch {
    let index_bits = page_shift - 3;
    let level = |n| Level {
        index_bits,
        shift: page_shift + n * index_bits,
        entry_bytes: 8,
        table_bytes: 1 << page_shift,
    };
    Arch {
        name,
        level_names: &["page table (level 0)", "directory (level 1)", "root (level 2)"],
        levels: (0..3).map(level).collect(),
        va_bits: page_shift + 3 * index_bits,
        canonical: Canonical::ZeroExtended,
        structures: StructureScope::None,
        top_registers: false,
        break_before_make: false,
        keeps_denied: true,
        keeps_invalid: false,
        ordering: StoreOrdering::Implicit,
        hardware_bits: None,
        sets_dirty: false,
        used: None,
        contiguous: None,
        hashed: None,
        second_stage: None,
        memory,
        decode,
    }
}

/// Bits `high..=low` of an entry.
const fn bits(raw: u64, high: u32, low: u32) -> u64 {
    raw << (63 - high) >> (63 - high + low)
}

const fn bit(raw: u64, n: u32) -> bool {
    raw >> n & 1 != 0
}

fn loongarch(level: u8, raw: u64) -> Entry {
    if level > 0 {
        let phys = bits(raw, 47, 14) << 14;
        return match (raw, bits(raw, 13, 0)) {
            (0, _) => Entry::Empty,
            (_, 0) => Entry::Table { phys, perms: Perms::ALL },
            // A large page has bit 6; no kernel is known to the sanitizer that has them here.
            _ => Entry::Malformed,
        };
    }
    if !bit(raw, 0) {
        return Entry::Empty;
    }
    // Privilege 3 may use pages of its own level alone; RPLV changes that for the kernel only.
    let perms = Perms::NONE
        .with_if(Perms::READ, !bit(raw, 61))
        .with_if(Perms::WRITE, bit(raw, 1))
        .with_if(Perms::EXEC, !bit(raw, 62))
        .with_if(Perms::USER, bits(raw, 3, 2) == 3);
    // Bits 13 and 12 are below a page of 16 KiB.
    let phys = bits(raw, 47, 14) << 14;
    Entry::Leaf { phys, perms, global: bit(raw, 6), accessed: true, memory_type: bits(raw, 5, 4) as u8 }
}

fn sparc(level: u8, raw: u64) -> Entry {
    let phys = bits(raw, 55, 13) << 13;
    if level > 0 {
        return match raw {
            0 => Entry::Empty,
            _ if raw == phys | 1 << 62 => Entry::Table { phys, perms: Perms::ALL },
            _ => Entry::Malformed,
        };
    }
    if !bit(raw, 63) {
        return Entry::Empty;
    }
    if bits(raw, 3, 0) != 0 {
        return Entry::Malformed;
    }
    let usual = !bit(raw, 62);
    let perms = Perms::READ
        .without_if(Perms::READ, !usual)
        .with_if(Perms::WRITE, bit(raw, 6) && usual)
        .with_if(Perms::EXEC, bit(raw, 7) && usual)
        .with_if(Perms::USER, !bit(raw, 8));
    Entry::Leaf { phys, perms, global: false, accessed: true, memory_type: bits(raw, 12, 9) as u8 }
}

fn itanium(level: u8, raw: u64) -> Entry {
    if level > 0 {
        let phys = bits(raw, 49, 14) << 14;
        return match raw {
            0 => Entry::Empty,
            _ if raw == phys | 1 << 63 => Entry::Table { phys, perms: Perms::ALL },
            _ => Entry::Malformed,
        };
    }
    if !bit(raw, 0) {
        return Entry::Empty;
    }
    // Reserved: bit 1, bits 51 and 50, and the memory attributes 1 to 3.
    if bit(raw, 1) || bits(raw, 51, 50) != 0 || matches!(bits(raw, 4, 2), 1..=3) {
        return Entry::Malformed;
    }
    let (rights, level) = (bits(raw, 11, 9), bits(raw, 8, 7));
    // Table 4-2, pages of level 3 at privilege 3 and others at privilege 0. The kernel may write
    // more of the user's pages, and read those for execution; 7 promotes users of other levels.
    let user = level == 3;
    let perms = match rights {
        0 => Perms::READ,
        1 => Perms::READ | Perms::EXEC,
        2 => Perms::READ | Perms::WRITE,
        3 => Perms::READ | Perms::WRITE | Perms::EXEC,
        4 => Perms::READ.with_if(Perms::WRITE, !user),
        5 => (Perms::READ | Perms::EXEC).with_if(Perms::WRITE, !user),
        6 => (Perms::READ | Perms::WRITE).with_if(Perms::USER_EXEC, user),
        _ => Perms::EXEC.with_if(Perms::READ, !user),
    };
    let perms = perms.without_if(Perms::WRITE, !bit(raw, 6)).with_if(Perms::USER, user);
    let phys = bits(raw, 49, 14) << 14;
    Entry::Leaf { phys, perms, global: false, accessed: bit(raw, 5), memory_type: bits(raw, 4, 2) as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loongarch_directory_entry_is_zero_or_an_address() {
        assert!(Arch::loongarch64().is_usable());
        assert_eq!(loongarch(1, 0), Entry::Empty);
        assert_eq!(loongarch(2, 0x9000_0000_0001_4000), Entry::Table { phys: 0x1_4000, perms: Perms::ALL });
        assert_eq!(loongarch(1, 0x1_4040), Entry::Malformed);
        let clean = 0x1_419d;
        let perms = Perms::READ | Perms::EXEC | Perms::USER;
        let leaf =
            |perms| Entry::Leaf { phys: 0x1_4000, perms, global: false, accessed: true, memory_type: 1 };
        assert_eq!(loongarch(0, clean), leaf(perms), "P and W are software's");
        assert_eq!(loongarch(0, clean | 2), leaf(perms | Perms::WRITE));
        assert_eq!(loongarch(0, clean & !1), Entry::Empty);
    }

    #[test]
    fn entries_of_sparc_are_big_endian_and_links_no_pages() {
        let arch = Arch::sparc64();
        assert!(arch.is_usable() && arch.va_bits == 43);
        let decode = |level, raw: u64| (arch.decode)(level, raw.swap_bytes());
        assert_eq!(decode(1, 1 << 62 | 0x6000), Entry::Table { phys: 0x6000, perms: Perms::ALL });
        assert_eq!(decode(1, 1 << 63 | 0x6000), Entry::Malformed, "no large pages");
        assert_eq!(decode(0, 1 << 62 | 0x6000), Entry::Empty);
        assert_eq!(decode(0, 1 << 63 | 0x6001), Entry::Malformed, "64 KiB");
        let perms = Perms::READ | Perms::WRITE | Perms::USER;
        let leaf = Entry::Leaf { phys: 0x6000, perms, global: false, accessed: true, memory_type: 3 };
        assert_eq!(decode(0, 1 << 63 | 0x6000 | 3 << 9 | 1 << 6), leaf);
    }

    #[test]
    fn a_page_of_itanium_has_a_privilege_and_rights_in_a_field() {
        assert!(Arch::ia64().is_usable());
        let of = |raw| match itanium(0, raw) {
            Entry::Leaf { phys: 0x8000, perms, accessed: true, .. } => perms.to_string(),
            other => panic!("{other:?}"),
        };
        let page = 0x8000 | 1 | 1 << 5;
        assert_eq!(of(page), "r---");
        assert_eq!(of(page | 3 << 7 | 2 << 9), "r--u", "clean");
        let rights = |pl: u64| [0, 1, 2, 3, 4, 5, 6, 7].map(|ar| of(page | pl << 7 | ar << 9 | 1 << 6));
        assert_eq!(rights(0), ["r---", "r-x-", "rw--", "rwx-", "rw--", "rwx-", "rw--", "r-x-"]);
        assert_eq!(rights(3), ["r--u", "r-xu", "rw-u", "rwxu", "r--u", "r-xu", "rweu", "--xu"]);
        assert_eq!((itanium(0, page | 2), itanium(0, page | 1 << 50)), (Entry::Malformed, Entry::Malformed));
        assert_eq!(itanium(1, 1 << 63 | 0x8000), Entry::Table { phys: 0x8000, perms: Perms::ALL });
        assert_eq!((itanium(1, page), itanium(1, 0)), (Entry::Malformed, Entry::Empty));
    }
}
