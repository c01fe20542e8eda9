//! Entries that come to be.
use super::Node;
use super::clear::Uncounted;
use super::lines::{Live, each_bit, touch_lines};
use crate::format::{Format, Slot};
use crate::frames::FrameMeta;
use crate::page::Level;
use crate::window::OpenWindow;

impl<F: Format, W: OpenWindow> Node<'_, F, W> {
    /// Puts `raw` where there is no entry. The caller has the tree for itself, or holds the table's
    /// lock.
    ///
    /// Entries that were empty need no flush: no MMU keeps those.
    #[inline(always)]
    pub fn put(&self, index: usize, raw: u64) {
        self.put_unmarked(index, raw);
        self.mark(self.line_of(index));
    }

    /// Notes in the record's map that an entry comes into the line.
    #[inline(always)]
    pub fn mark(&self, line: u32) {
        if let Some(record) = self.record() {
            record.touch(line);
        }
    }

    /// As [`put`](Self::put), into a line that has been marked already: another entry came there
    /// before, and tables have not lost entries since.
    #[inline(always)]
    pub fn put_unmarked(&self, index: usize, raw: u64) {
        let slot = self.slot(index);
        debug_assert!(F::is_none(slot.load()), "an entry over another one in the table at {}", self.at);
        slot.store(Self::over(slot, raw));
        if let Some(record) = self.record() {
            self.added(record, 1);
        }
    }

    /// `n` entries have been added.
    #[inline(always)]
    fn added(&self, record: &FrameMeta, n: u16) {
        if self.level != Level::PTE {
            record.set_live(record.live_above() + n);
        } else if record.is_counted() {
            record.add_live(n, self.entries().line_shift());
        }
    }

    /// Puts `raw` as the first entry of a leaf table that is clean, and that only the caller knows.
    /// Its record is complete then.
    #[inline(always)]
    pub fn put_first(&self, index: usize, raw: u64) {
        let slot = self.slot(index);
        debug_assert!(slot.load() == 0, "an entry in the new table at {}", self.at);
        slot.store(raw);
        if let Some(record) = self.record() {
            debug_assert!(record.touched() == 0);
            if const { F::KEPT == 0 } {
                record.set_sole(index as u16);
            } else {
                record.set_leaf_table();
                record.touch((index >> self.entries().line_shift()) as u32);
            }
        }
    }

    /// Puts `raw` into an empty entry, with other CPUs at work in the same leaf table; returns
    /// whether it was empty. Mostly the record is not written, and the next call that has the table
    /// for itself counts.
    #[inline]
    pub fn fill(&self, index: usize, raw: u64) -> bool {
        let slot = self.slot(index);
        let filled = if const { F::KEPT == 0 } { slot.fill(raw) } else { Self::fill_kept(slot, raw) };
        if filled && let Some(record) = self.record() {
            let shift = self.entries().line_shift();
            record.stop_counting(shift);
            record.touch_shared((index >> shift) as u32);
        }
        filled
    }

    /// As [`fill`](Self::fill), where the empty entry may have bits that stay.
    fn fill_kept(slot: &F::Slot, raw: u64) -> bool {
        let mut old = slot.load();
        while F::is_none(old) {
            match slot.exchange(old, raw | old) {
                Ok(()) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Merges `raw` with the kept bits of the empty entry in `slot`.
    #[inline(always)]
    fn over(slot: &F::Slot, raw: u64) -> u64 {
        if const { F::KEPT == 0 } { raw } else { raw | F::cleared(slot.load()) }
    }

    /// Puts `next(i)` into entries from `first` on, `n` at most, as long as they are empty; how
    /// many it were.
    #[inline]
    pub fn put_run(&self, first: usize, n: usize, mut next: impl FnMut() -> u64) -> usize {
        let mut done = 0;
        for slot in self.entries().slots(first, n) {
            if !F::is_none(slot.load()) {
                break;
            }
            slot.store(Self::over(slot, next()));
            done += 1;
        }
        if done > 0
            && let Some(record) = self.record()
        {
            self.added(record, done as u16);
            let shift = self.entries().line_shift();
            touch_lines(record, (first >> shift) as u32, ((first + done - 1) >> shift) as u32);
        }
        done
    }

    /// Writes all entries of a table that has none, and that nobody else writes to: `first`, and
    /// then `grow` more each.
    pub fn fill_all(&self, first: u64, grow: u64) {
        let (n, mut next) = (F::entries(self.level), first);
        for slot in self.entries().slots(0, n) {
            debug_assert!(F::is_none(slot.load()), "an entry in the empty table at {}", self.at);
            slot.store(next);
            next = next.wrapping_add(grow);
        }
        if let Some(record) = self.record() {
            record.set_counted(n as u16);
            touch_lines(record, 0, ((n - 1) >> self.entries().line_shift()) as u32);
        }
    }

    /// Puts `next(index)` where there is no entry of a leaf table, for each bit i of `live` and the
    /// entry `start` + i, all in one line.
    #[inline]
    pub fn put_line(&self, start: usize, live: Live, mut next: impl FnMut(usize) -> u64) {
        let Some(record) = self.record() else { return };
        // First, so that no entry goes unseen if `next` panics.
        let shift = self.entries().line_shift();
        record.touch((start >> shift) as u32);
        let uncounted = Uncounted { record, shift };
        each_bit(live, |i| {
            let slot = self.slot(start + i);
            debug_assert!(F::is_none(slot.load()), "an entry over another one in the table at {}", self.at);
            slot.store(Self::over(slot, next(start + i)));
        });
        core::mem::forget(uncounted);
        if record.is_counted() {
            record.add_live(live.count_ones() as u16, shift);
        }
    }
}
