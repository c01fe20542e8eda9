//! Tables that become reachable with entries from before their allocation.
use crate::arch::Entry;
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{Frame, FrameRef, Leftovers, State};
use crate::state::Sanitizer;

impl Sanitizer {
    pub(crate) fn remember_content(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef) {
        let bytes = self.config.arch.entry_bytes();
        let Some(f) = self.frames.get_mut(at) else { return };
        let entries = (f.size / u64::from(bytes)) as u32;
        let start = f.phys;
        let words = (0..entries).filter_map(|i| {
            let raw = memory.read(start.wrapping_add(u64::from(i) * u64::from(bytes)), bytes)?;
            Some((i, raw))
        });
        f.leftovers = Some(Box::new(Leftovers::new(words)));
        f.was_dirty = true;
    }

    /// Removes an entry that was stored to from the leftovers of its table: the new content may
    /// equal the old.
    pub(crate) fn forget_leftover(&mut self, table: FrameRef, entry: u64) {
        let bytes = u64::from(self.config.arch.entry_bytes());
        if let Some(f) = self.frames.get_mut(table)
            && let Some(leftovers) = &mut f.leftovers
        {
            // An allocation is small enough for a 32-bit index.
            leftovers.overwritten((entry.saturating_sub(f.phys) / bytes) as u32);
        }
    }

    /// Reports entries that are older than the allocation and that a walk would take for present.
    pub(crate) fn check_leftovers(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef, place: Place) {
        let Some(f) = self.frames.get_mut(at) else { return };
        let Some(leftovers) = f.leftovers.take() else { return };
        let Some(level) = place.level.or(f.level) else { return };
        let (start, size, lives) = (f.phys, f.size, (f.since, f.before));
        let arch = &self.config.arch;
        let bytes = arch.entry_bytes();
        // Walkers read a part only of the frame of a root that has fewer entries. Several tables
        // announced as one are all read.
        let part = size <= arch.granule();
        let read =
            arch.levels.get(usize::from(level)).filter(|_| part).map_or(u32::MAX, |l| 1 << l.index_bits);
        let mut old = leftovers.iter().filter(|&(i, raw)| {
            i < read
                && memory.read(start.wrapping_add(u64::from(i) * u64::from(bytes)), bytes) == Some(raw)
                && (arch.decode)(level, raw) != Entry::Empty
                && (self.tells || !self.may_be_new(memory, start, lives, level, i, raw))
        });
        if let Some((index, raw)) = old.next() {
            let more = old.count();
            // Findings that follow from these entries are the same mistake.
            if let Some(f) = self.frames.get_mut(at) {
                f.old_reported = true;
            }
            self.report(Kind::LinkedBeforeCleared, Rule::OldContent, place, || {
                format!("entry {index} is still {raw:#x}, and {more} more")
            });
        }
    }

    /// Returns whether an entry that equals the one of before the allocation may have been cleared
    /// and stored again, where stores are not told. `since` is the event of the allocation,
    /// `before` that of the one before it.
    ///
    /// * Another root has the same entry at the same place, as roots have that share the kernel's
    ///   tables.
    /// * It points at a table that is older than the last use of the frame, and in use still: such
    ///   a table is shared.
    /// * It points at a table that was allocated after the frame.
    fn may_be_new(
        &self,
        memory: &(impl Memory + ?Sized),
        table: u64,
        (since, before): (u64, Option<u64>),
        level: u8,
        index: u32,
        raw: u64,
    ) -> bool {
        let arch = &self.config.arch;
        let l = &arch.levels[usize::from(level)];
        if let Entry::Table { phys, .. } = (arch.decode)(level, raw)
            && let Some(below) = self.frames.find(phys).and_then(|f| self.frames.get(f))
            && below.state == State::Allocated
            && (below.since > since || before.is_some_and(|before| below.since < before))
        {
            return true;
        }
        let offset = u64::from(index) * u64::from(l.entry_bytes);
        let same = |root: u64| memory.read(root.wrapping_add(offset), l.entry_bytes) == Some(raw);
        let is_root = |f: &&Frame| f.level.is_none_or(|of| of == level) && f.phys != table;
        level == arch.top() && self.frames.allocated().filter(is_root).any(|f| same(f.phys))
    }
}
