//! What a node keeps: of each class a depot, and what came home from other nodes.
use super::call::Call;
use super::shard::Shard;
use super::{CLASSES, TOP};
use crate::bootmem::BootSlice;
use crate::cpu::CpuId;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::sync::atomic::AtomicBool;

/// Shards of a depot at the most.
const SHARDS: usize = 4;
/// Pages that can wait to be taken into the depot by a CPU of the node.
const REMOTE: usize = 256;
/// They are at most 1/`REMOTE_PART` of what the node may keep.
const REMOTE_PART: u32 = 8;
/// Pages of a magazine at the least, where there is caching at all: what comes from the allocator at once is one magazine.
const LEAST: u8 = 4;
/// Tops are fewer, and come one by one.
const LEAST_TOPS: u8 = 2;
/// A magazine holds at most 2^-`PART` of what the depot does, divided by the number of *other* CPUs: as each CPU has two, what rests
/// on others is at most half of what the depot has.
const PART: u32 = 2;
/// But no CPU gives up 2^-`LITTLE` of what a node has in use or keeps, divided by the number of CPUs: all magazines together hold an
/// eighth.
const LITTLE: u32 = 4;

/// The logarithm of `n`, which is not 0, rounded up: numbers of CPUs are rounded up to powers of two, as a division would be a
/// good part of what an exchange takes.
fn log2(n: u32) -> u32 {
    (n - 1).checked_ilog2().map_or(0, |log| log + 1)
}

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

