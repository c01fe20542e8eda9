//! Hash tables that MMUs look pages up in.
//!
//! Source: *PowerPC Microprocessor Family: The Programming Environments*, chapter 7 ("Memory
//! Management"), for 32-bit and 64-bit implementations.
use super::perms::Perms;
use crate::memory::Memory;

/// The number of entries in a group.
const GROUP: u64 = 8;
/// The number of segments of an effective address of 32 bits.
pub(crate) const SEGMENTS: usize = 16;
const SEGMENT_SHIFT: u32 = 28;
const PAGE_SHIFT: u32 = 12;

/// How a hash table's entries are laid out, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashLayout {
    /// Entries of 8 bytes in groups of 64, at least 64 KiB: 32-bit implementations (604, 750).
    Bits32,
    /// Entries of 16 bytes in groups of 128, at least 256 KiB: 64-bit implementations (POWER3).
    Bits64,
}

/// A hash table in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashTable {
    /// Its physical address, a multiple of its size.
    pub phys: u64,
    /// Its size in bytes, a power of two.
    pub bytes: u64,
    /// Its layout.
    pub layout: HashLayout,
}

/// A page, as hash tables and TLBs name it: a virtual segment, and the index of the page in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub(crate) vsid: u64,
    pub(crate) page: u16,
}

impl Tag {
    /// Returns the index of the page of `va` in its segment.
    pub(crate) const fn page_of(va: u64) -> u16 {
        (va >> PAGE_SHIFT) as u16
    }

    /// Returns the first address of the page, in the segment of that number.
    pub(crate) const fn address(self, segment: usize) -> u64 {
        (segment as u64) << SEGMENT_SHIFT | (self.page as u64) << PAGE_SHIFT
    }
}

/// Returns the number of the segment of `va`.
pub(crate) const fn segment_of(va: u64) -> usize {
    (va >> SEGMENT_SHIFT) as usize % SEGMENTS
}

/// A valid entry of a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashEntry {
    pub(crate) tag: Tag,
    /// The physical address of the page.
    pub(crate) phys: u64,
    /// The protection bits (PP).
    pub(crate) protection: u8,
}

impl HashEntry {
    /// Returns the rights of the protection bits, with the keys that user segments have: user mode
    /// is checked, supervisor mode writes all but the pages that nobody may write.
    pub(crate) fn perms(self, user: bool) -> Perms {
        let (read, write) = match (self.protection & 3, user) {
            (0, true) => return Perms::NONE,
            (0 | 1, false) | (2, _) => (true, true),
            _ => (true, false),
        };
        Perms::EXEC.with_if(Perms::READ, read).with_if(Perms::WRITE, write).with_if(Perms::USER, user)
    }

    /// Returns whether a store in user mode is allowed.
    pub(crate) fn user_writes(self) -> bool {
        self.protection & 3 == 2
    }
}

impl HashTable {
    const fn entry_bytes(self) -> u64 {
        match self.layout {
            HashLayout::Bits32 => 8,
            HashLayout::Bits64 => 16,
        }
    }

    /// The bits of a page's index that the smallest table's groups say; entries hold the others.
    const fn group_bits(self) -> u32 {
        match self.layout {
            HashLayout::Bits32 => 10,
            HashLayout::Bits64 => 11,
        }
    }

    const fn groups(self) -> u64 {
        self.bytes / (GROUP * self.entry_bytes())
    }

    /// Returns the number of entries.
    pub(crate) const fn entries(self) -> u64 {
        self.bytes / self.entry_bytes()
    }

    /// Returns whether hardware can search such a table.
    pub(crate) fn is_usable(self) -> bool {
        self.bytes.is_power_of_two()
            && self.groups() >= 1 << self.group_bits()
            && self.phys.is_multiple_of(self.bytes)
            && self.phys.checked_add(self.bytes).is_some()
    }

    /// Returns the number of the entry that holds the byte at `phys`.
    pub(crate) fn entry_at(self, phys: u64) -> Option<u64> {
        let offset = phys.checked_sub(self.phys)?;
        (offset < self.bytes).then(|| offset / self.entry_bytes())
    }

    /// Reads an entry; `None` if it is invalid or outside memory.
    pub(crate) fn read(self, memory: &(impl Memory + ?Sized), number: u64) -> Option<HashEntry> {
        let at = self.phys + number * self.entry_bytes();
        let group = number / GROUP;
        let (vsid, upper, secondary, mapping) = match self.layout {
            HashLayout::Bits32 => {
                let word = |at| memory.read(at, 4).map(|raw| u64::from((raw as u32).swap_bytes()));
                let first = word(at)?;
                if first >> 31 & 1 == 0 {
                    return None;
                }
                (first >> 7 & 0xff_ffff, first & 0x3f, first >> 6 & 1 != 0, word(at + 4)?)
            }
            HashLayout::Bits64 => {
                let first = memory.read(at, 8)?.swap_bytes();
                if first & 1 == 0 {
                    return None;
                }
                (first >> 12, first >> 7 & 0x1f, first & 2 != 0, memory.read(at + 8, 8)?.swap_bytes())
            }
        };
        let hash = if secondary { !group } else { group };
        let lower = (hash ^ vsid) & ((1 << self.group_bits()) - 1);
        let tag = Tag { vsid, page: (upper << self.group_bits() | lower) as u16 };
        let phys = mapping >> PAGE_SHIFT << PAGE_SHIFT;
        Some(HashEntry { tag, phys, protection: (mapping & 3) as u8 })
    }

