//! The shape of a pool, and what can go wrong.
use super::topology::Topology;
use crate::addr::FRAME_SIZE;
use crate::quicklist::MAGAZINE;
use std::fmt;
use std::time::Duration;

/// Pages that a pool can have: 16 bytes of records each, which are written when it is made.
const MOST_PAGES: usize = 1 << 28;
/// The largest page, in bytes.
const LARGEST: usize = 2 << 20;
/// Threads that can have magazines of their own.
const MOST_THREADS: usize = 4096;

/// The shape of a [`PagePool`](super::PagePool).
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Bytes of address space, in use or not; cut down to as many whole pages for each node. Memory
    /// is taken for what is touched only, but for 16 bytes a page of the pool's own.
    pub capacity: usize,
    /// Bytes in a page, a power of two: the host's page size (4 KiB mostly) to 2 MiB. Pages are
    /// aligned to their size.
    pub page_size: usize,
    /// Threads that have magazines of their own, 0 to 4096; those beyond share some, behind a lock.
    /// A pool that may keep only few pages has fewer.
    pub threads: usize,
    /// Pages per magazine at the most, 0 to 64; a thread has two. Where there are several threads
    /// they are smaller while the pool has few pages in use. 0: nothing is kept, every page goes to
    /// the host and comes from it.
    pub magazine: usize,
    /// Bytes that may be kept unused, magazines included. More than `capacity` is as much as
    /// `capacity`.
    pub keep: usize,
    /// What nobody needed for so long goes back to the host; `None`: only
    /// [`trim`](super::PagePool::trim) gives back.
    pub decay: Option<Duration>,
    /// The host's nodes.
    pub topology: Topology,
}

impl Default for PoolConfig {
    /// 1 GiB of address space, pages of 4 KiB, magazines for four threads a processor (16 at the
    /// least), all that is unused may be kept and decays in 10 seconds, nodes as the host says.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        PoolConfig {
            capacity: 1 << 30,
            page_size: FRAME_SIZE,
            threads: (4 * processors).clamp(16, MOST_THREADS),
            magazine: MAGAZINE,
            keep: usize::MAX,
            decay: Some(Duration::from_secs(10)),
            topology: Topology::detect(),
        }
    }
}

/// What follows from a valid configuration.
pub(super) struct Shape {
    pub pages_per_node: u32,
    /// Pages that a node may keep.
    pub keep: u32,
    pub slots: u16,
    /// Binary logarithm of the page size, less that of a frame.
    pub shift: u32,
}

impl PoolConfig {
    pub(super) fn shape(&self) -> Result<Shape, PoolError> {
        let out = |what: String| Err(PoolError::OutOfRange(what));
        let (page, nodes) = (self.page_size, self.topology.nodes());
        let least = rustix::param::page_size().max(FRAME_SIZE);
        if !page.is_power_of_two() || !(least..=LARGEST).contains(&page) {
            return out(format!("pages of {page} bytes: powers of two from {least} to {LARGEST} will do"));
        }
        let capacities = page * nodes..=page * MOST_PAGES;
        if !capacities.contains(&self.capacity) {
            let (from, to) = (capacities.start(), capacities.end());
            return out(format!("{} bytes of capacity: {from} to {to} will do", self.capacity));
        }
        if self.threads > MOST_THREADS {
            return out(format!("magazines for {} threads: 0 to {MOST_THREADS} will do", self.threads));
        }
        if self.magazine > MAGAZINE {
            return out(format!("magazines of {} pages: 0 to {MAGAZINE} will do", self.magazine));
        }
        let pages_per_node = (self.capacity / page / nodes) as u32;
        let keep = (self.keep / page / nodes).min(pages_per_node as usize) as u32;
        // Half of what may be kept is for magazines, two for each slot and two for threads that
        // have none.
        let slots = self.threads.min((keep as usize / 4).saturating_sub(1)) as u16;
        Ok(Shape { pages_per_node, keep, slots, shift: (page / FRAME_SIZE).trailing_zeros() })
    }
}

/// What the state of a page may say that went wrong.
pub type StateError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no pool, or no page. Nothing has changed then.
#[derive(Debug)]
pub enum PoolError {
    /// A number of the configuration is out of range; the text says which range.
    OutOfRange(String),
    /// The host has no memory or no address space for the pool; the text says what it answered.
    Host(String),
    /// All pages are in use, or rest with other threads. Give pages back, or make a larger pool.
    Full {
        /// Bytes of pages that the pool has.
        capacity: usize,
        /// Bytes of pages that are handed out.
        in_use: usize,
        /// Bytes of pages that rest in magazines of other threads:
        /// [`hand_over`](super::PagePool::hand_over) there frees them.
        cached: usize,
    },
    /// The page could not be brought into its state; what the state's constructor said.
    State(StateError),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::OutOfRange(s) | PoolError::Host(s) => f.write_str(s),
            PoolError::Full { capacity, in_use, cached } => write!(
                f,
                "the pool of {capacity} bytes is full: {in_use} in use, {cached} with other threads; give pages back or make it larger"
            ),
            PoolError::State(e) => write!(f, "a page could not be constructed: {e}"),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PoolError::State(e) => Some(&**e),
            _ => None,
        }
    }
}
