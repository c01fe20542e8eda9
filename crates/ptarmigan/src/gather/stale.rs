//! The addresses that TLBs may know as they were.
use super::{Gather, GatherError};
use crate::machine::Machine;
use crate::tlb::Mmu;

impl<'a, M: Machine> Gather<'a, M> {
    /// Notes that entries that map `start..end` have lost a permission or have been cleared. An
    /// `end` of 0 is the end of the address space, so that `0..0` is all of it; otherwise the call
    /// has no effect if `end` is not above `start`.
    ///
    /// Pages may be larger than those that the gather was made for, so that its flush names no size
    /// ([`Scope::page_shift`](crate::tlb::Scope::page_shift)).
    #[inline]
    pub fn changed(&mut self, start: u64, end: u64) {
        self.largest = UNKNOWN;
        self.changed_pages(start, end);
    }

    /// As [`changed`](Self::changed), for pages of the size that the gather was made for.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) fn changed_pages(&mut self, start: u64, end: u64) {
        if start < end {
            self.changed_run(start, end);
        } else {
            // No run that grows reaches the end of the address space.
            self.runs.insert(start, end);
            self.large = 0;
        }
    }

    /// As [`changed`](Self::changed), for large pages of 2^`shift` bytes each; `start` and `end`
    /// are aligned to that, other bits are not looked at. As long as a gather is told of no smaller
    /// ones, its flush names the first address of each: MMUs forget a large page as a whole.
    ///
    /// # Errors
    ///
    /// [`GatherError::Stride`] for pages that are not larger than those that the gather was made
    /// for, or have more than 2^63 bytes.
    ///
    /// # Safety
    ///
    /// 1. No page in `start..end` was smaller than 2^`shift` bytes: TLBs that are told to forget
    ///    its first address forget all of it.
    pub unsafe fn large_changed(&mut self, start: u64, end: u64, shift: u32) -> Result<(), GatherError> {
        if shift <= self.runs.shift() || shift >= u64::BITS {
            return Err(GatherError::Stride(shift));
        }
        let within = !((1 << shift) - 1);
        let (start, end) = (start & within, end & within);
        self.largest = UNKNOWN;
        if start < end {
            self.changed_large(start, end, shift);
        } else {
            self.changed(start, end);
        }
        Ok(())
    }

    /// As [`large_changed`](Self::large_changed), for leaves of a format, with `start` below `end`.
    pub(crate) fn changed_large(&mut self, start: u64, end: u64, shift: u32) {
        self.largest = self.largest.max(shift as u8);
        if self.has_changes() && self.large == 0 {
            return self.changed_run(start, end);
        }
        self.runs.insert(start, end);
        self.large = if self.large == 0 { shift as u8 } else { self.large.min(shift as u8) };
        (self.start, self.end) = NO_PAGE;
    }

    /// As [`changed`](Self::changed), for `start` below `end`.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) fn changed_run(&mut self, start: u64, end: u64) {
        debug_assert!(start < end);
        if start == self.end {
            // An empty run grows from anywhere.
            self.end = end;
            return;
        }
        self.changed_elsewhere(start, end);
    }

    #[inline]
    fn changed_elsewhere(&mut self, start: u64, end: u64) {
        self.end_run();
        (self.start, self.end) = (start, end);
    }

    /// Keeps the run that grows with the others.
    #[inline]
    pub(super) fn end_run(&mut self) {
        if self.start != self.end {
            self.keep_run();
        }
        (self.start, self.end) = (0, 0);
    }

    /// As [`end_run`](Self::end_run), for a run that is not empty.
    #[inline]
    fn keep_run(&mut self) {
        if (self.start, self.end) == NO_PAGE {
            // A page follows, and not all are large any more.
            self.large = 0;
        } else {
            self.runs.insert(self.start, self.end);
        }
    }

    /// Whether it was noted where something has changed.
    #[inline(always)]
    pub(super) fn has_changes(&self) -> bool {
        self.start != self.end || !self.runs.is_empty()
    }

    /// Notes that a table was unlinked at `start..end` and linked elsewhere: paging-structure
    /// caches must forget the old way.
    pub fn table_moved(&mut self, start: u64, end: u64) {
        self.flags.tables_freed = true;
        self.changed(start, end);
    }

    /// Notes that an entry of a root that the MMU keeps in registers has changed.
    pub fn root_entry_changed(&mut self) {
        self.flags.reload_root = true;
    }

    /// Returns whether an MMU may hold a former translation of a page in `start..end`: an entry
    /// that comes there would meet it.
    pub(crate) fn is_stale(&self, start: u64, end: u64) -> bool {
        let meets = |(first, last)| first < end && (last == 0 || start < last);
        !self.private
            && (self.start < self.end && meets((self.start, self.end)) || self.runs.iter().any(meets))
    }

    /// Tells the MMU of the entries of `pages` pages from `va` on that it may use now, where it
    /// wants to know. They were empty; the first one is `raw`. So many levels of tables were
    /// `linked` for them.
    #[inline(always)]
    pub(crate) fn became_valid(&self, linked: u8, va: u64, pages: u64, raw: u64) {
        self.on.became_reachable(Some(self.space), linked, (va, self.runs.shift(), pages), 0, raw);
    }

    /// Tells the MMU of the entries of `pages` pages from `va` on that allow more than they did
    /// before, where it wants to know. The first one was `was` and is `raw`.
    #[inline(always)]
    pub(crate) fn gained(&self, va: u64, pages: u64, was: u64, raw: u64) {
        self.on.became_valid(Some(self.space), va, self.runs.shift(), pages, was, raw);
    }

    /// As [`became_valid`](Self::became_valid), for a leaf of 2^`shift` bytes that was `was`.
    #[inline]
    pub(crate) fn became_valid_leaf(&self, va: u64, shift: u32, was: u64, raw: u64) {
        self.on.became_valid(Some(self.space), va, shift, 1, was, raw);
    }

    /// As [`became_valid_leaf`](Self::became_valid_leaf), for a leaf whose entry was empty and for
    /// which so many levels of tables were `linked`.
    #[inline]
    pub(crate) fn became_reachable_leaf(&self, linked: u8, va: u64, shift: u32, raw: u64) {
        self.on.became_reachable(Some(self.space), linked, (va, shift, 1), 0, raw);
    }

    /// Forgets where something had changed.
    #[inline(always)]
    pub(super) fn nothing_stale(&mut self) {
        (self.start, self.end) = (0, 0);
        (self.large, self.largest) = (0, 0);
        self.runs.clear();
        self.flags.reload_root = false;
        if const { !<M::Shootdown as Mmu>::WALKS_TABLES } {
            self.runs.forget_hashed();
        }
    }

    /// Notes that anything may have changed.
    #[cold]
    pub(super) fn note_everything(&mut self) {
        self.runs.insert(0, 0);
        self.largest = UNKNOWN;
        self.flags.tables_freed = true;
        self.flags.reload_root = true;
    }
}

/// The size of pages that nobody told.
pub(super) const UNKNOWN: u8 = u8::MAX;

/// A run that grows of no page: all pages so far are large. No other run begins where it ends.
const NO_PAGE: (u64, u64) = (u64::MAX - 1, u64::MAX);
