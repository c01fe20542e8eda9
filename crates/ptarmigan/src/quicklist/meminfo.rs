//! Memory in tables and in lists, as `/proc/meminfo` and `/sys/devices/system/node/nodeN/meminfo`
//! of Linux show it.
//!
//! No memory is allocated: a kernel writes [`Quicklists::meminfo`] into whatever it has. It looks
//! like this, with two nodes:
//!
//! ```text
//! MemTotal:         524284 kB
//! MemFree:          523992 kB
//! MemZero:               0 kB
//! LowTotal:         524284 kB
//! LowFree:          523992 kB
//! TableMemory:         292 kB
//! PageTables:          160 kB
//! Quicklists:          132 kB
//! QuicklistsCpu:       112 kB
//! QuicklistsMax:     32748 kB
//! Node 0 LowTotal:         262140 kB
//! Node 0 LowFree:          261848 kB
//! Node 0 TableMemory:         292 kB
//! Node 0 Quicklists:           20 kB
//! Node 0 QuicklistsMax:     16365 kB
//! Node 1 LowTotal:         262144 kB
//! ```
//!
//! **Format.** A line is a name, a colon, spaces, a number, a space and `kB`; lines of a node begin
//! with `Node`, a space, its number and a space. Names stay and keep their meaning and their order;
//! new ones may come in between. kB are 1024 bytes; amounts between two of them (tables smaller
//! than a frame) are rounded up.
//!
//! | name | meaning |
//! |---|---|
//! | `MemTotal`, `MemFree` | frames under management; free ones of these |
//! | `MemZero` | free and known to be zero |
//! | `HighTotal`, `HighFree` | the same of high memory; the nodes' add up to it. Left out on machines without, as are all names that begin with `High` |
//! | `LowTotal`, `LowFree` | the same without high memory; the nodes' add up to it |
//! | `TableMemory` | tables in use, and pages kept for tables, by home node; the nodes' add up to it |
//! | `PageTables` | tables in use: pages handed out and not taken back |
//! | `HighPageTables` | those of them that are in high memory |
//! | `Quicklists` | pages kept for tables, as in Linux 2.6.27; of a node: pages in its depots and its queue |
//! | `HighQuicklists` | those of them that are in high memory |
//! | `QuicklistsCpu` | those of them that CPUs have at hand; with the nodes' `Quicklists` this adds up to the whole |
//! | `QuicklistsMax` | the limit at the moment; the nodes' add up to it |
//!
//! `TableMemory` is `PageTables` and `Quicklists` together, at rest; while operations are in
//! progress each is off by the pages of these operations (I7). Only a CPU knows the pages that it
//! caches, so `QuicklistsCpu` is not reported by node.
use super::check::Check;
use super::{NodeCounts, PolicyCounts, Quicklists};
use crate::addr::FRAME_SHIFT;
use crate::cpu::NodeId;
use crate::frames::Frames;
use crate::page::{Construct, Layout, Level};
use crate::window::OpenWindow;
use core::fmt;

/// Memory of a whole machine. All in bytes; its [`lines`](Self::lines) name each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Under management.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Free and known to be zero.
    pub zero: u64,
    /// Under management, without high memory.
    pub low_total: u64,
    /// Free, without high memory.
    pub low_free: u64,
    /// High memory under management.
    pub high_total: u64,
    /// Free high memory.
    pub high_free: u64,
    /// In tables or kept for them.
    pub tables: u64,
    /// In tables that are in use.
    pub page_tables: u64,
    /// Of these, in high memory.
    pub high_page_tables: u64,
    /// Kept for tables.
    pub quicklists: u64,
    /// Of these, in high memory.
    pub high_quicklists: u64,
    /// Kept for tables by CPUs for themselves.
    pub at_hand: u64,
    /// That may be kept for tables at the moment.
    pub most: u64,
}

