//! Keeps the entries that map each frame to user mode, by told stores.
use super::frame::FrameRef;
use crate::arch::{Arch, Perms};
use crate::hash::FastMap;

/// An entry that maps memory to user mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserMapping {
    /// Physical address of the entry.
    pub(crate) entry: u64,
    /// The table that holds it.
    pub(crate) table: FrameRef,
    /// The level of that table.
    pub(crate) level: u8,
    pub(crate) perms: Perms,
}

/// The entries that map a page: nearly always one.
struct Mapped {
    first: UserMapping,
    more: Vec<UserMapping>,
}

/// The entries that map frames to user mode, by the physical address of the page and its level.
///
/// An entry of a table that was freed with it may still be listed: check the table's reference.
#[derive(Default)]
pub(crate) struct Mappings {
    pages: FastMap<u64, Mapped>,
}

fn key(phys: u64, level: u8) -> u64 {
    phys | u64::from(level)
}

impl Mappings {
    pub(crate) fn add(&mut self, phys: u64, new: UserMapping) {
        match self.pages.get_mut(&key(phys, new.level)) {
            None => {
                self.pages.insert(key(phys, new.level), Mapped { first: new, more: Vec::new() });
            }
            Some(mapped) => {
                let mut all = std::iter::once(&mut mapped.first).chain(&mut mapped.more);
                match all.find(|old| old.entry == new.entry) {
                    Some(old) => *old = new,
                    None => mapped.more.push(new),
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, phys: u64, level: u8, entry: u64) {
        let Some(mapped) = self.pages.get_mut(&key(phys, level)) else { return };
        mapped.more.retain(|m| m.entry != entry);
        if mapped.first.entry == entry {
            match mapped.more.pop() {
                Some(other) => mapped.first = other,
                None => {
                    self.pages.remove(&key(phys, level));
                }
            }
        }
    }

    /// Lists the entries that map any of `size` bytes at `phys`.
    pub(crate) fn of(&self, arch: &Arch, phys: u64, size: u64) -> Vec<UserMapping> {
        let mut found = Vec::new();
        if self.pages.is_empty() {
            return found;
        }
        for (level, l) in arch.levels.iter().enumerate() {
            let Some(page) = 1u64.checked_shl(u32::from(l.shift)) else { break };
            let (first, last) = (phys & !(page - 1), phys.saturating_add(size.saturating_sub(1)));
            // For large ranges it is cheaper to scan the mapped pages.
            if (last - first) / page >= self.pages.len() as u64 {
                let within = |key: u64| {
                    key & (page - 1) == level as u64 && (first..=last).contains(&(key & !(page - 1)))
                };
                for (_, mapped) in self.pages.iter().filter(|(key, _)| within(**key)) {
                    found.push(mapped.first);
                    found.extend_from_slice(&mapped.more);
                }
                continue;
            }
            let mut at = first;
            while at <= last {
                if let Some(mapped) = self.pages.get(&key(at, level as u8)) {
                    found.push(mapped.first);
                    found.extend_from_slice(&mapped.more);
                }
                let Some(next) = at.checked_add(page) else { break };
                at = next;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_found_in_pages_of_every_size() {
        let arch = Arch::x86_64();
        let mut all = Mappings::default();
        let map = |entry, level| UserMapping { entry, table: FrameRef::UNKNOWN, level, perms: Perms::ALL };
        all.add(0x20_0000, map(8, 1));
        all.add(0x20_3000, map(16, 0));
        all.add(0x20_3000, map(24, 0));
        let entries = |all: &Mappings, phys, size| {
            let mut entries: Vec<_> = all.of(&arch, phys, size).iter().map(|m| m.entry).collect();
            entries.sort_unstable();
            entries
        };
        assert_eq!(entries(&all, 0x20_3000, 0x1000), [8, 16, 24]);
        assert_eq!(entries(&all, 0x20_4000, 0x1000), [8]);
        assert_eq!(entries(&all, 0x1f_f000, 0x1000), [0u64; 0]);
        // All of memory, at once.
        assert_eq!(entries(&all, 0, u64::MAX), [8, 16, 24]);
        assert_eq!(entries(&all, 0x20_4000, u64::MAX), [8]);
        assert_eq!(entries(&all, 0x40_0000, u64::MAX), [0u64; 0]);
        all.remove(0x20_3000, 0, 16);
        all.remove(0x20_0000, 1, 8);
        assert_eq!(entries(&all, 0x20_0000, 0x20_0000), [24]);
        all.remove(0x20_3000, 0, 24);
        assert_eq!(entries(&all, 0, 1 << 30), [0u64; 0]);
    }
}
