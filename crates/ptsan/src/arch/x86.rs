//! x86 with 8-byte entries: 4 and 5 levels of 64-bit mode, and 32-bit PAE (Intel SDM vol. 3, 4.4
//! and 4.5).
use super::format::{Arch, Canonical, Entry, HardwareBits, Level, MemoryType, StoreOrdering, StructureScope};
use super::perms::Perms;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits 51..12.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// The PAT bit in an entry that maps a large page, where it is no part of the address.
const LARGE_PAT: u64 = 1 << 12;
/// The bits that must be zero in a PAE pointer-table entry below the address: bits 1, 2 and 5..8
/// (SDM table 4-8).
const PAE_TOP_RESERVED: u64 = 0b1_1110_0110 | (!ADDRESS & !0xfff);

/// Page table, page directory, page-directory-pointer table, PML4, PML5.
const NAMES: [&str; 5] =
    ["PT (level 0)", "PD (level 1)", "PDPT (level 2)", "PML4 (level 3)", "PML5 (level 4)"];

const PAGE_TABLE: Level = Level { index_bits: 9, shift: 12, entry_bytes: 8, table_bytes: 4096 };
const DIRECTORY: Level = Level { shift: 21, ..PAGE_TABLE };

impl Arch {
    /// Describes x86-64 with 4 levels and 48-bit addresses.
    #[must_use]
    pub fn x86_64() -> Self {
        Self {
            name: "x86-64",
            level_names: &NAMES,
            levels: vec![
                PAGE_TABLE,
                DIRECTORY,
                Level { shift: 30, ..PAGE_TABLE },
                Level { shift: 39, ..PAGE_TABLE },
            ],
            va_bits: 48,
            canonical: Canonical::SignExtended,
            structures: StructureScope::AnyInvalidation,
            top_registers: false,
            break_before_make: false,
            keeps_denied: false,
            keeps_invalid: false,
            ordering: StoreOrdering::Implicit,
            hardware_bits: Some(hardware_bits),
            sets_dirty: false,
            used: Some(used),
            contiguous: None,
            hashed: None,
            second_stage: None,
            memory,
            decode: long_mode,
        }
    }

    /// Describes x86-64 with protection keys of the user's pages (`CR4.PKE`), as a CPU sees it
    /// whose register `PKRU` holds `PKRU` throughout: two bits for each of 16 keys, of which the
    /// lower denies loads and stores, the upper stores (SDM vol. 3, 4.6.2). Fetches do not ask the
    /// key. A register that changes is not modelled.
    ///
    /// ```
    /// use ptsan::{Access, Arch, Entry};
    ///
    /// let page = 0x9000 | 7 | 5 << 59; // of key 5
    /// let Entry::Leaf { perms, .. } = (Arch::x86_64_keys::<{ 1 << 10 }>().decode)(0, page) else { panic!() };
    /// assert!(!perms.allows(Access::READ) && perms.allows(Access::EXEC));
    /// ```
    #[must_use]
    pub fn x86_64_keys<const PKRU: u32>() -> Self {
        Self {
            name: "x86-64 with protection keys",
            decode: |level, raw| keyed(long_mode(level, raw), raw, PKRU),
            ..Self::x86_64()
        }
    }

    /// Describes x86-64 with encrypted memory: bit `BIT` of an entry is no part of the address. AMD
    /// SEV sets it for encrypted memory (`SHARED` false), a TDX guest for memory that is shared
    /// (true).
    ///
    /// Whether a page is shared is bit 3 of its memory type here. Tables are encrypted: an entry
    /// that says otherwise of one is malformed, as the walk would read what the key makes of it.
    ///
    /// # Panics
    ///
    /// If `BIT` is none of an address.
    #[must_use]
    pub fn x86_64_encrypted<const BIT: u32, const SHARED: bool>() -> Self {
        assert!(ADDRESS >> BIT & 1 != 0, "the bit lies in the address");
        Self {
            name: "x86-64, encrypted",
            decode: |level, raw| encrypted(long_mode(level, raw & !(1 << BIT)), raw >> BIT & 1 != 0, SHARED),
            ..Self::x86_64()
        }
    }

    /// Describes x86-64 with 5 levels and 57-bit addresses.
    #[must_use]
    pub fn x86_64_la57() -> Self {
        let mut arch = Self::x86_64();
        arch.name = "x86-64 LA57";
        arch.va_bits = 57;
        arch.levels.push(Level { shift: 48, ..PAGE_TABLE });
        arch
    }

