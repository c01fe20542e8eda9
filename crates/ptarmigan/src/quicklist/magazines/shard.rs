//! A part of a depot, with a lock of its own.
use super::ring::Ring;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The pages that one CPU, or a few, leave and find first. All that an exchange writes but the
/// pages' numbers is on its line, so that CPUs with shards of their own do not take it from each
/// other.
#[repr(align(128))]
pub(super) struct Shard {
    ring: SpinLock<Ring>,
    /// The number of pages in the ring, written under its lock, for a look without it.
    held: AtomicU32,
    /// The number of pages that it may hold: its part of the depot's limit. Each shard is held to
    /// its own, so that no exchange counts all shards together.
    limit: AtomicU32,
}

impl Shard {
    pub fn new(ring: Ring) -> Self {
        Shard { ring: SpinLock::new(ring), held: AtomicU32::new(0), limit: AtomicU32::new(0) }
    }

    /// Works on the ring under its lock.
    fn with<R>(&self, work: impl FnOnce(&mut Ring) -> R) -> R {
        let mut ring = self.ring.lock();
        let result = work(&mut ring);
        self.held.store(ring.held() as u32, Relaxed);
        result
    }

    /// Returns the number of pages in it.
    #[inline]
    pub fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }

    #[inline]
    fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    /// Sets how many pages it may hold.
    pub fn set_limit(&self, pages: u32) {
        self.limit.store(pages, Relaxed);
    }

    /// Returns whether it holds more than it may.
    pub fn is_over(&self) -> bool {
        self.held() > self.limit()
    }

    /// Takes in the first of `items`, as many as it may hold. Returns how many.
    pub fn store(&self, items: &[u32]) -> usize {
        if self.held() >= self.limit() {
            return 0;
        }
        self.with(|ring| ring.store(items, self.limit() as usize))
    }

    /// Moves pages to `into`, the newest first. Returns how many.
    pub fn fetch(&self, into: &mut [u32]) -> usize {
        if self.held() == 0 {
            return 0;
        }
        self.with(|ring| ring.fetch(into))
    }

    /// Moves pages beyond `limit`, or beyond its capacity, to `into`, the oldest first. Returns how
    /// many.
    pub fn shed(&self, into: &mut [u32], limit: Option<u32>) -> usize {
        if into.is_empty() || self.held() <= limit.unwrap_or(self.limit()) {
            return 0;
        }
        self.with(|ring| ring.shed(into, limit.unwrap_or(self.limit()) as usize))
    }

    /// Ends an interval and begins the next. Moves pages that nobody needed in it to `into`. Then
    /// `join` may put as many pages in as there is room for. Returns how many pages nobody needed,
    /// and how many it moved.
    pub fn end_interval(&self, into: &mut [u32], join: impl FnOnce(&mut [u32]) -> usize) -> (usize, usize) {
        self.with(|ring| {
            let unneeded = ring.end_interval();
            let n = ring.shed(into, ring.held() - unneeded);
            let mut others = [0; super::MAGAZINE];
            let room = ring.room(self.limit() as usize).min(others.len());
            let came = join(&mut others[..room]);
            let stored = ring.store(others.get(..came).unwrap_or_default(), usize::MAX);
            debug_assert_eq!(stored, came, "there was room for them");
            (unneeded, n)
        })
    }
}
