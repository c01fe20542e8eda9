//! A part of a node's depot, with a lock of its own.
use super::depot::Depot;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What one CPU, or a few, leave and find first. All that an exchange writes but the pages' numbers is on its line, so that CPUs
/// with shards of their own do not take it from each other.
#[repr(align(128))]
pub(super) struct Shard {
    depot: SpinLock<Depot>,
    /// What the depot holds, written under its lock, for a look without it.
    held: AtomicU32,
    /// What it may hold at the moment: its part of the node's allowance. Kept to by who holds the lock, so that nobody has to
    /// count all shards together.
    limit: AtomicU32,
}

impl Shard {
    pub fn new(depot: Depot) -> Self {
        Shard { depot: SpinLock::new(depot), held: AtomicU32::new(0), limit: AtomicU32::new(0) }
    }

    /// Works on the depot under its lock.
    fn with<R>(&self, work: impl FnOnce(&mut Depot) -> R) -> R {
        let mut depot = self.depot.lock();
        let result = work(&mut depot);
        self.held.store(depot.held() as u32, Relaxed);
        result
    }

    /// Pages in it.
    #[inline(always)]
    pub fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }

    #[inline(always)]
    fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// Sets how many it may hold.
    pub fn set_limit(&self, pages: u32) {
        self.limit.store(pages, Relaxed);
    }

    /// Whether it holds more than it may.
    pub fn is_over(&self) -> bool {
        self.held() > self.limit()
    }

    /// Takes in as many of `items` as it may hold, the first ones; how many.
    pub fn store(&self, items: &[u32]) -> usize {
        if self.held() >= self.limit() {
            return 0;
        }
        self.with(|depot| depot.store(items, self.limit() as usize))
    }

    /// Moves pages to `into`, those first that came last; how many.
    pub fn fetch(&self, into: &mut [u32]) -> usize {
        if self.held() == 0 {
            return 0;
        }
        self.with(|depot| depot.fetch(into))
    }

    /// Moves pages that it holds beyond `limit`, or beyond what it may, to `into`, the oldest first; how many.
    pub fn shed(&self, into: &mut [u32], limit: Option<u32>) -> usize {
        if into.is_empty() || self.held() <= limit.unwrap_or(self.limit()) {
            return 0;
        }
        self.with(|depot| depot.shed(into, limit.unwrap_or(self.limit()) as usize))
    }

    /// How many pages it held all the time since this was last asked, or [`reap`](Self::reap) called.
    pub fn unneeded(&self) -> usize {
        self.with(Depot::unneeded)
    }

    /// Ends an interval and begins another: moves pages that nobody needed in it to `into`; how many. Then `join` may put in as
    /// many as it likes of those that there is room for.
    pub fn reap(&self, into: &mut [u32], join: impl FnOnce(&mut [u32]) -> usize) -> usize {
        self.with(|depot| {
            let n = depot.reap(into);
            let mut others = [0; super::MAGAZINE];
            let room = depot.room(self.limit() as usize).min(others.len());
            let came = join(&mut others[..room]);
            let stored = depot.store(&others[..came], usize::MAX);
            debug_assert_eq!(stored, came, "there was room for them");
            n
        })
    }
}
