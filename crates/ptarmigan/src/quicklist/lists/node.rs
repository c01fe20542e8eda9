//! What a node keeps of one class: the depot, and what came home from other nodes.
use super::depot::Depot;
use super::magazine::MAGAZINE;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Pages that can wait to be taken into the depot by a CPU of the node.
const REMOTE: usize = 256;

/// What other nodes' CPUs have freed of this node's pages, after the flush like all others. They come here in batches, so that
/// neither they nor this node's CPUs wait for each other at the depot.
struct Remote {
    items: [u32; REMOTE],
    n: usize,
}

/// A node's pages of one class.
pub(super) struct Shelf {
    depot: SpinLock<Depot>,
    remote: SpinLock<Remote>,
    /// What the depot holds, written under its lock, for a look without it.
    held: AtomicU32,
    /// The same of what came home.
    came: AtomicU32,
    /// What both hold together; room is taken here before pages go in, so that two who come at once do not exceed it.
    kept: AtomicU32,
    /// What both may hold at the moment.
    pub limit: AtomicU32,
    /// Pages of the class that the node has in use or keeps. Changed when a page comes from or goes to the allocator.
    pub pages: AtomicU32,
    /// The size that magazines should have, worked out when `pages` changes.
    pub magazine: AtomicU32,
}

impl Shelf {
    pub fn new(depot: Depot, magazine: u32) -> Self {
        Shelf {
            depot: SpinLock::new(depot),
            remote: SpinLock::new(Remote { items: [0; REMOTE], n: 0 }),
            held: AtomicU32::new(0),
            came: AtomicU32::new(0),
            kept: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            magazine: AtomicU32::new(magazine),
        }
    }

    /// Works on the depot under its lock.
    fn with<R>(&self, work: impl FnOnce(&mut Depot) -> R) -> R {
        let mut depot = self.depot.lock();
        let result = work(&mut depot);
        self.held.store(depot.held() as u32, Relaxed);
        result
    }

    /// Pages in the depot.
    pub fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }

    /// Pages that came home and wait.
    pub fn came(&self) -> u32 {
        self.came.load(Relaxed)
    }

    /// Whether it holds more than it may.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.kept.load(Relaxed) > self.limit.load(Relaxed)
    }

    /// Whether there is nothing.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.kept.load(Relaxed) == 0
    }

    /// Puts `n` pages in by `store` if the limit and `store` let them; whether they are in.
    fn put(&self, n: usize, store: impl FnOnce() -> bool) -> bool {
        let n = n as u32;
        let before = self.kept.fetch_add(n, Relaxed);
        if before + n <= self.limit.load(Relaxed) && store() {
            return true;
        }
        self.kept.fetch_sub(n, Relaxed);
        false
    }

    fn gone(&self, n: usize) -> usize {
        if n > 0 {
            self.kept.fetch_sub(n as u32, Relaxed);
        }
        n
    }

    /// Takes pages in, all or none: none if there would be more than the limit then.
    pub fn store(&self, items: &[u32]) -> bool {
        self.put(items.len(), || self.with(|depot| depot.store(items, usize::MAX)))
    }

    /// Takes pages in from a CPU of another node, all or none.
    pub fn store_remote(&self, items: &[u32]) -> bool {
        self.put(items.len(), || {
            let mut remote = self.remote.lock();
            let (n, after) = (remote.n, remote.n + items.len());
            if after > REMOTE {
                // Nobody of this node has come by for long: then nobody waits at its depot either.
                drop(remote);
                return self.with(|depot| depot.store(items, usize::MAX));
            }
            remote.items[n..after].copy_from_slice(items);
            remote.n = after;
            self.came.store(after as u32, Relaxed);
            true
        })
    }

    /// Moves pages to `into`: what came home first, and only if that is nothing what the depot has; how many.
    pub fn fetch(&self, into: &mut [u32]) -> usize {
        let mut n = self.fetch_remote(into);
        if n == 0 && self.held() > 0 {
            n = self.with(|depot| depot.fetch(into));
        }
        self.gone(n)
    }

    fn fetch_remote(&self, into: &mut [u32]) -> usize {
        if self.came() == 0 {
            return 0;
        }
        let mut remote = self.remote.lock();
        let n = remote.n.min(into.len());
        remote.n -= n;
        into[..n].copy_from_slice(&remote.items[remote.n..remote.n + n]);
        self.came.store(remote.n as u32, Relaxed);
        n
    }

    /// Moves up to `into.len()` of the pages beyond `limit` to `into`; how many. What came home goes last.
    pub fn shed(&self, into: &mut [u32], limit: usize) -> usize {
        let came = self.came() as usize;
        let mut n = self.with(|depot| depot.shed(into, limit.saturating_sub(came)));
        if n == 0 && came > limit {
            let most = (came - limit).min(into.len());
            n = self.fetch_remote(&mut into[..most]);
        }
        self.gone(n)
    }

    /// How many pages the depot held all the time since this was last asked, or [`reap`](Self::reap) called.
    pub fn unneeded(&self) -> usize {
        self.with(Depot::unneeded)
    }

    /// Ends an interval and begins another: moves up to `into.len()` of the pages that nobody needed in it to `into`; how
    /// many. What came home joins the depot first, so that it grows old there if nobody needs it.
    pub fn reap(&self, into: &mut [u32]) -> usize {
        let n = self.with(|depot| {
            let n = depot.reap(into);
            let mut home = [0; MAGAZINE];
            let room = depot.room().min(MAGAZINE);
            let came = self.fetch_remote(&mut home[..room]);
            let stored = depot.store(&home[..came], usize::MAX);
            debug_assert!(stored, "there was room for them");
            n
        });
        self.gone(n)
    }
}
