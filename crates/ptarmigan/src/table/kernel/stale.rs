//! Collects the pages of a range that CPUs have to forget.
use super::claims::Span;
use crate::format::Format;
use crate::machine::{Machine, On};
use crate::tlb::{Facts, Runs, TlbRefusal};
use core::mem::ManuallyDrop;

/// Pages of the kernel's half that CPUs have to forget: flushed when this is dropped, also if a
/// callback panics.
pub(super) struct Stale<'a, M: Machine> {
    on: On<'a, M>,
    runs: Runs,
    /// Binary logarithm of the bytes of the smallest large page, if all pages are large; 0
    /// otherwise.
    large: u32,
    /// Binary logarithm of the bytes of the largest large page.
    largest: u32,
    /// Pages in it that were hashed.
    hashed: u32,
    /// Whether the flush of the range is still to come.
    owed: &'a mut bool,
}

impl<'a, M: Machine> Stale<'a, M> {
    /// Begins, if this CPU can flush at all. If a flush of the range is owed, everything in the
    /// range is stale.
    pub fn begin(on: On<'a, M>, range: Span, shift: u32, owed: &'a mut bool) -> Result<Self, TlbRefusal> {
        on.tlb().may_flush(on.pin())?;
        // Nobody knows the sizes of the pages in a range that owes a flush.
        let (runs, largest) = if *owed { (range.pages(shift), u32::MAX) } else { (Runs::new(shift), 0) };
        *owed = true;
        Ok(Stale { on, runs, large: 0, largest, hashed: 0, owed })
    }

    /// The CPU that changes the pages.
    pub fn on(&self) -> On<'a, M> {
        self.on
    }

    /// Notes that pages of a leaf table follow, by [`change`](Self::change).
    #[inline]
    pub fn pages_follow(&mut self) {
        self.large = 0;
    }

    /// Notes that `change` changes the entry of the page at `va`; it returns the entry, from before
    /// or after. Where the entry says that the page was not hashed, no CPU knows it.
    #[inline]
    pub fn change<F: Format>(&mut self, va: u64, change: impl FnOnce() -> u64) -> u64 {
        if const { F::KEPT == 0 } {
            self.insert(va);
            return change();
        }
        let raw = change();
        if F::cleared(raw) != 0 {
            self.hashed = self.hashed.saturating_add(1);
            self.insert(va);
        }
        raw
    }

    fn insert(&mut self, va: u64) {
        self.runs.insert(va, va.wrapping_add(1 << self.runs.shift()));
    }

    /// Notes that the large page of 2^`shift` bytes at `va` changes. As long as all pages are
    /// large, the flush names the first address of each.
    #[cold]
    pub fn change_large(&mut self, va: u64, shift: u32) {
        if self.runs.is_empty() {
            self.large = shift;
        }
        self.large = self.large.min(shift);
        self.largest = self.largest.max(shift);
        self.runs.insert(va, va.wrapping_add(1 << shift));
    }

    /// Notes that all pages in `bytes` bytes from `va` on change, or that their table goes, by
    /// [`flush_tables`](Self::flush_tables). No page of them was hashed.
    #[cold]
    pub fn change_all(&mut self, va: u64, bytes: u64) {
        (self.large, self.largest) = (0, u32::MAX);
        self.runs.insert(va, va.wrapping_add(bytes));
    }

    pub fn flush(self) -> Result<(), TlbRefusal> {
        ManuallyDrop::new(self).flush_now()
    }

    /// Flushes the pages, and links to tables that have their addresses.
    #[cold]
    pub fn flush_tables(self) -> Result<(), TlbRefusal> {
        let mut all = ManuallyDrop::new(self);
        all.on.tlb().flush_kernel_tables(all.on.pin(), &all.runs)?;
        *all.owed = false;
        Ok(())
    }

    /// Flushes the pages that are stale so far; the range owes its flush until the last one.
    #[cold]
    pub fn flush_so_far(&mut self) -> Result<(), TlbRefusal> {
        self.flush_pages()?;
        self.runs.clear();
        (self.largest, self.hashed) = (0, 0);
        Ok(())
    }

    fn flush_now(&mut self) -> Result<(), TlbRefusal> {
        self.flush_pages()?;
        *self.owed = false;
        Ok(())
    }

    fn flush_pages(&self) -> Result<(), TlbRefusal> {
        let facts = Facts { hashed: Some(self.hashed as u64), ..Facts::UNKNOWN };
        let mut runs = if self.large == 0 { self.runs } else { self.runs.coarser(self.large) };
        if self.largest > self.large {
            runs.mix();
        }
        self.on.tlb().flush_kernel_with(self.on.pin(), &runs, &facts)
    }
}

impl<M: Machine> Drop for Stale<'_, M> {
    fn drop(&mut self) {
        let done = self.flush_now();
        debug_assert!(done.is_ok(), "the CPU could flush when this was made");
    }
}