    /// Returns the entries of a page's two groups that name the page: the one that hardware finds
    /// first, and whether there is another.
    pub(crate) fn find(self, memory: &(impl Memory + ?Sized), tag: Tag) -> Option<(HashEntry, bool)> {
        let hash = tag.vsid ^ u64::from(tag.page);
        let groups = [hash, !hash].map(|hash| (hash & (self.groups() - 1)) * GROUP);
        let numbers = groups.into_iter().flat_map(|first| first..first + GROUP);
        let mut found = numbers.filter_map(|n| self.read(memory, n)).filter(|entry| entry.tag == tag);
        Some((found.next()?, found.next().is_some()))
    }

    /// Returns the entries of the group with this number, modulo the number of groups.
    pub(crate) fn group(
        self,
        memory: &(impl Memory + ?Sized),
        number: u64,
    ) -> impl Iterator<Item = HashEntry> {
        let first = (number & (self.groups() - 1)) * GROUP;
        (first..first + GROUP).filter_map(move |n| self.read(memory, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that holds one entry.
    fn with(table: HashTable, number: u64, words: &[u32]) -> Vec<u8> {
        let mut memory = vec![0; 2 * table.bytes as usize];
        let at = (table.phys + number * table.entry_bytes()) as usize;
        for (i, word) in words.iter().enumerate() {
            memory[at + 4 * i..at + 4 * i + 4].copy_from_slice(&word.to_be_bytes());
        }
        memory
    }

    #[test]
    fn entries_of_both_layouts_name_their_page_wherever_they_are() {
        let tag = Tag { vsid: 0xab_cdef, page: 0xfc01 };
        let hash = tag.vsid ^ u64::from(tag.page);
        let small = HashTable { phys: 64 << 10, bytes: 64 << 10, layout: HashLayout::Bits32 };
        for (secondary, hash) in [(0, hash), (1, !hash)] {
            let number = (hash & 1023) * 8 + 5;
            let memory = with(small, number, &[0xd5e6_f7bf | secondary << 6, 0x1234_5192]);
            let entry = HashEntry { tag, phys: 0x1234_5000, protection: 2 };
            assert_eq!(small.read(&memory, number), Some(entry));
            assert_eq!(small.find(&memory, tag), Some((entry, false)));
            assert_eq!(small.find(&memory, Tag { page: 0xfc02, ..tag }), None);
        }
        let large = HashTable { phys: 1 << 20, bytes: 1 << 20, layout: HashLayout::Bits64 };
        for (secondary, hash) in [(0, hash), (1, !hash)] {
            let number = (hash & 8191) * 8 + 7;
            let words = [0xa, 0xbcde_ff81 | secondary << 1, 0x3, 0x1234_5191];
            let memory = with(large, number, &words);
            let entry = HashEntry { tag, phys: 0x3_1234_5000, protection: 1 };
            assert_eq!(large.find(&memory, tag), Some((entry, false)));
        }
    }

    #[test]
    fn protection_bits_tell_modes_apart() {
        let entry = |protection| HashEntry { tag: Tag { vsid: 0, page: 0 }, phys: 0, protection };
        let read = Perms::READ | Perms::EXEC;
        assert_eq!(entry(0).perms(true), Perms::NONE);
        assert_eq!(entry(0).perms(false), read | Perms::WRITE);
        assert_eq!(entry(1).perms(true), read | Perms::USER);
        assert_eq!(entry(1).perms(false), read | Perms::WRITE);
        assert_eq!(entry(2).perms(true), Perms::ALL);
        assert_eq!(entry(3).perms(false), read);
        assert!(entry(2).user_writes() && !entry(1).user_writes() && !entry(0).user_writes());
    }

    #[test]
    fn tables_of_no_size_and_off_their_size_are_refused() {
        let table = HashTable { phys: 0, bytes: 64 << 10, layout: HashLayout::Bits32 };
        assert!(table.is_usable() && table.entries() == 8192);
        let odd = [
            HashTable { bytes: 0, ..table },
            HashTable { bytes: 96 << 10, ..table },
            HashTable { bytes: 32 << 10, ..table },
            HashTable { phys: 32 << 10, ..table },
            HashTable { phys: u64::MAX - 0xffff, ..table },
            HashTable { layout: HashLayout::Bits64, ..table },
        ];
        for table in odd {
            assert!(!table.is_usable(), "{table:x?}");
        }
    }
}
