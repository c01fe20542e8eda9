//! The shape of a pool.
use super::error::PoolError;
use super::hook::MetricsHook;
use super::topology::Topology;
use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::quicklist::MAGAZINE;
use std::time::Duration;

/// Pages that a pool can have: 16 bytes of records each, which are written when it is made.
const MOST_PAGES: usize = 1 << 28;
/// The largest page, and the largest guard, in bytes.
const LARGEST: usize = 64 << 20;
/// Bytes of address space that a pool can have, guards included: half of what a process has.
const MOST_SPACE: u128 = if usize::BITS > 32 { 1 << 46 } else { 1 << 30 };
/// Bytes of a huge page of the host's.
pub(super) const HUGE: usize = 2 << 20;
/// Stacks per magazine: an idle thread keeps more memory in them than in pages.
const STACKS: usize = 16;
/// Threads that can have magazines of their own.
const MOST_THREADS: usize = 4096;

/// Where the memory of a node's pages lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// Where the thread runs that touches it first. The host is not asked.
    #[default]
    FirstTouch,
    /// On the node, while that has free memory (`mbind`, `MPOL_PREFERRED`). A host that refuses is
    /// counted, and memory lies as with [`FirstTouch`](Self::FirstTouch).
    Prefer,
    /// On the node, or not at all (`MPOL_BIND`): a host that refuses is an error when the pool is
    /// made, a node without memory ends the process when a page is touched.
    Strict,
}

/// Whether the host is asked for huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// For pages of 2 MiB and more.
    #[default]
    BySize,
    /// For all, also for those that then share a huge page of the host's. Pages with guards must be
    /// multiples of 2 MiB. A host without huge pages is counted.
    Advise,
    /// Never. A page then occupies only the 4 KiB pieces that were touched.
    Avoid,
}

/// The shape of a [`PagePool`](super::PagePool).
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Bytes of all pages, in use or not; cut down to as many whole pages for each node. It is the
    /// limit of the pages that can be handed out. Memory is taken only for touched pages, but for
    /// 16 bytes a page of the pool's own.
    pub capacity: usize,
    /// Bytes in a page: a multiple of the host's page size (4 KiB mostly), to 64 MiB. Pages without
    /// guards whose size is a power of two are aligned to it, others to the host's pages.
    pub page_size: usize,
    /// Bytes below each page that nobody can touch, outside its size: a multiple of the host's page
    /// size, to 64 MiB, or 0. They take address space, and no memory but for their part of the
    /// host's page tables.
    pub guard: usize,
    /// Threads that have magazines of their own, 0 to 4096; those beyond share some, behind a lock.
    /// A pool that may keep only few pages has fewer.
    pub threads: usize,
    /// Pages per magazine at the most, 0 to 64; a thread has two. Where there are several threads
    /// they are smaller while the pool has few pages in use. 0: no page is kept, every page goes to
    /// the host and comes from it.
    pub magazine: usize,
    /// Bytes that may be kept unused, magazines included. More than `capacity` is as much as
    /// `capacity`.
    pub keep: usize,
    /// Pages that were not needed for so long go back to the host; `None`: only
    /// [`trim`](super::PagePool::trim) gives back.
    pub decay: Option<Duration>,
    /// The host's nodes.
    pub topology: Topology,
    /// Whether the memory of a node's pages is bound to the node. Pools of one node do not ask the
    /// host.
    pub bind: Bind,
    /// Whether the host is asked for huge pages.
    pub huge: HugePages,
    /// The hook that hears of events that are no hits.
    pub hook: Option<MetricsHook>,
}

impl Default for PoolConfig {
    /// 1 GiB of address space, pages of 4 KiB, magazines for four threads a processor (16 at the
    /// least), all that is unused may be kept and decays in 10 seconds, nodes as the host says.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        PoolConfig {
            capacity: 1 << 30,
            page_size: FRAME_SIZE,
            guard: 0,
            threads: (4 * processors).clamp(16, MOST_THREADS),
            magazine: MAGAZINE,
            keep: usize::MAX,
            decay: Some(Duration::from_secs(10)),
            topology: Topology::detect(),
            bind: Bind::FirstTouch,
            huge: HugePages::BySize,
            hook: None,
        }
    }
}

impl PoolConfig {
    /// Describes a pool of `most` stacks of `size` bytes ([`PagePool::stacks`]): a guard of one
    /// page of the host's below each, memory on the node where there are several, no huge pages,
    /// and magazines of 16 stacks. Else as the default. Pages in the magazines of other threads
    /// count against `most`, so a pool for few stacks and many threads sets `magazine` lower.
    ///
    /// [`PagePool::stacks`]: super::PagePool::stacks
    pub fn stacks(size: usize, most: usize) -> Self {
        PoolConfig {
            capacity: size.saturating_mul(most),
            page_size: size,
            guard: rustix::param::page_size(),
            magazine: STACKS,
            bind: Bind::Prefer,
            huge: HugePages::Avoid,
            ..PoolConfig::default()
        }
    }
}

/// Values derived from a valid configuration.
pub(super) struct Shape {
    pub pages_per_node: u32,
    /// Pages that a node may keep.
    pub keep: u32,
    pub slots: u16,
    /// Bytes from the end of a page to the next: its guard, and the padding that aligns the page.
    pub gap: usize,
}

impl PoolConfig {
    pub(super) fn shape(&self) -> Result<Shape, PoolError> {
        let out = |what: String| Err(PoolError::OutOfRange(what));
        let (page, nodes) = (self.page_size, self.topology.nodes());
        let least = rustix::param::page_size().max(FRAME_SIZE);
        if !page.is_multiple_of(least) || !(least..=LARGEST).contains(&page) {
            return out(format!(
                "pages of {page} bytes: multiples of {least} from {least} to {LARGEST} will do"
            ));
        }
        if !self.guard.is_multiple_of(least) || self.guard > LARGEST {
            let guard = self.guard;
            return out(format!("guards of {guard} bytes: multiples of {least} from 0 to {LARGEST} will do"));
        }
        let huge = self.guard > 0 && self.huge == HugePages::Advise;
        if huge && !page.is_multiple_of(HUGE) {
            return out(format!("huge pages for guarded pages of {page} bytes: multiples of {HUGE} will do"));
        }
        let gap = if huge { self.guard.next_multiple_of(HUGE) } else { self.guard };
        let capacities = page * nodes..=(page as u128 * MOST_PAGES as u128).min(MOST_SPACE) as usize;
        if !capacities.contains(&self.capacity) {
            let (from, to) = (capacities.start(), capacities.end());
            return out(format!("{} bytes of capacity: {from} to {to} will do", self.capacity));
        }
        let pages = self.capacity / page;
        if pages as u128 * (page + gap) as u128 > MOST_SPACE {
            let most = MOST_SPACE / (page + gap) as u128;
            return out(format!("{pages} pages with guards: 1 to {most} will do"));
        }
        if self.threads > MOST_THREADS {
            return out(format!("magazines for {} threads: 0 to {MOST_THREADS} will do", self.threads));
        }
        if self.magazine > MAGAZINE {
            return out(format!("magazines of {} pages: 0 to {MAGAZINE} will do", self.magazine));
        }
        let pages_per_node = (self.capacity / page / nodes) as u32;
        let keep = (self.keep / page / nodes).min(pages_per_node as usize) as u32;
        // Half of the limit is for magazines, two for each slot and two for threads without a slot.
        let slots = self.threads.min((keep as usize / 4).saturating_sub(1)) as u16;
        Ok(Shape { pages_per_node, keep, slots, gap })
    }
}
