//! The depot: a node's pages of one class, which its CPUs exchange magazines with.
use super::classes::ROOT;
use super::doorbell::Doorbell;
use super::ring::copy;
use super::shard::Shard;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::CpuId;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::sync::atomic::AtomicBool;

/// Shards of a depot at the most.
const SHARDS: usize = 4;
/// Remote returns that can wait for a CPU of the node.
const REMOTE: usize = 256;
/// They are at most 1/`REMOTE_PART` of the node's limit.
const REMOTE_PART: u32 = 8;
/// Pages of a magazine at the least, where there is caching at all: one request to the allocator
/// fills one magazine.
const LEAST: u8 = 4;
/// Root tables are fewer, and come one by one.
const LEAST_ROOTS: u8 = 2;
/// A magazine holds at most 2^-`PART` of the depot's pages, divided by the number of *other* CPUs.
/// As each CPU has two magazines, the pages that rest on other CPUs are at most half of those in
/// the depot.
const PART: u32 = 2;
/// But each CPU keeps 2^-`LITTLE` of the pages that the node uses or caches, divided by the number
/// of CPUs: all magazines together hold an eighth.
const LITTLE: u32 = 4;

/// Returns the logarithm of `n`, which is not 0, rounded up. Numbers of CPUs are rounded up to
/// powers of two, as a division would be a good part of an exchange's cost.
fn log2(n: u32) -> u32 {
    (n - 1).checked_ilog2().map_or(0, |log| log + 1)
}

/// Remote returns: pages of this node that CPUs of other nodes have freed, after the flush like all
/// others. They come in batches, so that neither those CPUs nor this node's wait for each other at
/// the depot.
///
/// It is on lines of its own: a CPU that sends pages home does not take the depot's lines from this
/// node's CPUs.
#[repr(align(128))]
struct Remote {
    items: BootSlice<u32>,
    n: usize,
}

/// A node's pages of one class.
///
/// The depot is in shards. Each CPU leaves pages in its own shard first and looks for them there
/// first, so that CPUs that have enough of their own do not wait for each other. Overflow spills
/// into the other shards, and an empty shard is refilled from them, so no page is stranded.
#[repr(C, align(128))]
pub(super) struct Depot {
    /// A power of two of them.
    shards: BootSlice<Shard>,
    /// The number of CPUs that take part: those with pages of the class at hand, or that had some
    /// since they last gave up all.
    holders: AtomicU32,
    /// The number of remote returns that wait, written under their lock.
    remote_held: AtomicU32,
    /// How many may wait.
    remote_limit: AtomicU32,
    /// The number of pages of the class that the node has in use or keeps. Changed when a page
    /// comes from or goes to the allocator.
    pub pages: AtomicU32,
    /// Pages of a magazine at the least and at the most.
    least: u8,
    most: u8,
    /// The doorbell was rung because of this class, and no CPU has left anything here since. A
    /// hint, which models leave alone.
    rung: AtomicBool,
    remote: SpinLock<Remote>,
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(Depot, rung) < 64 && core::mem::offset_of!(Depot, remote) == 128);

impl Depot {
    /// Makes an empty depot for magazines of up to `magazine` pages.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the remote returns do not fit.
    pub fn new(
        boot: &mut BootMemory,
        shards: BootSlice<Shard>,
        class: usize,
        magazine: usize,
    ) -> Result<Self, BootMemoryShort> {
        debug_assert!(shards.len().is_power_of_two());
        let most = magazine as u8;
        let least = if class == ROOT { LEAST_ROOTS } else { LEAST };
        Ok(Depot {
            shards,
            remote: SpinLock::new(Remote { items: boot.take(REMOTE, |_| 0)?, n: 0 }),
            remote_held: AtomicU32::new(0),
            remote_limit: AtomicU32::new(0),
            pages: AtomicU32::new(0),
            holders: AtomicU32::new(0),
            least: least.min(most),
            most,
            rung: AtomicBool::new(false),
        })
    }

    /// Returns the boot memory that [`new`](Self::new) takes.
    pub const fn bytes() -> usize {
        BootMemory::bytes::<u32>(REMOTE)
    }

    /// Returns how many shards there are where `cpus` CPUs may be on a node.
    pub fn shards_for(cpus: usize) -> usize {
        cpus.min(SHARDS).next_power_of_two()
    }

    /// Iterates over all shards, the CPU's own first.
    #[inline]
    fn from(&self, cpu: CpuId) -> impl Iterator<Item = &Shard> {
        let (own, mask) = (usize::from(cpu.0), self.shards.len() - 1);
        (0..self.shards.len()).filter_map(move |i| self.shards.get((own + i) & mask))
    }

    /// Returns the number of pages in the shards.
    pub fn held(&self) -> u32 {
        self.shards.iter().map(Shard::held).sum()
    }

    /// Returns the number of remote returns that wait.
    pub fn remote_held(&self) -> u32 {
        self.remote_held.load(Relaxed)
    }

    /// Sets the limits: `pages`. Where there are other nodes, a part of that is for remote returns.
    pub fn set_limit(&self, pages: u32, other_nodes: bool) {
        let remote = if other_nodes { (pages / REMOTE_PART).min(REMOTE as u32) } else { 0 };
        self.remote_limit.store(remote, Relaxed);
        let (mut rest, mut shards) = (pages - remote, self.shards.len() as u32);
        for shard in &*self.shards {
            let part = rest.div_ceil(shards.max(1));
            shard.set_limit(part);
            (rest, shards) = (rest - part, shards - 1);
        }
    }

    /// Returns whether it holds more than it may.
    pub fn is_over(&self) -> bool {
        self.shards.iter().any(Shard::is_over) || self.remote_held() > self.remote_limit.load(Relaxed)
    }