impl Node {
    /// One whose shelves may hold nothing yet.
    pub fn new(shelves: [Shelf; CLASSES]) -> Self {
        let (basis, setting) = (AtomicU32::new(0), SpinLock::new(()));
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

/// A node's pages of one class.
///
/// The depot is in shards, at most [`SHARDS`]: each CPU leaves pages in its own first and looks for them there first, so that CPUs
/// that have enough of their own do not wait for each other. What one shard has no room for another one takes, and who finds
/// nothing in one finds what is in the others.
#[repr(C, align(128))]
pub(super) struct Shelf {
    /// A power of two of them.
    shards: BootSlice<Shard>,
    /// CPUs that take part: those with pages of the class at hand, or that had some since they last gave up all.
    holders: AtomicU32,
    /// Pages that came home, written under that lock.
    came: AtomicU32,
    /// How many may wait.
    remote_limit: AtomicU32,
    /// Pages of the class that the node has in use or keeps. Changed when a page comes from or goes to the allocator.
    pub pages: AtomicU32,
    /// Pages of a magazine at the least and at the most.
    least: u8,
    most: u8,
    /// The node's CPUs have been called because of this class, and none has left anything here since. A hint, which models
    /// leave alone.
    called: AtomicBool,
    remote: SpinLock<Remote>,
}

#[cfg(not(loom))]
const _: () =
    assert!(core::mem::offset_of!(Shelf, called) < 64 && core::mem::offset_of!(Shelf, remote) == 128);

impl Shelf {
    /// One that holds nothing, for magazines of up to `magazine` pages.
    pub fn new(shards: BootSlice<Shard>, class: usize, magazine: usize) -> Self {
        debug_assert!(shards.len().is_power_of_two());
        let most = magazine as u8;
        let least = if class == TOP { LEAST_TOPS } else { LEAST };
        Shelf {
            shards,
            remote: SpinLock::new(Remote { items: [0; REMOTE], n: 0 }),
            came: AtomicU32::new(0),
            remote_limit: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            holders: AtomicU32::new(0),
            least: least.min(most),
            most,
            called: AtomicBool::new(false),
        }
    }

    /// How many shards there are where `cpus` CPUs may be on a node.
    pub fn shards_for(cpus: usize) -> usize {
        cpus.min(SHARDS).next_power_of_two()
    }

    /// All shards, a CPU's own first.
    #[inline(always)]
    fn from(&self, cpu: CpuId) -> impl Iterator<Item = &Shard> {
        let (own, mask) = (usize::from(cpu.0), self.shards.len() - 1);
        (0..self.shards.len()).map(move |i| &self.shards[(own + i) & mask])
    }

    /// Pages in the depot.
    pub fn held(&self) -> u32 {
        self.shards.iter().map(Shard::held).sum()
    }

    /// Pages that came home and wait.
    pub fn came(&self) -> u32 {
        self.came.load(Relaxed)
    }

    /// Sets what may be kept: `pages`, of which a part is for pages that come home, where there are other nodes.
    fn set_limit(&self, pages: u32, other_nodes: bool) {
        let remote = if other_nodes { (pages / REMOTE_PART).min(REMOTE as u32) } else { 0 };
        self.remote_limit.store(remote, Relaxed);
        let (mut rest, mut shards) = (pages - remote, self.shards.len() as u32);
        for shard in &*self.shards {
            let part = rest.div_ceil(shards);
            shard.set_limit(part);
            (rest, shards) = (rest - part, shards - 1);
        }
    }

    /// Whether it holds more than it may.
    pub fn is_over(&self) -> bool {
        self.shards.iter().any(Shard::is_over) || self.came() > self.remote_limit.load(Relaxed)
    }

    /// The size that a CPU's magazine should have at the moment. A CPU that is the only one with pages at hand keeps them from nobody.
    /// Where there are several their magazines are scaled to the depot: while it has plenty they rarely come here, and as it
    /// runs low they leave what they have to others; as far as that is not little anyway beside what the node has in use.
    pub fn magazine(&self, cpu: CpuId) -> u32 {
        let (least, most) = (self.least.into(), self.most.into());
        let holders = self.holders.load(Relaxed);
        if holders <= 1 {
            return most;
        }
        let little = self.pages.load(Relaxed) >> (LITTLE + log2(holders));
        let part = PART + log2(holders - 1);
        // Other CPUs write to other shards: those are looked at if this CPU's own does not say enough.
        let mut held = 0;
        for shard in self.from(cpu) {
            if held >= most << part || little >= most {
                break;
            }
            held += shard.held();
        }
        (held >> part).max(little).clamp(least, most)
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

    /// Takes in as many of a CPU's pages, the first ones, as it may hold; how many.
    pub fn store(&self, cpu: CpuId, items: &[u32]) -> usize {
        let mut stored = 0;
        for shard in self.from(cpu) {
            stored += shard.store(&items[stored..]);
            if stored == items.len() {
                break;
            }
        }
        if self.called.load(Relaxed) {
            self.called.store(false, Relaxed);
        }
        stored
    }

    /// Takes pages in from a CPU of another node; how many.
    pub fn store_remote(&self, cpu: CpuId, items: &[u32]) -> usize {
        let mut remote = self.remote.lock();
        let (n, after) = (remote.n, remote.n + items.len());
        if after > self.remote_limit.load(Relaxed) as usize {
            // Nobody of this node has come by for long: then nobody waits at its depot either.
            drop(remote);
            return self.store(cpu, items);
        }
        remote.items[n..after].copy_from_slice(items);
        remote.n = after;
        self.came.store(after as u32, Relaxed);
        items.len()
    }

    /// Moves pages to `into`: what came home first, and only if that is nothing what the depot has; how many.
    pub fn fetch(&self, cpu: CpuId, into: &mut [u32]) -> usize {
        match self.fetch_remote(into) {
            0 => self.from(cpu).map(|shard| shard.fetch(into)).find(|n| *n > 0).unwrap_or(0),
            n => n,
        }
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
        self.shed_beyond(into, None)
    }

    /// Moves up to `into.len()` pages to `into`; how many. What came home goes last.
    pub fn shed(&self, into: &mut [u32]) -> usize {
        self.shed_beyond(into, Some(0))
    }

    fn shed_beyond(&self, into: &mut [u32], limit: Option<u32>) -> usize {
        let n = self.shards.iter().fold(0, |n, shard| n + shard.shed(&mut into[n..], limit));
        let remote_limit = limit.unwrap_or(self.remote_limit.load(Relaxed));
        let more = (self.came().saturating_sub(remote_limit) as usize).min(into.len() - n);
        n + self.fetch_remote(&mut into[n..n + more])
    }

    /// How many pages the depot held all the time since this was last asked, or [`reap`](Self::reap) called: of each shard the
    /// least that it held, which together is no more than that.
    pub fn unneeded(&self) -> usize {
        self.shards.iter().map(Shard::unneeded).sum()
    }

    /// Ends an interval and begins another: moves up to `into.len()` of the pages that nobody needed in it to `into`; how
    /// many. What came home joins the depot first, so that it grows old there if nobody needs it.
    pub fn reap(&self, into: &mut [u32]) -> usize {
        let reap = |n, shard: &Shard| n + shard.reap(&mut into[n..], |room| self.fetch_remote(room));
        self.shards.iter().fold(0, reap)
    }
}