    /// Describes 32-bit x86 with PAE: 3 levels, and a root of four entries (32 bytes) that is
    /// cached in registers.
    #[must_use]
    pub fn x86_pae() -> Self {
        Self {
            name: "x86 PAE",
            level_names: &["PT (level 0)", "PD (level 1)", "PDPT (level 2)"],
            levels: vec![
                PAGE_TABLE,
                DIRECTORY,
                Level { index_bits: 2, shift: 30, entry_bytes: 8, table_bytes: 32 },
            ],
            va_bits: 32,
            canonical: Canonical::ZeroExtended,
            structures: StructureScope::AnyInvalidation,
            top_registers: true,
            break_before_make: false,
            keeps_denied: false,
            keeps_invalid: false,
            ordering: StoreOrdering::Implicit,
            hardware_bits: Some(hardware_bits),
            sets_dirty: false,
            // The root's entries are in registers, and have no such bit.
            used: Some(|level, raw, written| if level < 2 { used(level, raw, written) } else { raw }),
            contiguous: None,
            hashed: None,
            second_stage: None,
            memory,
            decode: |level, raw| match level {
                0 if raw & PRESENT != 0 => page(raw),
                1 => directory(level, raw),
                _ if raw & PRESENT == 0 => Entry::Empty,
                _ if raw & PAE_TOP_RESERVED != 0 => Entry::Malformed,
                _ => Entry::Table { phys: raw & ADDRESS, perms: Perms::ALL },
            },
        }
    }
}

/// Decodes an entry of four or five levels.
pub(super) fn long_mode(level: u8, raw: u64) -> Entry {
    match level {
        0 if raw & PRESENT != 0 => page(raw),
        1 | 2 => directory(level, raw),
        3 | 4 if raw & PRESENT != 0 && raw & LARGE != 0 => Entry::Malformed,
        _ if raw & PRESENT == 0 => Entry::Empty,
        _ => Entry::Table { phys: raw & ADDRESS, perms: perms(raw) },
    }
}

/// Returns the meaning of an index of the PAT, as Linux sets it: WB, WC, UC-, UC, WB, WP, UC-, WT.
/// The bit above says whether memory is encrypted.
pub(super) fn memory(index: u8) -> MemoryType {
    match index & 7 {
        0 | 4 => MemoryType::WriteBack,
        1 => MemoryType::WriteCombining,
        2 | 6 => MemoryType::Uncached,
        3 => MemoryType::Device,
        7 => MemoryType::WriteThrough,
        // WP.
        _ => MemoryType::Other,
    }
}

/// Says of an entry whether the memory is shared: it is if the bit is `set` and means so, or is not
/// and means the opposite.
fn encrypted(entry: Entry, set: bool, means_shared: bool) -> Entry {
    let shared = set == means_shared;
    match entry {
        Entry::Table { .. } if shared => Entry::Malformed,
        Entry::Leaf { phys, perms, global, accessed, memory_type } => {
            let memory_type = memory_type | u8::from(shared) << 3;
            Entry::Leaf { phys, perms, global, accessed, memory_type }
        }
        other => other,
    }
}

/// Takes what the register denies to the key of an entry from a page of the user's. Stores of the
/// supervisor are denied as well, with `CR0.WP` set.
fn keyed(entry: Entry, raw: u64, pkru: u32) -> Entry {
    match entry {
        Entry::Leaf { phys, perms, global, accessed, memory_type } if perms.contains(Perms::USER) => {
            let denied = pkru >> (2 * (raw >> 59 & 0xf)) & 3;
            let perms = perms.without_if(Perms::READ, denied & 1 != 0).without_if(Perms::WRITE, denied != 0);
            Entry::Leaf { phys, perms, global, accessed, memory_type }
        }
        other => other,
    }
}

fn page(raw: u64) -> Entry {
    // Bit 7 selects from the PAT here. In upper levels it means a large page.
    leaf(raw & ADDRESS, raw, raw & LARGE != 0)
}

/// Decodes an entry that either points at a table or maps a large page.
fn directory(level: u8, raw: u64) -> Entry {
    if raw & PRESENT == 0 {
        return Entry::Empty;
    }
    if raw & LARGE == 0 {
        return Entry::Table { phys: raw & ADDRESS, perms: perms(raw) };
    }
    let offset_bits = (1u64 << (12 + 9 * u32::from(level))) - 1;
    if raw & ADDRESS & offset_bits & !LARGE_PAT != 0 {
        return Entry::Malformed;
    }
    leaf(raw & ADDRESS & !offset_bits, raw, raw & LARGE_PAT != 0)
}

fn leaf(phys: u64, raw: u64, pat: bool) -> Entry {
    Entry::Leaf {
        phys,
        perms: perms(raw),
        global: raw & GLOBAL != 0,
        accessed: true,
        memory_type: (raw >> 3 & 3) as u8 | u8::from(pat) << 2,
    }
}

/// Returns the accessed and dirty bits (SDM vol. 3, 4.8), which 32-bit formats have at the same
/// place.
pub(super) fn hardware_bits(level: u8, raw: u64) -> HardwareBits {
    let leaf = level == 0 || raw & LARGE != 0;
    let dirty = raw & DIRTY != 0;
    let sets_dirty = leaf && raw & WRITABLE != 0 && !dirty;
    HardwareBits { accessed: raw & ACCESSED != 0, dirty, sets_dirty }
}

