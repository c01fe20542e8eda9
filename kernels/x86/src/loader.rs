//! The maps of memory that boot loaders pass, as bytes: those of multiboot 1 and of PVH. Both name
//! kinds of memory as the BIOS does (ACPI specification, "Address Range Types").

use crate::memory_map::Entry;

/// Memory that is nobody's.
const RAM: u64 = 1;

/// Returns the entries of a multiboot map. Each has a number of bytes, which counts itself out, a
/// start, a length and a kind. One that is cut, or too short for these, ends the map.
pub fn multiboot(map: &[u8]) -> impl Iterator<Item = Entry> + Clone + '_ {
    let mut rest = map;
    core::iter::from_fn(move || {
        let size = number(rest, 0, 4)? as usize;
        let entry = rest.get(4..size.checked_add(4)?)?;
        let found = entry_at(entry, 0)?;
        rest = rest.get(size + 4..)?;
        Some(found)
    })
}

/// Returns the entries of a PVH map: 24 bytes each.
pub fn pvh(map: &[u8]) -> impl Iterator<Item = Entry> + Clone + '_ {
    map.chunks_exact(24).filter_map(|entry| entry_at(entry, 0))
}

fn entry_at(bytes: &[u8], at: usize) -> Option<Entry> {
    let (start, len) = (number(bytes, at, 8)?, number(bytes, at + 8, 8)?);
    Some(Entry { start, len, is_memory: number(bytes, at + 16, 4)? == RAM })
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    Some(bytes.get(at..at + len)?.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn bytes(start: u64, len: u64, kind: u32) -> Vec<u8> {
        [&start.to_le_bytes()[..], &len.to_le_bytes(), &kind.to_le_bytes()].concat()
    }

    fn multiboot_entry(size: u32, start: u64, len: u64, kind: u32) -> Vec<u8> {
        [&size.to_le_bytes()[..], &bytes(start, len, kind)].concat()
    }

    #[test]
    fn entries_are_read_as_they_stand() {
        let two = [Entry { start: 1, len: 2, is_memory: true }, Entry { start: 3, len: 4, is_memory: false }];
        let map = [multiboot_entry(20, 1, 2, 1), multiboot_entry(20, 3, 4, 2)].concat();
        assert!(multiboot(&map).eq(two));
        let longer = [multiboot_entry(24, 1, 2, 1), vec![0; 4], multiboot_entry(20, 3, 4, 7)].concat();
        assert!(multiboot(&longer).eq(two));
        let map = [bytes(1, 2, 1), vec![0; 4], bytes(3, 4, 2), vec![0; 4]].concat();
        assert!(pvh(&map).eq(two));
    }

    #[test]
    fn a_map_that_is_cut_or_lies_about_sizes_ends_there() {
        let map = [multiboot_entry(20, 1, 2, 1), multiboot_entry(20, 3, 4, 2)].concat();
        for len in 0..map.len() {
            assert_eq!(multiboot(&map[..len]).count(), len / 24);
        }
        for size in [0, 1, 19, 21, 0x7fff_ffff, u32::MAX - 4, u32::MAX] {
            let map = [multiboot_entry(20, 1, 2, 1), multiboot_entry(size, 3, 4, 1)].concat();
            assert_eq!(multiboot(&map).count(), 1, "{size}");
        }
        let map = [bytes(1, 2, 1), vec![0; 4]].concat();
        assert!((0..24).all(|len| pvh(&map[..len]).count() == 0));
    }
}