/// Memory of one node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMemory {
    /// Under management, without high memory.
    pub low_total: u64,
    /// Free, without high memory.
    pub low_free: u64,
    /// High memory under management.
    pub high_total: u64,
    /// Free high memory.
    pub high_free: u64,
    /// In tables or kept for them, anywhere.
    pub tables: u64,
    /// Kept for tables in the node's depots and in the queue of what came home.
    pub quicklists: u64,
    /// That may be kept for tables at the moment.
    pub most: u64,
}

fn frames_bytes(frames: u32) -> u64 {
    u64::from(frames) << FRAME_SHIFT
}

impl NodeMemory {
    /// That of `node`, of which lists for trees of `layout` say `counts`.
    pub fn new(frames: &Frames, layout: &Layout, node: NodeId, counts: &NodeCounts) -> Self {
        let bytes = |tops: u32, others: u32| {
            u64::from(tops) * layout.table_bytes(layout.root())
                + u64::from(others) * layout.table_bytes(Level::PTE)
        };
        NodeMemory {
            low_total: frames_bytes(frames.node_frames(node)),
            low_free: frames_bytes(frames.node_free(node)),
            high_total: frames_bytes(frames.node_high_frames(node)),
            high_free: frames_bytes(frames.node_high_free(node)),
            tables: bytes(counts.roots, counts.pages + counts.high_pages),
            quicklists: bytes(
                counts.depot_roots + counts.remote_returns_roots,
                counts.depot_zero + counts.remote_returns + counts.depot_high + counts.remote_returns_high,
            ),
            most: frames_bytes(counts.budget) + frames_bytes(counts.high_budget),
        }
    }

    /// Names and bytes of its lines. Those of high memory are of machines that have some.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let lines = [
            ("HighTotal", self.high_total),
            ("HighFree", self.high_free),
            ("LowTotal", self.low_total),
            ("LowFree", self.low_free),
            ("TableMemory", self.tables),
            ("Quicklists", self.quicklists),
            ("QuicklistsMax", self.most),
        ];
        with_high(lines, self.high_total > 0)
    }
}

impl Memory {
    /// Computes the figures from a policy's `counts`, for trees of `layout`. All cached pages are
    /// reported as per-CPU, and the limit as 0 (unknown).
    pub fn new(frames: &Frames, layout: &Layout, counts: &PolicyCounts) -> Self {
        let all = frames.counts();
        let nodes = || (0..frames.nodes()).map(NodeId);
        let (page_tables, quicklists) = (counts.live_bytes(layout), counts.cached_bytes(layout));
        let high_bytes = |pages: usize| (pages as isize).max(0) as u64 * layout.table_bytes(Level::PTE);
        Memory {
            total: frames_bytes(all.total),
            free: frames_bytes(all.free),
            zero: frames_bytes(all.zero),
            low_total: nodes().map(|node| frames_bytes(frames.node_frames(node))).sum(),
            low_free: nodes().map(|node| frames_bytes(frames.node_free(node))).sum(),
            high_total: nodes().map(|node| frames_bytes(frames.node_high_frames(node))).sum(),
            high_free: nodes().map(|node| frames_bytes(frames.node_high_free(node))).sum(),
            tables: page_tables + quicklists,
            page_tables,
            high_page_tables: high_bytes(counts.high.live()),
            quicklists,
            high_quicklists: high_bytes(counts.high.cached()),
            at_hand: quicklists,
            most: 0,
        }
    }

    /// The same where nodes have lists as well.
    fn with_nodes(self, nodes: impl Iterator<Item = NodeMemory>) -> Self {
        let whole = Memory { tables: 0, ..self };
        nodes.fold(whole, |sum, node| Memory {
            tables: sum.tables + node.tables,
            at_hand: sum.at_hand.saturating_sub(node.quicklists),
            most: sum.most + node.most,
            ..sum
        })
    }

