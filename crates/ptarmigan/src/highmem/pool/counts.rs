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

/// Counts of sweeps, of idle ones, and of stale, pinned and free slots.
#[derive(Default)]
pub(super) struct SweepTally([AtomicUsize; 5]);

impl SweepTally {
    pub fn add(&self, found: SweepCounts) {
        let SweepCounts { stale, pinned, free } = found;
        for (count, n) in self.0.iter().zip([1, usize::from(stale == 0), stale, pinned, free]) {
            if n != 0 {
                count.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    pub fn get(&self) -> PoolCounts {
        let [sweeps, idle_sweeps, stale, pinned, free] =
            self.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        PoolCounts { sweeps, idle_sweeps, total: SweepCounts { stale, pinned, free } }
    }
}
