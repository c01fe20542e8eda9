//! Counts the slots that sweeps found, by state.
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The slots that a sweep has looked at, by their state. The sum is the number of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Slots without users, which the sweep had every CPU forget.
    pub stale: usize,
    /// Slots with users, and those that were just being mapped.
    pub pinned: usize,
    /// Slots that were free already, in the shared set or at hand.
    pub free: usize,
}

impl SweepCounts {
    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.stale + self.pinned + self.free
    }
}

/// The sums over the sweeps of a pool so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Sweeps that ended.
    pub sweeps: usize,
    /// Sweeps that found nothing stale: they flushed nothing.
    pub idle_sweeps: usize,
    /// What all of them found.
    pub total: SweepCounts,
}

#[derive(Default)]
pub(super) struct SweepTally {
    sweeps: AtomicUsize,
    idle: AtomicUsize,
    stale: AtomicUsize,
    pinned: AtomicUsize,
    free: AtomicUsize,
}

impl SweepTally {
    pub fn add(&self, found: SweepCounts) {
        let add = |count: &AtomicUsize, n: usize| {
            if n != 0 {
                count.fetch_add(n, Ordering::Relaxed);
            }
        };
        add(&self.sweeps, 1);
        add(&self.idle, usize::from(found.stale == 0));
        add(&self.stale, found.stale);
        add(&self.pinned, found.pinned);
        add(&self.free, found.free);
    }

    pub fn get(&self) -> PoolCounts {
        let get = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        PoolCounts {
            sweeps: get(&self.sweeps),
            idle_sweeps: get(&self.idle),
            total: SweepCounts { stale: get(&self.stale), pinned: get(&self.pinned), free: get(&self.free) },
        }
    }
}
