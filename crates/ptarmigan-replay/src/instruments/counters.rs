//! `--counters`: all counters of a policy by CPU, level and node, as text and as JSON.
//!
//! The counts cover the whole counting pass. The memory is that of one moment: after the last space
//! has ended, and before the policy gives back its cached pages. The text has lines like those of
//! `/proc/meminfo`, which [`ptarmigan::quicklist::Memory`] describes, and tables. In JSON,
//! `meminfo` holds the same lines in bytes, `levels` and `cpus` the counts, and `nodes` the lines
//! and the lists of each node.
use super::levels::Levels;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::format::Format;
use ptarmigan::frames::Frames;
use ptarmigan::page::{Construct, Layout};
use ptarmigan::quicklist::{
    Check, Layer, LevelCounts, Memory, NodeCounts, NodeLines, NodeMemory, Policy, PolicyCounts, Quicklists,
};
use ptarmigan::window::OpenWindow;
use ptarmigan_linux::{Historic, Plain};
use ptarmigan_term::Count;
use ptarmigan_term::text::{Text, TextTable};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

/// A policy with counters for each CPU and each node.
pub trait Counting: Policy {
    /// Returns the counters of one CPU.
    fn on(&self, cpu: CpuId) -> PolicyCounts;

    /// Returns the memory at this moment.
    fn memory(&self, frames: &Frames, layout: &Layout) -> Memory {
        Memory::new(frames, layout, &self.counts())
    }

    /// Returns the memory and the lists of a node, or `None` if the policy has no lists by node.
    fn node(&self, _node: NodeId) -> Option<(NodeMemory, NodeCounts)> {
        None
    }
}

impl<W: OpenWindow, C: Construct> Counting for Plain<'_, W, C> {
    fn on(&self, cpu: CpuId) -> PolicyCounts {
        self.counts_on(cpu)
    }
}

impl<W: OpenWindow, C: Construct> Counting for Historic<'_, W, C> {
    fn on(&self, cpu: CpuId) -> PolicyCounts {
        self.counts_on(cpu)
    }
}

impl<W: OpenWindow, C: Construct, K: Check> Counting for Quicklists<'_, W, C, K> {
    fn on(&self, cpu: CpuId) -> PolicyCounts {
        self.counts_on(cpu)
    }

    fn memory(&self, _: &Frames, _: &Layout) -> Memory {
        Quicklists::memory(self)
    }

    fn node(&self, node: NodeId) -> Option<(NodeMemory, NodeCounts)> {
        Some((self.node_memory(node), self.node_counts(node)))
    }
}

/// The tables of a format.
#[derive(Clone, Copy)]
pub struct TableShape {
    layout: Layout,
    names: &'static [&'static str],
}

impl TableShape {
    /// Those of a format.
    pub fn of<F: Format>() -> Self {
        TableShape { layout: F::LAYOUT, names: F::LEVEL_NAMES }
    }
}

/// Reads a policy's counters before it is drained for the first time.
pub struct Snapshot<'a> {
    frames: &'a Frames,
    cpus: usize,
    shape: TableShape,
    read: OnceLock<Counters>,
}

impl<'a> Snapshot<'a> {
    /// For a machine of `cpus` CPUs.
    pub fn new(frames: &'a Frames, cpus: usize, shape: TableShape) -> Self {
        Snapshot { frames, cpus, shape, read: OnceLock::new() }
    }

    /// Returns the counters of the snapshot, or the present ones of `policy` if it has not been
    /// drained.
    pub fn counters(&self, policy: &impl Counting) -> Counters {
        self.read.get_or_init(|| Counters::read(policy, self.frames, self.cpus, self.shape)).clone()
    }
}

// SAFETY: 1. `alloc` is the default.
unsafe impl<P: Counting> Layer<P> for Snapshot<'_> {
    fn frames(&self) -> Option<&Frames> {
        None
    }

    fn drain(&self, policy: &P, _: &Pinned<'_>) {
        self.counters(policy);
    }
}

/// All counters of a policy.
#[derive(Clone, Serialize)]
pub struct Counters {
    /// Memory by the names of `/proc/meminfo`, in bytes.
    meminfo: BTreeMap<&'static str, u64>,
    /// Counts of all CPUs together.
    levels: Levels<LevelCounters>,
    /// Counts of each CPU.
    cpus: Vec<CpuCounters>,
    /// Lists of each node, if the policy has any.
    nodes: Vec<NodeCounters>,
    #[serde(skip)]
    text: String,
}

#[derive(Clone, Serialize)]
struct CpuCounters {
    cpu: u16,
    levels: Levels<LevelCounters>,
}

#[derive(Clone, Serialize)]
struct NodeCounters {
    node: u8,
    /// Memory by the names of `/sys/devices/system/node/nodeN/meminfo`, in bytes.
    meminfo: BTreeMap<&'static str, u64>,
    lists: NodeLists,
}