    /// Names and bytes of its lines. Those of high memory are of machines that have some.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let lines = [
            ("MemTotal", self.total),
            ("MemFree", self.free),
            ("MemZero", self.zero),
            ("HighTotal", self.high_total),
            ("HighFree", self.high_free),
            ("LowTotal", self.low_total),
            ("LowFree", self.low_free),
            ("TableMemory", self.tables),
            ("PageTables", self.page_tables),
            ("HighPageTables", self.high_page_tables),
            ("Quicklists", self.quicklists),
            ("HighQuicklists", self.high_quicklists),
            ("QuicklistsCpu", self.at_hand),
            ("QuicklistsMax", self.most),
        ];
        with_high(lines, self.high_total > 0)
    }
}

/// Leaves lines of high memory out on machines without it.
fn with_high<const N: usize>(
    lines: [(&'static str, u64); N],
    has_high: bool,
) -> impl Iterator<Item = (&'static str, u64)> {
    lines.into_iter().filter(move |(name, _)| has_high || !name.starts_with("High"))
}

/// A line's name and number, in columns as Linux has them.
fn write_line(f: &mut fmt::Formatter<'_>, name: &str, bytes: u64) -> fmt::Result {
    let spaces = 15usize.saturating_sub(name.len());
    writeln!(f, "{name}:{:spaces$}{:>8} kB", "", bytes.div_ceil(1024))
}

/// Prints the lines of a machine, without the lines of nodes.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|(name, bytes)| write_line(f, name, bytes))
    }
}

/// Lines of a node.
pub struct NodeLines(
    /// Which.
    pub NodeId,
    /// The figures.
    pub NodeMemory,
);

impl fmt::Display for NodeLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeLines(node, memory) = self;
        memory.lines().try_for_each(|(name, bytes)| {
            write!(f, "Node {} ", node.0)?;
            write_line(f, name, bytes)
        })
    }
}

/// Lists that write themselves.
struct Meminfo<'l, 'm, W, C, K>(&'l Quicklists<'m, W, C, K>);

impl<W: OpenWindow, C: Construct, K: Check> fmt::Display for Meminfo<'_, '_, W, C, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.memory().fmt(f)?;
        self.0.nodes().try_for_each(|node| NodeLines(node, self.0.node_memory(node)).fmt(f))
    }
}

impl<W: OpenWindow, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// Memory in tables and lists as text, in the manner of `/proc/meminfo`: the whole, and then
    /// node by node. Takes no lock and does not allocate.
    ///
    /// ```
    /// use ptarmigan::{format::X86_64, frames::AllocFlags};
    /// use ptarmigan_hosted::{Host, HostConfig};
    /// use ptarmigan::page::Level;
    /// use ptarmigan::quicklist::{Policy, PolicyOn};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let host = Host::<X86_64>::new(HostConfig::default())?;
    /// let (lists, cpus) = (host.quicklists()?, host.slots());
    /// let pin = cpus[0].pin();
    /// let here = PolicyOn::new(&lists, &pin).ok_or("the CPU is another host's")?;
    /// let pages = [(); 5].map(|()| here.alloc(Level::PTE, AllocFlags::NORMAL));
    /// for page in pages.into_iter().skip(2) {
    ///     // SAFETY: 1. it came from these lists.
    ///     unsafe { here.free_unlinked(page?) };
    /// }
    /// let text = lists.meminfo().to_string();
    /// assert!(text.contains("PageTables:            8 kB\n"), "two pages are out");
    /// # here.drain();
    /// # Ok(())
    /// # }
    /// ```
    pub fn meminfo(&self) -> impl fmt::Display + '_ {
        Meminfo(self)
    }

    /// The whole's figures, as numbers.
    pub fn memory(&self) -> Memory {
        let source = self.source();
        let whole = Memory::new(source.frames(), source.layout(), &super::Policy::counts(self));
        whole.with_nodes(self.nodes().map(|node| self.node_memory(node)))
    }

    /// A node's figures, as numbers.
    pub fn node_memory(&self, node: NodeId) -> NodeMemory {
        NodeMemory::new(self.source().frames(), self.source().layout(), node, &self.node_counts(node))
    }

    fn nodes(&self) -> impl Iterator<Item = NodeId> + use<W, C, K> {
        (0..self.source().frames().nodes()).map(NodeId)
    }
}