/// Returns an entry with the bits that the CPU sets in it: in a link the accessed bit alone.
pub(super) fn used(level: u8, raw: u64, written: bool) -> u64 {
    let leaf = level == 0 || raw & LARGE != 0;
    raw | ACCESSED | if written && leaf { DIRTY } else { 0 }
}

fn perms(raw: u64) -> Perms {
    Perms::READ
        .with_if(Perms::WRITE, raw & WRITABLE != 0)
        .with_if(Perms::USER, raw & USER != 0)
        .with_if(Perms::EXEC, raw & NO_EXECUTE == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_decode_by_level_and_reject_misaligned_addresses() {
        let decode = Arch::x86_64().decode;
        let flags = PRESENT | WRITABLE | USER | LARGE;
        assert!(matches!(decode(1, 0x20_0000 | flags), Entry::Leaf { phys: 0x20_0000, .. }));
        assert!(matches!(decode(1, 0x20_0000 | LARGE_PAT | flags), Entry::Leaf { phys: 0x20_0000, .. }));
        assert_eq!(decode(1, 0x20_2000 | flags), Entry::Malformed);
        assert!(matches!(decode(2, 0x4000_0000 | flags), Entry::Leaf { phys: 0x4000_0000, .. }));
        assert_eq!(decode(2, 0x4020_0000 | flags), Entry::Malformed);
        assert_eq!(decode(3, 0x4000_0000 | flags), Entry::Malformed);
    }

    #[test]
    fn a_key_denies_data_to_the_users_pages_and_no_fetches() {
        // Key 3 denies all, key 4 stores.
        let decode = Arch::x86_64_keys::<{ 1 << 6 | 2 << 8 }>().decode;
        let of = |key: u64, bits: u64| match decode(0, 0x5000 | bits | key << 59) {
            Entry::Leaf { phys: 0x5000, perms, .. } => perms.to_string(),
            other => panic!("{other:?}"),
        };
        let user = PRESENT | WRITABLE | USER;
        assert_eq!([of(0, user), of(2, user), of(3, user), of(4, user)], ["rwxu", "rwxu", "--xu", "r-xu"]);
        assert_eq!([of(3, user | NO_EXECUTE), of(3, PRESENT | WRITABLE)], ["---u", "rwx-"]);
        let table = decode(1, 0x5000 | user | 3 << 59);
        assert_eq!(table, Entry::Table { phys: 0x5000, perms: Perms::ALL }, "only leaves have keys");
    }

    #[test]
    fn addresses_exclude_the_encryption_bit_and_tables_need_it() {
        let (sev, tdx) = (Arch::x86_64_encrypted::<47, false>(), Arch::x86_64_encrypted::<47, true>());
        let user = PRESENT | WRITABLE | USER;
        let shared = |arch: &Arch, bit: u64| match (arch.decode)(0, 0x5000 | user | bit << 47) {
            Entry::Leaf { phys: 0x5000, memory_type, .. } => memory_type & 8 != 0,
            other => panic!("{other:?}"),
        };
        assert_eq!([shared(&sev, 1), shared(&sev, 0)], [false, true]);
        assert_eq!([shared(&tdx, 1), shared(&tdx, 0)], [true, false]);
        let table = |arch: &Arch, bit: u64| (arch.decode)(1, 0x5000 | user | bit << 47);
        let right = Entry::Table { phys: 0x5000, perms: Perms::ALL };
        assert_eq!([table(&sev, 1), table(&sev, 0)], [right, Entry::Malformed]);
        assert_eq!([table(&tdx, 1), table(&tdx, 0)], [Entry::Malformed, right]);
    }

    #[test]
    fn the_pae_top_has_no_permission_bits() {
        let decode = Arch::x86_pae().decode;
        assert_eq!(decode(2, 0x5000 | PRESENT), Entry::Table { phys: 0x5000, perms: Perms::ALL });
        assert_eq!(decode(2, 0x5000 | PRESENT | WRITABLE), Entry::Malformed);
        assert_eq!(decode(2, NO_EXECUTE | 0x5000 | PRESENT), Entry::Malformed);
        assert_eq!(decode(2, 0x5000), Entry::Empty);
    }

    #[test]
    fn canonical_addresses() {
        let long = Arch::x86_64();
        assert!(long.is_canonical(0x7fff_ffff_ffff) && long.is_canonical(0xffff_8000_0000_0000));
        assert!(!long.is_canonical(0x8000_0000_0000));
        let pae = Arch::x86_pae();
        assert!(pae.is_canonical(0xffff_ffff) && !pae.is_canonical(0x1_0000_0000));
    }
}
