//! How often what was flushed.
use super::scope::Scope;
use crate::cpu::Counter;

/// Flushes issued, counted once each at the CPU that asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushCounts {
    /// Of one page.
    pub page: usize,
    /// Of several pages, one by one.
    pub range: usize,
    /// Of a whole space.
    pub full: usize,
    /// Of a part of the kernel's half, or all of it.
    pub kernel: usize,
    /// Pages in all `page` and `range` flushes together.
    pub pages: usize,
    /// Stale pages that had been put into a hash table.
    pub hashed: usize,
    /// CPUs that were asked by others to forget something.
    pub asked: usize,
    /// Of these requests, those that came to a CPU that had reached the generation already.
    pub skipped: usize,
    /// Those that came to a CPU that was more than one step behind, and forgot the whole space.
    pub upgraded: usize,
    /// Chains that were parked.
    pub parked: usize,
    /// Of these, those that were flushed by force.
    pub forced: usize,
}

impl FlushCounts {
    pub(super) fn plus(self, t: &FlushTally) -> Self {
        let add = |a: usize, b: &Counter| a.wrapping_add(b.get());
        FlushCounts {
            page: add(self.page, &t.page),
            range: add(self.range, &t.range),
            full: add(self.full, &t.full),
            kernel: add(self.kernel, &t.kernel),
            pages: add(self.pages, &t.pages),
            hashed: add(self.hashed, &t.hashed),
            asked: add(self.asked, &t.asked),
            skipped: add(self.skipped, &t.skipped),
            upgraded: add(self.upgraded, &t.upgraded),
            parked: add(self.parked, &t.parked),
            forced: add(self.forced, &t.forced),
        }
    }
}

#[derive(Default)]
#[repr(align(128))]
pub(super) struct FlushTally {
    pub page: Counter,
    pub range: Counter,
    pub full: Counter,
    pub kernel: Counter,
    pub pages: Counter,
    pub hashed: Counter,
    pub asked: Counter,
    pub skipped: Counter,
    pub upgraded: Counter,
    pub parked: Counter,
    pub forced: Counter,
}

impl FlushTally {
    /// Counts a flush of a space.
    #[inline(always)]
    pub fn count(&self, scope: &Scope) {
        match scope {
            Scope::Page(_) => self.page.add(1),
            Scope::Range { .. } | Scope::Runs(_) => self.range.add(1),
            Scope::Full => self.full.add(1),
        }
        self.pages.add(scope.len() as usize);
    }
}
