//! The second stages of x86: extended page tables (Intel SDM vol. 3, 29.3) and nested paging (AMD
//! APM vol. 2, 15.25).
use super::format::{Arch, ByGuestAddress, Canonical, Entry, HardwareBits, MemoryType, SecondStage};
use super::perms::Perms;
use super::x86::long_mode;

/// The largest page is that of level 2.
const LARGE_LEVELS: u8 = 2;

impl Arch {
    /// Describes extended page tables of 4 levels: 48 bits of guest-physical address, with accessed
    /// and dirty bits.
    ///
    /// All accesses of the guest are [`Perms::USER`]'s. Mode-based control of execution is off. An
    /// entry that allows nothing is empty. `INVEPT` drops links too.
    #[must_use]
    pub fn ept() -> Self {
        Self {
            name: "EPT",
            level_names: &[
                "EPT PT (level 0)",
                "EPT PD (level 1)",
                "EPT PDPT (level 2)",
                "EPT PML4 (level 3)",
            ],
            canonical: Canonical::ZeroExtended,
            second_stage: Some(SecondStage { by_address: ByGuestAddress::Never, host: None }),
            hardware_bits: Some(ept_hardware_bits),
            used: Some(ept_used),
            memory: ept_memory,
            decode: ept,
            ..Self::x86_64()
        }
    }

    /// Describes nested page tables of AMD with 4 levels: 48 bits of guest-physical address. They
    /// are those of [`Arch::x86_64`], without global pages. Walks are user accesses: an entry
    /// without `U/S` faults.
    #[must_use]
    pub fn npt() -> Self {
        Self {
            name: "NPT",
            canonical: Canonical::ZeroExtended,
            second_stage: Some(SecondStage { by_address: ByGuestAddress::Never, host: Some(0) }),
            decode: |level, raw| match long_mode(level, raw) {
                Entry::Leaf { phys, perms, accessed, memory_type, .. } => {
                    Entry::Leaf { phys, perms, global: false, accessed, memory_type }
                }
                other => other,
            },
            ..Self::x86_64()
        }
    }
}

fn ept(level: u8, raw: u64) -> Entry {
    let bit = |n: u32| raw >> n & 1 != 0;
    let (read, write, execute) = (bit(0), bit(1), bit(2));
    if !read && !write && !execute {
        return Entry::Empty;
    }
    // "EPT misconfigurations", 29.3.3.1.
    if write && !read {
        return Entry::Malformed;
    }
    let perms =
        Perms::USER.with_if(Perms::READ, read).with_if(Perms::WRITE, write).with_if(Perms::EXEC, execute);
    // Bits 51..12.
    let address = raw << 12 >> 24 << 12;
    if level > 0 && !bit(7) {
        // Bits 6..3 are reserved.
        let clear = raw & 0x78 == 0;
        return if clear { Entry::Table { phys: address, perms } } else { Entry::Malformed };
    }
    let within = (1u64 << (12 + 9 * u32::from(level))) - 1;
    let memory_type = (raw >> 3 & 0xf) as u8;
    if level > LARGE_LEVELS || address & within != 0 || matches!(memory_type & 7, 2 | 3 | 7) {
        return Entry::Malformed;
    }
    Entry::Leaf { phys: address, perms, global: false, accessed: true, memory_type }
}

/// Returns the meaning of bits 6 to 3 of a page: the type, and above it the bit that has the
/// guest's own ignored. With another type of the guest, memory that is not cached may be written
/// combined.
fn ept_memory(memory_type: u8) -> MemoryType {
    match (memory_type & 7, memory_type & 8 != 0) {
        (0, false) => MemoryType::Uncached,
        (0, true) => MemoryType::Device,
        (1, _) => MemoryType::WriteCombining,
        (4, _) => MemoryType::WriteThrough,
        (6, _) => MemoryType::WriteBack,
        // WP.
        _ => MemoryType::Other,
    }
}

fn ept_hardware_bits(level: u8, raw: u64) -> HardwareBits {
    let leaf = level == 0 || raw & 1 << 7 != 0;
    let dirty = leaf && raw & 1 << 9 != 0;
    HardwareBits { accessed: raw & 1 << 8 != 0, dirty, sets_dirty: leaf && raw & 2 != 0 && !dirty }
}

/// Returns an entry with the flags that the CPU sets in it: in a link the accessed flag alone.
fn ept_used(level: u8, raw: u64, written: bool) -> u64 {
    let leaf = level == 0 || raw & 1 << 7 != 0;
    raw | 1 << 8 | u64::from(written && leaf) << 9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Fault, Session};

    #[test]
    fn pages_links_and_misconfigurations_of_ept() {
        assert!(Arch::ept().is_usable());
        assert_eq!(ept(1, 0x5007), Entry::Table { phys: 0x5000, perms: Perms::ALL });
        assert_eq!((ept(1, 0x5017), ept(0, 0x5032)), (Entry::Malformed, Entry::Malformed));
        assert_eq!((ept(0, 0x5038), ept(0, 0)), (Entry::Empty, Entry::Empty));
        let page = |phys, perms| Entry::Leaf { phys, perms, global: false, accessed: true, memory_type: 6 };
        assert_eq!(ept(0, 0x5037), page(0x5000, Perms::ALL));
        assert_eq!(ept(0, 0x5034), page(0x5000, Perms::USER | Perms::EXEC), "for execution alone");
        assert_eq!(ept(1, 0x20_00b1), page(0x20_0000, Perms::USER | Perms::READ));
        assert_eq!((ept(1, 0x20_10b1), ept(3, 0xb1)), (Entry::Malformed, Entry::Malformed));
        assert_eq!(
            ept(0, 0x500f),
            Entry::Leaf { phys: 0x5000, perms: Perms::ALL, global: false, accessed: true, memory_type: 1 }
        );
    }

    #[test]
    fn nested_pages_are_not_global_and_fault_without_the_users_bit() {
        let decode = Arch::npt().decode;
        let page = |perms| Entry::Leaf { phys: 0x5000, perms, global: false, accessed: true, memory_type: 0 };
        assert_eq!(decode(0, 0x5107), page(Perms::ALL));
        assert_eq!(decode(0, 0x5003), page(Perms::READ | Perms::WRITE | Perms::EXEC));
        let mut s = Session::new(Arch::npt(), vec![0; 1 << 16]);
        let path = [(0x1000, 0x2007), (0x2000, 0x3007), (0x3000, 0x4007), (0x4000, 0x5003)];
        path.iter().for_each(|(table, _)| s.alloc(*table));
        path.iter().for_each(|(entry, raw)| s.put(*entry, *raw));
        s.load(0x1000);
        assert_eq!(s.translate(0x123, Access::READ).unwrap_err(), Fault::Permission);
        assert!(Arch::npt().is_canonical(1 << 47) && !Arch::npt().is_canonical(1 << 48));
    }
}
