//! What a node keeps of one class: the depot, and what came home from other nodes.
use super::depot::Depot;
use super::magazine::MAGAZINE;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Pages that can wait to be taken into the depot by a CPU of the node.
const REMOTE: usize = 256;
/// They are at most 1/`REMOTE_PART` of what the node may keep.
const REMOTE_PART: u32 = 8;

/// What other nodes' CPUs have freed of this node's pages, after the flush like all others. They come here in batches, so that
/// neither they nor this node's CPUs wait for each other at the depot.
///
/// On lines of their own: who sends pages home does not take the depot's from this node's CPUs.
#[repr(align(128))]
struct Remote {
    items: [u32; REMOTE],
    n: usize,
}

/// A node's pages of one class. All that an exchange touches but the pages' numbers is on one line.
#[repr(C, align(128))]
pub(super) struct Shelf {
    depot: SpinLock<Depot>,
    /// What the depot holds, written under its lock, for a look without it.
    held: AtomicU32,
    /// What the depot may hold at the moment: its part of the allowance, and what came home has another. Each is kept to by
    /// who holds the lock, and nobody has to count both together.
    limit: AtomicU32,
    /// Pages of the class that the node has in use or keeps. Changed when a page comes from or goes to the allocator.
    pub pages: AtomicU32,
    /// CPUs that take part: those with pages of the class at hand, or that had some since they last gave up all.
    pub holders: AtomicU32,
    /// The size that magazines should have, worked out when `pages` or `holders` change.
    pub magazine: AtomicU32,
    /// Pages that came home, written under that lock.
    came: AtomicU32,
    /// How many may wait.
    remote_limit: AtomicU32,
    remote: SpinLock<Remote>,
}

#[cfg(not(loom))]
const _: () =
    assert!(core::mem::offset_of!(Shelf, magazine) < 64 && core::mem::offset_of!(Shelf, remote) == 128);

impl Shelf {
    pub fn new(depot: Depot, magazine: u32) -> Self {
        Shelf {
            depot: SpinLock::new(depot),
            remote: SpinLock::new(Remote { items: [0; REMOTE], n: 0 }),
            held: AtomicU32::new(0),
            came: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            remote_limit: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            holders: AtomicU32::new(0),
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

    /// Sets what may be kept: `pages`, of which a part is for pages that come home, where there are other nodes.
    pub fn set_limit(&self, pages: u32, other_nodes: bool) {
        let remote = if other_nodes { (pages / REMOTE_PART).min(REMOTE as u32) } else { 0 };
        self.limit.store(pages - remote, Relaxed);
        self.remote_limit.store(remote, Relaxed);
    }

    fn limit(&self) -> usize {
        self.limit.load(Relaxed) as usize
    }

    /// Whether it holds more than it may.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.held() > self.limit.load(Relaxed) || self.came() > self.remote_limit.load(Relaxed)
    }

    /// Whether there is nothing.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.held() == 0 && self.came() == 0
    }

    /// Takes pages in, all or none: none if there would be more than the limit then.
    pub fn store(&self, items: &[u32]) -> bool {
        self.with(|depot| depot.store(items, self.limit()))
    }

    /// Takes pages in from a CPU of another node, all or none.
    pub fn store_remote(&self, items: &[u32]) -> bool {
        let mut remote = self.remote.lock();
        let (n, after) = (remote.n, remote.n + items.len());
        if after > self.remote_limit.load(Relaxed) as usize {
            // Nobody of this node has come by for long: then nobody waits at its depot either.
            drop(remote);
            return self.store(items);
        }
        remote.items[n..after].copy_from_slice(items);
        remote.n = after;
        self.came.store(after as u32, Relaxed);
        true
    }

    /// Moves pages to `into`: what came home first, and only if that is nothing what the depot has; how many.
    pub fn fetch(&self, into: &mut [u32]) -> usize {
        let mut n = self.fetch_remote(into);
        if n == 0 && self.held() > 0 {
            n = self.with(|depot| depot.fetch(into));
        }
        n
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

    /// Moves up to `into.len()` of the pages beyond what may be kept to `into`; how many.
    pub fn shed_excess(&self, into: &mut [u32]) -> usize {
        self.shed_beyond(into, self.limit(), self.remote_limit.load(Relaxed) as usize)
    }

    /// Moves up to `into.len()` pages to `into`; how many. What came home goes last.
    pub fn shed(&self, into: &mut [u32]) -> usize {
        self.shed_beyond(into, 0, 0)
    }

    fn shed_beyond(&self, into: &mut [u32], limit: usize, remote_limit: usize) -> usize {
        let n = self.with(|depot| depot.shed(into, limit));
        let more = (self.came() as usize).saturating_sub(remote_limit).min(into.len() - n);
        n + self.fetch_remote(&mut into[n..n + more])
    }

    /// How many pages the depot held all the time since this was last asked, or [`reap`](Self::reap) called.
    pub fn unneeded(&self) -> usize {
        self.with(Depot::unneeded)
    }

    /// Ends an interval and begins another: moves up to `into.len()` of the pages that nobody needed in it to `into`; how
    /// many. What came home joins the depot first, so that it grows old there if nobody needs it.
    pub fn reap(&self, into: &mut [u32]) -> usize {
        self.with(|depot| {
            let n = depot.reap(into);
            let mut home = [0; MAGAZINE];
            let room = depot.room(self.limit()).min(MAGAZINE);
            let came = self.fetch_remote(&mut home[..room]);
            let stored = depot.store(&home[..came], usize::MAX);
            debug_assert!(stored, "there was room for them");
            n
        })
    }
}
