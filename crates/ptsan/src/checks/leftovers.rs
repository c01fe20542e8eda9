//! Tables that become reachable with entries from before their allocation.
use crate::arch::Entry;
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, Leftovers};
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
        f.leftovers = Some(Leftovers::new(words));
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
        let arch = &self.config.arch;
        let bytes = arch.entry_bytes();
        let Some(f) = self.frames.get_mut(at) else { return };
        let Some(leftovers) = f.leftovers.take() else { return };
        let Some(level) = place.level.or(f.level) else { return };
        let start = f.phys;
        // Walkers read a part only of the frame of a root that has fewer entries. Several tables
        // announced as one are all read.
        let part = f.size <= arch.granule();
        let read =
            arch.levels.get(usize::from(level)).filter(|_| part).map_or(u32::MAX, |l| 1 << l.index_bits);
        let mut old = leftovers.iter().filter(|&(i, raw)| {
            i < read
                && memory.read(start.wrapping_add(u64::from(i) * u64::from(bytes)), bytes) == Some(raw)
                && (arch.decode)(level, raw) != Entry::Empty
        });
        if let Some((index, raw)) = old.next() {
            let more = old.count();
            self.report(Kind::LinkedBeforeCleared, Rule::OldContent, place, || {
                format!("entry {index} is still {raw:#x}, and {more} more")
            });
        }
    }
}