    /// Returns the size that a CPU's magazine should have now.
    ///
    /// A CPU that is the only one with pages at hand keeps them from nobody. Where there are
    /// several, their magazines are scaled to the depot. While it has plenty they rarely come here.
    /// As it runs low they give up their pages, except for a number that is small beside the pages
    /// that the node uses.
    pub fn magazine(&self, cpu: CpuId) -> u32 {
        let (least, most) = (self.least.into(), self.most.into());
        let holders = self.holders.load(Relaxed);
        if holders <= 1 {
            return most;
        }
        let little = self.pages.load(Relaxed) >> (LITTLE + log2(holders));
        let part = PART + log2(holders - 1);
        // Other CPUs write to other shards: those are read only if this CPU's own does not say
        // enough.
        let mut held = 0;
        for shard in self.from(cpu) {
            if held >= most << part || little >= most {
                break;
            }
            held += shard.held();
        }
        // Not `clamp`, which brings a panic with text for `least` above `most`.
        (held >> part).max(little).max(least).min(most)
    }

    /// Counts pages that have come to the node from the allocator (`change` > 0) or gone back to
    /// it.
    pub fn count(&self, change: i32) {
        self.pages.fetch_add(change as u32, Relaxed);
    }

    /// Counts one more CPU that takes part. Where there was one only, it is notified.
    pub fn join(&self, doorbell: &Doorbell) {
        if self.holders.fetch_add(1, Relaxed) == 1 {
            doorbell.ring_shortage();
        }
    }

    /// Counts one CPU less that takes part.
    pub fn leave(&self) {
        self.holders.fetch_sub(1, Relaxed);
    }

    /// Notifies the other CPUs that a page had to come from the allocator, as they may have some at
    /// hand. Once, until a CPU leaves some here.
    pub fn missed(&self, doorbell: &Doorbell) {
        if self.holders.load(Relaxed) > 1 && !self.rung.load(Relaxed) {
            self.rung.store(true, Relaxed);
            doorbell.ring_shortage();
        }
    }

    /// Takes in the first of a CPU's pages, as many as it may hold. Returns how many.
    pub fn store(&self, cpu: CpuId, items: &[u32]) -> usize {
        let mut stored = 0;
        for shard in self.from(cpu) {
            stored += shard.store(items.get(stored..).unwrap_or_default());
            if stored == items.len() {
                break;
            }
        }
        if self.rung.load(Relaxed) {
            self.rung.store(false, Relaxed);
        }
        stored
    }

    /// Takes in pages from a CPU of another node. Returns how many.
    pub fn store_remote(&self, cpu: CpuId, items: &[u32]) -> usize {
        let mut remote = self.remote.lock();
        let (n, after) = (remote.n, remote.n + items.len());
        if after <= self.remote_limit.load(Relaxed) as usize
            && let Some(room) = remote.items.get_mut(n..after)
        {
            copy(room, items);
            remote.n = after;
            self.remote_held.store(after as u32, Relaxed);
            return items.len();
        }
        // No CPU of this node has come by for long, so no CPU waits at its depot either.
        drop(remote);
        self.store(cpu, items)
    }

    /// Moves pages to `into`: remote returns first, then pages of the shards. Returns how many.
    pub fn fetch(&self, cpu: CpuId, into: &mut [u32]) -> usize {
        match self.fetch_remote(into) {
            0 => self.from(cpu).map(|shard| shard.fetch(into)).find(|n| *n > 0).unwrap_or(0),
            n => n,
        }
    }

    fn fetch_remote(&self, into: &mut [u32]) -> usize {
        if self.remote_held() == 0 {
            return 0;
        }
        let mut remote = self.remote.lock();
        debug_assert!(remote.n <= remote.items.len());
        let n = remote.n.min(into.len());
        remote.n -= n;
        copy(into, remote.items.get(remote.n..remote.n + n).unwrap_or_default());
        self.remote_held.store(remote.n as u32, Relaxed);
        n
    }

    /// Moves up to `into.len()` of the pages beyond its limit to `into`. Returns how many.
    pub fn shed_excess(&self, into: &mut [u32]) -> usize {
        self.shed_beyond(into, None)
    }

    /// Moves up to `into.len()` pages to `into`, remote returns last. Returns how many.
    pub fn shed(&self, into: &mut [u32]) -> usize {
        self.shed_beyond(into, Some(0))
    }

    fn shed_beyond(&self, into: &mut [u32], limit: Option<u32>) -> usize {
        let n = self
            .shards
            .iter()
            .fold(0, |n, shard| n + shard.shed(into.get_mut(n..).unwrap_or_default(), limit));
        let remote_limit = limit.unwrap_or(self.remote_limit.load(Relaxed));
        let more = self.remote_held().saturating_sub(remote_limit) as usize;
        let room = into.get_mut(n..).unwrap_or_default();
        let more = more.min(room.len());
        n + self.fetch_remote(room.get_mut(..more).unwrap_or_default())
    }

    /// Ends an interval and begins the next. Moves up to `into.len()` of the pages that nobody
    /// needed in it to `into`. Remote returns join the shards, so that they grow old there if
    /// nobody needs them.
    ///
    /// Returns how many pages nobody needed, and how many it moved. The first is the sum of the
    /// pages that each shard held all the time, so the depot held at least as many.
    pub fn end_interval(&self, into: &mut [u32]) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(unneeded, n), shard| {
            let (more, moved) =
                shard.end_interval(into.get_mut(n..).unwrap_or_default(), |room| self.fetch_remote(room));
            (unneeded + more, n + moved)
        })
    }
}
