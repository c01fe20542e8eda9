//! 32-bit PowerPC with a hash table: the tree that its software keeps.
use super::format::{Arch, Canonical, Entry, Level, MemoryType, StoreOrdering, StructureScope};
use super::perms::Perms;

const PRESENT: u32 = 1;
/// The page was put into the hash table since it was flushed last.
const HASHPTE: u32 = 1 << 1;
const USER: u32 = 1 << 2;
const RW: u32 = 1 << 10;
/// Not cached, and above it: written through. Both: guarded, too.
const MEMORY_TYPE_SHIFT: u32 = 5;
const LOW: u32 = 0xfff;
const ADDRESS: u32 = 0xffff_f000;

impl Arch {
    /// Describes 32-bit PowerPC with a hash table: 2 levels of 1024 big-endian entries of 4 bytes,
    /// as Linux has them on these machines. The entries of the upper level have the lowest bit set.
    ///
    /// CPUs walk no tables: see [`Arch::hashed`]. Announce the hash table
    /// ([`Sanitizer::hash_table`](crate::Sanitizer::hash_table)) and the segments of each space
    /// ([`Sanitizer::segments`](crate::Sanitizer::segments)).
    #[must_use]
    pub fn ppc32() -> Self {
        let table = Level { index_bits: 10, shift: 12, entry_bytes: 4, table_bytes: 4096 };
        Self {
            name: "PowerPC 32-bit",
            // The hardware does not know them; these are the names that Linux has.
            level_names: &["PTE table (level 0)", "PGD (level 1)"],
            levels: vec![table, Level { shift: 22, ..table }],
            va_bits: 32,
            canonical: Canonical::ZeroExtended,
            structures: StructureScope::None,
            top_registers: false,
            break_before_make: false,
            keeps_denied: false,
            keeps_invalid: false,
            ordering: StoreOrdering::Implicit,
            second_stage: None,
            hardware_bits: None,
            sets_dirty: false,
            used: None,
            contiguous: None,
            memory,
            hashed: Some(|level, raw| level == 0 && (raw as u32).swap_bytes() & HASHPTE != 0),
            decode,
        }
    }
}

fn memory(memory_type: u8) -> MemoryType {
    match memory_type {
        0 => MemoryType::WriteBack,
        1 => MemoryType::WriteCombining,
        2 => MemoryType::WriteThrough,
        _ => MemoryType::Device,
    }
}

fn decode(level: u8, raw: u64) -> Entry {
    let raw = (raw as u32).swap_bytes();
    let phys = u64::from(raw & ADDRESS);
    match level {
        0 if raw & PRESENT == 0 => Entry::Empty,
        0 => {
            // Pages that may be read may be executed.
            let perms = (Perms::READ | Perms::EXEC)
                .with_if(Perms::WRITE, raw & RW != 0)
                .with_if(Perms::USER, raw & USER != 0);
            let memory_type = (raw >> MEMORY_TYPE_SHIFT & 3) as u8;
            Entry::Leaf { phys, perms, global: false, accessed: true, memory_type }
        }
        _ if raw == 0 => Entry::Empty,
        _ if raw & LOW == PRESENT => Entry::Table { phys, perms: Perms::ALL },
        _ => Entry::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_big_endian_and_a_hash_bit_maps_nothing() {
        let arch = Arch::ppc32();
        assert!(arch.is_usable());
        let hashed = arch.hashed.expect("a hashed machine");
        let raw = |entry: u32| u64::from(entry.swap_bytes());
        assert_eq!(decode(1, raw(0x5001)), Entry::Table { phys: 0x5000, perms: Perms::ALL });
        assert_eq!((decode(1, 0), decode(1, raw(0x5003))), (Entry::Empty, Entry::Malformed));
        assert_eq!((decode(0, raw(HASHPTE)), hashed(0, raw(HASHPTE))), (Entry::Empty, true));
        assert!(!hashed(1, raw(HASHPTE)) && !hashed(0, raw(0x5000 | PRESENT)));
        let read = Perms::READ | Perms::EXEC;
        assert!(
            matches!(decode(0, raw(0x5000 | PRESENT)), Entry::Leaf { phys: 0x5000, perms, .. } if perms == read)
        );
        let all = raw(0x5000 | PRESENT | HASHPTE | USER | RW);
        assert!(matches!(decode(0, all), Entry::Leaf { perms: Perms::ALL, .. }));
    }
}
