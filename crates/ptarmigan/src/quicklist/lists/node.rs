//! What a node keeps: of each class a depot, and what came home from other nodes.
use super::call::Call;
use super::depot::Depot;
use super::magazine::MAGAZINE;
use super::{CLASSES, TOP};
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::sync::atomic::AtomicBool;

/// Pages that can wait to be taken into the depot by a CPU of the node.
const REMOTE: usize = 256;
/// They are at most 1/`REMOTE_PART` of what the node may keep.
const REMOTE_PART: u32 = 8;
/// Pages of a magazine at the least, where there is caching at all: what comes from the allocator at once is one magazine.
const LEAST: u8 = 4;
/// Tops are fewer, and come one by one.
const LEAST_TOPS: u8 = 2;
/// A magazine holds at most 1/`PART` of what the depot does, divided by the number of *other* CPUs: as each CPU has two, what rests on
/// others is at most half of what the depot has.
const PART: u32 = 4;

/// What other nodes' CPUs have freed of this node's pages, after the flush like all others. They come here in batches, so that
/// neither they nor this node's CPUs wait for each other at the depot.
///
/// On lines of their own: who sends pages home does not take the depot's from this node's CPUs.
#[repr(align(128))]
struct Remote {
    items: [u32; REMOTE],
    n: usize,
}

/// A node: what it keeps, and what it wants of its CPUs.
pub(super) struct Node {
    pub shelves: [Shelf; CLASSES],
    pub call: Call,
    /// What the shelves' limits were worked out from. Written by who holds the lock, after the limits.
    basis: AtomicU32,
    setting: SpinLock<()>,
}

/// More than any node has: no limits were set yet.
const NOTHING: u32 = u32::MAX;

impl Node {
    pub fn new(shelves: [Shelf; CLASSES]) -> Self {
        let (basis, setting) = (AtomicU32::new(NOTHING), SpinLock::new(()));
        Node { shelves, call: Call::new(), basis, setting }
    }

    /// Whether the shelves' limits are those of `basis` already.
    #[inline(always)]
    pub fn has_limits_of(&self, basis: u32) -> bool {
        self.basis.load(Relaxed) == basis
    }

    /// Sets the shelves' limits, and calls the node's CPUs if some holds more. One at a time, each by what is true when it is its
    /// turn: else an old limit could be set over a new one, and what it was worked out from be taken for the new one's.
    pub fn set_limits(
        &self,
        basis: impl FnOnce() -> u32,
        limits: impl FnOnce(u32) -> [u32; CLASSES],
        other_nodes: bool,
    ) {
        let _turn = self.setting.lock();
        let basis = basis();
        for (shelf, pages) in self.shelves.iter().zip(limits(basis)) {
            shelf.set_limit(pages, other_nodes);
            if shelf.is_over() {
                self.call.over();
            }
        }
        self.basis.store(basis, Relaxed);
    }
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
    /// CPUs that take part: those with pages of the class at hand, or that had some since they last gave up all.
    holders: AtomicU32,
    /// Pages that came home, written under that lock.
    came: AtomicU32,
    /// How many may wait.
    remote_limit: AtomicU32,
    /// Pages of a magazine at the least and at the most.
    least: u8,
    most: u8,
    /// The node's CPUs have been called because of this class, and none has left anything here since. A hint, which models
    /// leave alone.
    called: AtomicBool,
    /// Pages of the class that the node has in use or keeps. Changed when a page comes from or goes to the allocator.
    pub pages: AtomicU32,
    remote: SpinLock<Remote>,
}

#[cfg(not(loom))]
const _: () =
    assert!(core::mem::offset_of!(Shelf, called) < 64 && core::mem::offset_of!(Shelf, remote) == 128);

impl Shelf {
    /// One that holds nothing, for magazines of up to `magazine` pages.
    pub fn new(depot: Depot, class: usize, magazine: usize) -> Self {
        let most = magazine as u8;
        let least = if class == TOP { LEAST_TOPS } else { LEAST };
        Shelf {
            depot: SpinLock::new(depot),
            remote: SpinLock::new(Remote { items: [0; REMOTE], n: 0 }),
            held: AtomicU32::new(0),
            came: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            remote_limit: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            holders: AtomicU32::new(0),
            least: least.min(most),
            most,
            called: AtomicBool::new(false),
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
    fn set_limit(&self, pages: u32, other_nodes: bool) {
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

    /// The size that a magazine should have at the moment. A CPU that is the only one with pages at hand keeps them from nobody.
    /// Where there are several their magazines are scaled to the depot: while it has plenty they rarely come here, and as it
    /// runs low they leave what they have to others.
    pub fn magazine(&self) -> u32 {
        match self.holders.load(Relaxed) {
            0 | 1 => self.most.into(),
            holders => {
                let fair = (self.held() + self.came()) / (PART * (holders - 1));
                fair.clamp(self.least.into(), self.most.into())
            }
        }
    }

    /// Pages of the class have come to the node from the allocator (`change` > 0) or gone back to it.
    pub fn count(&self, change: i32) {
        self.pages.fetch_add(change as u32, Relaxed);
    }

    /// One more CPU takes part. Where there was one only, it is called.
    pub fn join(&self, call: &Call) {
        if self.holders.fetch_add(1, Relaxed) == 1 {
            call.short();
        }
    }

    /// A CPU takes no part any more.
    pub fn leave(&self) {
        self.holders.fetch_sub(1, Relaxed);
    }

    /// A page had to come from the allocator. Other CPUs may have some at hand, and are called; once, until one leaves some here.
    pub fn missed(&self, call: &Call) {
        if self.holders.load(Relaxed) > 1 && !self.called.load(Relaxed) {
            self.called.store(true, Relaxed);
            call.short();
        }
    }

    /// Takes pages in, all or none: none if there would be more than the limit then.
    pub fn store(&self, items: &[u32]) -> bool {
        let stored = self.with(|depot| depot.store(items, self.limit()));
        if self.called.load(Relaxed) {
            self.called.store(false, Relaxed);
        }
        stored
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
