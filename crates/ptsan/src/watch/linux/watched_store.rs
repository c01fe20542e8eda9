//! Tells the sanitizer more about a watched store than its hooks do.
use crate::shadow::Told;
use crate::{Memory, Sanitizer};
use std::ops::Range;

impl Sanitizer {
    /// Records that these bytes were stored to, whether they changed or not: entries that they
    /// cover are new.
    pub(super) fn overwritten(&mut self, bytes: Range<u64>) {
        let size = u64::from(self.config.arch.entry_bytes());
        let first = bytes.start.next_multiple_of(size);
        for entry in (first..bytes.end).step_by(size as usize).filter(|entry| entry + size <= bytes.end) {
            if let Some(table) = self.frames.find(entry).filter(|&f| self.is_table(f)) {
                self.forget_leftover(table, entry);
            }
        }
    }

    /// Tells of a store to an entry that held `old` just before, even if the store before this one
    /// was not told. An atomic store loses no bit that hardware set.
    pub(super) fn entry_changed(
        &mut self,
        memory: &(impl Memory + ?Sized),
        entry: u64,
        old: u64,
        atomic: bool,
    ) {
        if let Some(frame) = self.frames.find(entry).filter(|&f| self.is_table(f)) {
            let bytes = u64::from(self.config.arch.entry_bytes());
            let since = self.event;
            if let Some(f) = self.frames.get(frame) {
                let index = ((entry - f.phys) / bytes) as usize;
                // A value that was not told before may have come just now.
                if f.told.get(index).is_none_or(|told| told.raw != old) {
                    self.tell(frame, index, Told { raw: old, since });
                }
            }
        }
        if atomic { self.entry_exchanged(memory, entry) } else { self.entry_written(memory, entry) }
    }
}
