//! Computes the size of a hash table.
use super::layout::HashLayout;
use core::fmt;

/// Entries in a group, in both layouts.
pub(super) const GROUP: usize = 8;

/// The size of a hash table: a power of two of groups, no fewer than its layout needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSize {
    groups: usize,
    group_bytes: usize,
}

/// A number of bytes that is no size of a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSizeError {
    /// The number.
    pub bytes: u64,
    /// The smallest size.
    pub least: u64,
}

impl fmt::Display for HashSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a hash table of {} bytes: it has a power of two of at least {} and less than 2^32",
            self.bytes, self.least
        )
    }
}

impl core::error::Error for HashSizeError {}

impl HashSize {
    /// The size of a table of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`HashSizeError`] if there is no such table.
    pub const fn new<L: HashLayout>(bytes: u64) -> Result<Self, HashSizeError> {
        let group_bytes = GROUP * L::WORDS * 4;
        let least = (L::LEAST_GROUPS * group_bytes) as u64;
        if bytes < least || !bytes.is_power_of_two() || bytes >> 32 != 0 {
            return Err(HashSizeError { bytes, least });
        }
        Ok(HashSize { groups: bytes as usize / group_bytes, group_bytes })
    }

    /// The size for `ram` bytes of memory, of which the table takes a `part`-th: so many whole
    /// groups, rounded up to a power of two of them. So does Linux 2.4 (`MMU_init_hw`), which has
    /// one entry for each page of 4 KiB. Parts in use:
    ///
    /// | part | by | entries for each page of 4 KiB |
    /// |---|---|---|
    /// | 64 | the architecture's advice for 64-bit implementations; Linux's ppc64, which rounds the memory up to a power of two first | 4 |
    /// | 256 | Linux 2.4 with entries of 16 bytes: 4 MiB for 1 GiB, the machine of the mail of 2001 | 1 |
    /// | 512 | Linux 2.4 and later with entries of 8 bytes | 1 |
    pub const fn for_memory<L: HashLayout>(ram: u64, part: u64) -> Self {
        let group_bytes = GROUP * L::WORDS * 4;
        let least = (L::LEAST_GROUPS * group_bytes) as u64;
        let most = 1u64 << 31;
        let groups = match part.checked_mul(group_bytes as u64) {
            None => 0,
            Some(0) => most,
            Some(memory_of_a_group) => ram / memory_of_a_group,
        };
        let bytes = if groups <= L::LEAST_GROUPS as u64 {
            least
        } else if groups >= most / group_bytes as u64 {
            most
        } else {
            groups.next_power_of_two() * group_bytes as u64
        };
        HashSize { groups: bytes as usize / group_bytes, group_bytes }
    }

    /// Returns the number of groups.
    pub const fn groups(self) -> usize {
        self.groups
    }

    /// Returns the number of entries.
    pub const fn entries(self) -> usize {
        self.groups * GROUP
    }

    /// Returns the number of bytes. The table is aligned to it.
    pub const fn bytes(self) -> usize {
        self.groups * self.group_bytes
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::layout::{Hashed32, Hashed64};
    use super::*;

    #[test]
    fn tables_are_as_large_as_they_were() {
        let gib = 1 << 30;
        assert_eq!(HashSize::for_memory::<Hashed64>(gib, 64).bytes(), 16 << 20);
        let seed = HashSize::for_memory::<Hashed64>(gib, 256);
        assert_eq!((seed.bytes(), seed.entries()), (4 << 20, 262_144));
        assert_eq!(HashSize::for_memory::<Hashed32>(gib, 512).bytes(), 2 << 20);
        assert_eq!(HashSize::for_memory::<Hashed32>(3 * gib, 512).bytes(), 8 << 20);
        // A page more does not make a group.
        let mib = 1 << 20;
        for (ram, kib) in [(32 * mib, 64), (32 * mib + 4096, 64), (32 * mib + 32_768, 128)] {
            assert_eq!(HashSize::for_memory::<Hashed32>(ram, 512).bytes(), kib << 10, "{ram}");
        }
    }

    #[test]
    fn small_and_odd_tables_are_refused() {
        assert_eq!(HashSize::new::<Hashed32>(64 << 10).map(HashSize::groups), Ok(1024));
        assert_eq!(HashSize::new::<Hashed64>(256 << 10).map(HashSize::groups), Ok(2048));
        for bytes in [0, 1, 32 << 10, 96 << 10, 1 << 32, u64::MAX] {
            let error = HashSize::new::<Hashed32>(bytes).expect_err("no such table");
            assert_eq!(error, HashSizeError { bytes, least: 64 << 10 });
        }
        let error = HashSize::new::<Hashed64>(128 << 10).expect_err("no such table");
        assert_eq!(
            error.to_string(),
            "a hash table of 131072 bytes: it has a power of two of at least 262144 and less than 2^32"
        );
        assert_eq!(HashSize::for_memory::<Hashed32>(0, 512).bytes(), 64 << 10);
        assert_eq!(HashSize::for_memory::<Hashed32>(u64::MAX, 1).bytes(), 1 << 31);
    }
}
