//! 32-bit x86 without PAE: two levels of 4-byte entries (Intel SDM vol. 3, 4.3).
use super::format::{Arch, Canonical, Entry, Level, StoreOrdering, StructureScope};
use super::perms::Perms;
use super::x86::{hardware_bits, memory, used};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// Maps 4 MiB in the directory; selects from the PAT in a page table.
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const ADDRESS: u64 = 0xffff_f000;
const LARGE_ADDRESS: u64 = 0xffc0_0000;
/// Bits 20..13 of a large page's entry are bits 39..32 of the address (PSE-36).
const HIGH_SHIFT: u32 = 13;
const LARGE_PAT: u64 = 1 << 12;
/// Bit 21 of a large page's entry.
const LARGE_RESERVED: u64 = 1 << 21;

const TABLE: Level = Level { index_bits: 10, shift: 12, entry_bytes: 4, table_bytes: 4096 };

impl Arch {
    /// Describes 32-bit x86 without PAE: 2 levels of 1024 entries of 4 bytes, and 4 MiB pages
    /// (`CR4.PSE` set) that reach 40 bits of physical address.
    #[must_use]
    pub fn x86_2level() -> Self {
        Self {
            name: "x86 2-level",
            level_names: &["PT (level 0)", "PD (level 1)"],
            levels: vec![TABLE, Level { shift: 22, ..TABLE }],
            va_bits: 32,
            canonical: Canonical::ZeroExtended,
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
            decode,
        }
    }
}

fn decode(level: u8, raw: u64) -> Entry {
    if raw & PRESENT == 0 {
        return Entry::Empty;
    }
    // There is no execute-disable bit.
    let perms = (Perms::READ | Perms::EXEC)
        .with_if(Perms::WRITE, raw & WRITABLE != 0)
        .with_if(Perms::USER, raw & USER != 0);
    let large = level > 0 && raw & LARGE != 0;
    if level > 0 && !large {
        return Entry::Table { phys: raw & ADDRESS, perms };
    }
    if large && raw & LARGE_RESERVED != 0 {
        return Entry::Malformed;
    }
    let (phys, pat) = if large {
        ((raw & LARGE_ADDRESS) | (raw >> HIGH_SHIFT & 0xff) << 32, raw & LARGE_PAT != 0)
    } else {
        (raw & ADDRESS, raw & LARGE != 0)
    };
    let memory_type = (raw >> 3 & 3) as u8 | u8::from(pat) << 2;
    Entry::Leaf { phys, perms, global: raw & GLOBAL != 0, accessed: true, memory_type }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_pages_and_large_pages() {
        assert!(Arch::x86_2level().is_usable());
        assert_eq!(decode(1, 0x5000), Entry::Empty);
        let read = Perms::READ | Perms::EXEC;
        assert_eq!(decode(1, 0x5000 | PRESENT), Entry::Table { phys: 0x5000, perms: read });
        // The same bits one level down: bit 7 is the PAT bit there.
        let all = 0x40_0000 | PRESENT | WRITABLE | USER | LARGE | GLOBAL;
        assert_eq!(
            decode(0, all),
            Entry::Leaf { phys: 0x40_0000, perms: Perms::ALL, global: true, accessed: true, memory_type: 4 }
        );
        assert!(matches!(decode(1, all), Entry::Leaf { phys: 0x40_0000, memory_type: 0, .. }));
    }

    #[test]
    fn a_large_page_reaches_40_bits() {
        let flags = PRESENT | LARGE;
        assert!(matches!(decode(1, 0xffc0_0000 | 1 << 13 | flags), Entry::Leaf { phys: 0x1_ffc0_0000, .. }));
        assert!(matches!(decode(1, 0xff << 13 | flags), Entry::Leaf { phys: 0xff_0000_0000, .. }));
        assert!(matches!(decode(1, LARGE_PAT | flags), Entry::Leaf { phys: 0, memory_type: 4, .. }));
        assert_eq!(decode(1, LARGE_RESERVED | flags), Entry::Malformed);
    }
}