/// Pages that a node caches and may cache.
#[derive(Clone, Serialize)]
struct NodeLists {
    budget: u32,
    depot_roots: u32,
    depot_zero: u32,
    remote_returns_roots: u32,
    remote_returns: u32,
    roots: u32,
    pages: u32,
    magazine_roots: u32,
    magazine_zero: u32,
}

/// Counts of one level, on one CPU or on all. A page may be freed on another CPU than the one that
/// allocated it, so `live` can be negative for a single CPU.
#[derive(Clone, Serialize)]
struct LevelCounters {
    allocs: u64,
    frees: u64,
    /// A lower bound: pages that came from the allocator along with another one count as misses.
    hits: u64,
    refills: u64,
    misses: u64,
    returns: u64,
    live: i64,
}

impl From<LevelCounts> for LevelCounters {
    fn from(c: LevelCounts) -> Self {
        LevelCounters {
            allocs: c.allocs as u64,
            frees: c.frees as u64,
            hits: c.allocs.saturating_sub(c.refills + c.misses) as u64,
            refills: c.refills as u64,
            misses: c.misses as u64,
            returns: c.returns as u64,
            live: c.live() as i64,
        }
    }
}

fn by_level(names: &'static [&'static str], counts: &PolicyCounts) -> Levels<LevelCounters> {
    let names = names.iter().zip(&counts.levels);
    Levels(names.map(|(name, counts)| (*name, LevelCounters::from(*counts))).collect())
}

impl Counters {
    fn read(policy: &impl Counting, frames: &Frames, cpus: usize, shape: TableShape) -> Self {
        let memory = policy.memory(frames, &shape.layout);
        let mut text = memory.to_string();
        let nodes = (0..frames.nodes()).filter_map(|node| {
            let (memory, c) = policy.node(NodeId(node))?;
            text += &NodeLines(NodeId(node), memory).to_string();
            let lists = NodeLists {
                budget: c.budget,
                depot_roots: c.depot_roots,
                depot_zero: c.depot_zero,
                remote_returns_roots: c.remote_returns_roots,
                remote_returns: c.remote_returns,
                roots: c.roots,
                pages: c.pages,
                magazine_roots: c.magazine_roots,
                magazine_zero: c.magazine_zero,
            };
            Some(NodeCounters { node, meminfo: memory.lines().collect(), lists })
        });
        let nodes = nodes.collect();
        let of_cpu = |cpu| CpuCounters { cpu, levels: by_level(shape.names, &policy.on(CpuId(cpu))) };
        Counters {
            meminfo: memory.lines().collect(),
            levels: by_level(shape.names, &policy.counts()),
            cpus: (0..cpus as u16).map(of_cpu).collect(),
            nodes,
            text,
        }
    }

    /// Writes the counters as text, at most 80 columns wide.
    pub fn write(&self, out: &mut Text) -> std::fmt::Result {
        writeln!(out, "counters when the last space has ended\n{}", self.text)?;
        if !self.nodes.is_empty() {
            out.table(node_table(&self.nodes));
            writeln!(out)?;
        }
        let mut table = TextTable::new(
            &["cpu", "level", "allocs", "hits", "refills", "misses", "frees", "returns"],
            &[-5, -5, 11, 11, 9, 9, 11, 11],
        );
        for CpuCounters { cpu, levels } in &self.cpus {
            add_levels(&mut table, &cpu.to_string(), levels);
        }
        add_levels(&mut table, "all", &self.levels);
        out.table(table);
        Ok(())
    }
}

/// Adds rows for the levels with counts.
fn add_levels(table: &mut TextTable, who: &str, levels: &Levels<LevelCounters>) {
    for (name, c) in levels.0.iter().filter(|(_, c)| c.allocs + c.frees + c.misses + c.returns > 0) {
        let counts =
            [c.allocs, c.hits, c.refills, c.misses, c.frees, c.returns].map(|n| Count(n).to_string());
        table.texts([who.to_owned(), (*name).to_owned()].into_iter().chain(counts));
    }
}

fn node_table(nodes: &[NodeCounters]) -> TextTable {
    let mut table = TextTable::new(
        &["node", "budget", "pages", "roots", "depot", "its roots", "returns", "magazine"],
        &[-5, 10, 9, 9, 10, 10, 9, 9],
    );
    for NodeCounters { node, lists: l, .. } in nodes {
        let returns = l.remote_returns + l.remote_returns_roots;
        let pages = [l.budget, l.pages, l.roots, l.depot_zero, l.depot_roots, returns, l.magazine_zero];
        let pages = pages.map(|n| Count(n.into()).to_string());
        table.texts([node.to_string()].into_iter().chain(pages));
    }
    table
}
