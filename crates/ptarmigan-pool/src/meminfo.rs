//! Memory of a pool, as `/proc/meminfo` shows a machine's.
use super::PagePool;
use super::error::PoolError;
use super::state::PageState;
use ptarmigan::cpu::NodeId;
use std::fmt;

/// Memory of a pool, in bytes. Its [`Display`](fmt::Display) prints a line for each figure and each
/// node, in kB of 1024 bytes:
///
/// ```text
/// PoolTotal:         65536 kB
/// PoolFree:          65408 kB
/// PoolInUse:            64 kB
/// PoolCached:           64 kB
/// PoolCachedMax:     65536 kB
/// PoolGuards:         4096 kB
/// Node 0 PoolTotal:         65536 kB
/// Node 0 PoolFree:          65408 kB
/// Node 0 PoolCached:           0 kB
/// ```
///
/// A line is a name, a colon, spaces, a number, a space and `kB`. Lines of a node begin with
/// `Node`, a space, its number and a space. Names keep their meaning and their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolMemory {
    /// Bytes of all pages.
    pub total: usize,
    /// Of pages that are neither handed out nor kept: the host has their memory.
    pub free: usize,
    /// Of pages that are handed out.
    pub in_use: usize,
    /// Of pages that rest in magazines and depots.
    pub cached: usize,
    /// Of pages that may rest there.
    pub cached_max: usize,
    /// Of address space between the pages.
    pub guards: usize,
    /// By node.
    pub nodes: Vec<PoolNodeMemory>,
}

/// Memory of one node of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolNodeMemory {
    /// Bytes of its pages.
    pub total: usize,
    /// Of pages that are neither handed out nor kept.
    pub free: usize,
    /// Of pages that rest in its depot. Only a thread knows the pages in its magazines.
    pub cached: usize,
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, bytes: usize) -> fmt::Result {
    let spaces = 15_usize.saturating_sub(name.len());
    writeln!(f, "{name}:{:spaces$}{:>8} kB", "", bytes.div_ceil(1024))
}

impl fmt::Display for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "PoolTotal", self.total)?;
        line(f, "PoolFree", self.free)?;
        line(f, "PoolInUse", self.in_use)?;
        line(f, "PoolCached", self.cached)?;
        line(f, "PoolCachedMax", self.cached_max)?;
        line(f, "PoolGuards", self.guards)?;
        for (n, node) in self.nodes.iter().enumerate() {
            for (name, bytes) in
                [("PoolTotal", node.total), ("PoolFree", node.free), ("PoolCached", node.cached)]
            {
                write!(f, "Node {n} ")?;
                line(f, name, bytes)?;
            }
        }
        Ok(())
    }
}

impl<S: PageState> PagePool<S> {
    /// Returns the pool's memory by use, and by node. Takes no lock. Exact while no operation is in
    /// progress.
    ///
    /// ```
    /// use ptarmigan_pool::{PagePool, PoolConfig};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PagePool::stacks(PoolConfig::stacks(64 << 10, 1024))?;
    /// let stack = pool.page()?;
    /// drop(pool.page()?);
    /// let memory = pool.meminfo();
    /// assert_eq!((memory.in_use, memory.cached), (64 << 10, 64 << 10));
    /// println!("{memory}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn meminfo(&self) -> PoolMemory {
        let (core, size) = (self.core(), self.page_size());
        let (lists, frames) = (&core.lists, core.lists.source().frames());
        let nodes: Vec<_> = (0..frames.nodes())
            .map(NodeId)
            .map(|node| PoolNodeMemory {
                total: frames.node_frames(node) as usize * size,
                free: frames.node_free(node) as usize * size,
                cached: lists.in_depots(node) as usize * size,
            })
            .collect();
        let (stats, all) = (self.stats(), core.pages());
        PoolMemory {
            total: stats.capacity,
            free: nodes.iter().map(|node| node.free).sum(),
            in_use: stats.in_use,
            cached: stats.cached,
            cached_max: (0..frames.nodes())
                .map(|n| lists.node_counts(NodeId(n)).budget as usize * size)
                .sum(),
            guards: all * core.map().gap(),
            nodes,
        }
    }

    /// Returns the bytes of the pool that take memory of the host: pages of the host's that were
    /// touched and have not gone back. It takes a call of the host's for each 16 MiB of the pool,
    /// in use or not: it is not for each request.
    ///
    /// # Errors
    ///
    /// [`PoolError::Refused`] if the host does not say.
    pub fn resident(&self) -> Result<usize, PoolError> {
        self.core().workshop().arena.resident().map_err(PoolError::Refused)
    }
}
