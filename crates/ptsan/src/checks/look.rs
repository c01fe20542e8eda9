//! Reads translations from memory, without caches.
use crate::arch::{Entry, Perms};
use crate::cpu::{Fault, Translation};
use crate::memory::Memory;
use crate::shadow::{Frame, FrameRef, Link, State};
use crate::state::{EntryAt, Sanitizer};

/// The most tables that are looked at for the ways to one entry.
const MOST_STEPS: u32 = 1 << 12;

impl Sanitizer {
    /// Translates `va` by a walk from the root, without caches.
    pub(crate) fn look(
        &self,
        memory: &(impl Memory + ?Sized),
        root: u64,
        va: u64,
    ) -> Result<Translation, Fault> {
        let arch = &self.config.arch;
        let mut table = root;
        let mut allowed = Perms::ALL;
        for (level, l) in arch.levels.iter().enumerate().rev() {
            let level = level as u8;
            let at = table.wrapping_add(l.index(va) * u64::from(l.entry_bytes));
            let raw = memory.read(at, l.entry_bytes).ok_or(Fault::OutsideMemory { level })?;
            match arch.entry(level, l.index(va), raw) {
                Entry::Empty => return Err(Fault::NotPresent { level }),
                Entry::Malformed => return Err(Fault::Malformed { level }),
                Entry::Leaf { phys, perms, global, accessed, memory_type } => {
                    let phys = phys.wrapping_add(va & ((1 << l.shift) - 1));
                    let perms = allowed & perms;
                    let from_tlb = false;
                    return Ok(Translation { phys, perms, level, global, memory_type, accessed, from_tlb });
                }
                Entry::Table { phys, perms } => {
                    table = phys;
                    allowed = allowed & perms;
                }
            }
        }
        // An entry of level 0 claims to be a table.
        Err(Fault::Malformed { level: 0 })
    }

    /// Returns the table of level 0 that has the entry of `va`, in use or not.
    pub(crate) fn leaf_table(&self, memory: &(impl Memory + ?Sized), root: u64, va: u64) -> Option<u64> {
        let arch = &self.config.arch;
        let mut table = root;
        for (level, l) in arch.levels.iter().enumerate().skip(1).rev() {
            let raw =
                memory.read(table.wrapping_add(l.index(va) * u64::from(l.entry_bytes)), l.entry_bytes)?;
            let Entry::Table { phys, .. } = (arch.decode)(level as u8, raw) else { return None };
            table = phys;
        }
        Some(table)
    }

    /// Returns whether the reference still stands for a table.
    pub(crate) fn is_table(&self, at: FrameRef) -> bool {
        self.frames.get(at).is_some_and(|f| f.state == State::Allocated)
    }

    pub(crate) fn points_at(&self, memory: &(impl Memory + ?Sized), link: Link, f: &Frame) -> bool {
        let arch = &self.config.arch;
        let Some(above) = f.level.map(|l| l + 1).filter(|&l| l <= arch.top()) else { return false };
        let Some(raw) = memory.read(link.entry, arch.levels[above as usize].entry_bytes) else {
            return false;
        };
        matches!((arch.decode)(above, raw), Entry::Table { phys, .. } if f.contains(phys))
    }

    /// Lists the roots and the addresses for which an entry is walked, as far as links are known
    /// and still hold. Trees that share a table have one each.
    pub(crate) fn ways_up(
        &self,
        memory: &(impl Memory + ?Sized),
        at: EntryAt,
        ways: &mut Vec<(FrameRef, u64)>,
    ) {
        ways.clear();
        let mut left = MOST_STEPS;
        self.climb(memory, at, 0, ways, &mut left);
    }

    /// Returns the first of these, by the link that was seen last.
    pub(crate) fn way_up(&self, memory: &(impl Memory + ?Sized), at: EntryAt) -> Option<(FrameRef, u64)> {
        let mut ways = Vec::new();
        self.ways_up(memory, at, &mut ways);
        ways.first().copied()
    }

    fn climb(
        &self,
        memory: &(impl Memory + ?Sized),
        at: EntryAt,
        below: u64,
        ways: &mut Vec<(FrameRef, u64)>,
        left: &mut u32,
    ) {
        let arch = &self.config.arch;
        let (mut at, mut va) = (at, below);
        loop {
            let Some(one_less) = left.checked_sub(1) else { return };
            *left = one_less;
            let EntryAt { entry, table, level } = at;
            let Some(f) = self.frames.get(table).filter(|f| f.level == Some(level)) else { return };
            let l = &arch.levels[usize::from(level)];
            let Some(offset) = entry.checked_sub(f.phys) else { return };
            let index = offset >> l.entry_bytes.trailing_zeros();
            if index >= l.entries() as u64 {
                return;
            }
            va |= index << l.shift;
            if level == arch.top() {
                ways.push((table, arch.extend(va)));
                return;
            }
            let above = |link: Link| EntryAt { entry: link.entry, table: link.parent, level: level + 1 };
            if let Some(only) = f.only_link() {
                // The usual case goes up without a call.
                if !self.points_at(memory, only, f) {
                    return;
                }
                at = above(only);
                continue;
            }
            for link in f.links() {
                if self.points_at(memory, link, f) {
                    self.climb(memory, above(link), va, ways, left);
                }
            }
            return;
        }
    }
}
