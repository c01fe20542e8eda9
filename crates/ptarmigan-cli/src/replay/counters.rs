//! `--counters`: everything that a policy has counted, by CPU, level and node, as text and as JSON.
//!
//! Counts are those of the whole counting pass. Memory is that of one moment: the last space has ended, and nothing of what the
//! policy keeps has been given back yet. As text: lines in the manner of `/proc/meminfo`, which
//! [`ptarmigan::quicklist::Memory`] describes, and tables. As JSON: `meminfo` holds the same lines in bytes, `levels` and
//! `cpus` the counts, `nodes` the nodes' lines and what their lists say.
use super::report::Levels;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::format::{Format, X86_64};
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Construct, Flushed, Unhooked};
use ptarmigan::quicklist::{
    Check, Historic, LevelCounts, Memory, NodeCounts, NodeLines, NodeMemory, Plain, Policy, PolicyCounts,
    Quicklists,
};
use ptarmigan::window::Window;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

type TheFormat = X86_64;

/// A policy that says what each CPU and each node has counted.
pub trait Counting: Policy {
    /// What one CPU has counted.
    fn on(&self, cpu: CpuId) -> PolicyCounts;

    /// Memory at the moment.
    fn memory(&self, frames: &Frames) -> Memory {
        Memory::new(frames, &TheFormat::LAYOUT, &self.counts())
    }

    /// What a node has; nothing if the policy's lists are not the nodes'.
    fn node(&self, _node: NodeId) -> Option<(NodeMemory, NodeCounts)> {
        None
    }
}

impl<W: Window, C: Construct> Counting for Plain<'_, W, C> {
    fn on(&self, cpu: CpuId) -> PolicyCounts {
        self.counts_on(cpu)
    }
}

impl<W: Window, C: Construct> Counting for Historic<'_, W, C> {
    fn on(&self, cpu: CpuId) -> PolicyCounts {
        self.counts_on(cpu)
    }
}

impl<W: Window, C: Construct, K: Check> Counting for Quicklists<'_, W, C, K> {
    fn on(&self, cpu: CpuId) -> PolicyCounts {
        self.counts_on(cpu)
    }

    fn memory(&self, _: &Frames) -> Memory {
        Quicklists::memory(self)
    }

    fn node(&self, node: NodeId) -> Option<(NodeMemory, NodeCounts)> {
        Some((self.node_memory(node), self.node_counts(node)))
    }
}

/// The policy `inner`, whose counters are read before it is drained for the first time.
pub struct Snapshot<'a, P> {
    inner: P,
    frames: &'a Frames,
    cpus: usize,
    read: OnceLock<Counters>,
}

impl<'a, P: Counting> Snapshot<'a, P> {
    /// `inner` on a machine of `cpus` CPUs.
    pub fn new(inner: P, frames: &'a Frames, cpus: usize) -> Self {
        Snapshot { inner, frames, cpus, read: OnceLock::new() }
    }

    /// What was read; what there is now if the policy has not been drained.
    pub fn counters(&self) -> Counters {
        self.read.get_or_init(|| Counters::read(&self.inner, self.frames, self.cpus)).clone()
    }
}

impl<P: Counting> Policy for Snapshot<'_, P> {
    #[inline]
    fn alloc(
        &self,
        pin: &Pinned<'_>,
        level: ptarmigan::page::Level,
        flags: AllocFlags,
    ) -> Result<Clean, NoFrame> {
        self.inner.alloc(pin, level, flags)
    }

    fn unused(&self, pin: &Pinned<'_>, level: ptarmigan::page::Level, page: Clean) {
        self.inner.unused(pin, level, page);
    }

    fn retire(&self, pin: &Pinned<'_>, pages: &mut Unhooked) {
        self.inner.retire(pin, pages);
    }

    fn flushed(&self, pin: &Pinned<'_>, pages: Flushed) {
        self.inner.flushed(pin, pages);
    }

    fn gather_end(&self, pin: &Pinned<'_>) {
        self.inner.gather_end(pin);
    }

    fn idle(&self, pin: &Pinned<'_>) {
        self.inner.idle(pin);
    }

    fn age(&self, pin: &Pinned<'_>) -> u32 {
        self.inner.age(pin)
    }

    fn reclaim(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        self.inner.reclaim(pin, node, want)
    }

    fn drain(&self, pin: &Pinned<'_>) {
        self.counters();
        self.inner.drain(pin);
    }

    fn counts(&self) -> PolicyCounts {
        self.inner.counts()
    }
}

/// Everything that a policy has counted.
#[derive(Clone, Serialize)]
pub struct Counters {
    /// Memory by the names of `/proc/meminfo`, in bytes.
    meminfo: BTreeMap<&'static str, u64>,
    /// All CPUs together.
    levels: Levels<Counts>,
    /// One by one.
    cpus: Vec<OfCpu>,
    /// Where nodes have lists.
    nodes: Vec<OfNode>,
    #[serde(skip)]
    text: String,
}

#[derive(Clone, Serialize)]
struct OfCpu {
    cpu: u16,
    levels: Levels<Counts>,
}

#[derive(Clone, Serialize)]
struct OfNode {
    node: u8,
    /// Memory by the names of `/sys/devices/system/node/nodeN/meminfo`, in bytes.
    meminfo: BTreeMap<&'static str, u64>,
    lists: Lists,
}

/// What a node keeps and may keep, in pages.
#[derive(Clone, Serialize)]
struct Lists {
    budget: u32,
    depot_tops: u32,
    depot_zero: u32,
    came_home_tops: u32,
    came_home: u32,
    tops: u32,
    pages: u32,
    magazine_tops: u32,
    magazine_zero: u32,
}

/// One level on one CPU, or on all. A page that was handed out on one CPU may be taken back on another, so that `live` is below
/// zero on some.
#[derive(Clone, Serialize)]
struct Counts {
    allocs: u64,
    frees: u64,
    /// At least so many: pages that came from the allocator beside another one's count as misses, not as hits.
    hits: u64,
    refills: u64,
    misses: u64,
    returns: u64,
    live: i64,
}

impl From<LevelCounts> for Counts {
    fn from(c: LevelCounts) -> Self {
        Counts {
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

fn by_level(counts: &PolicyCounts) -> Levels<Counts> {
    let names = TheFormat::LEVEL_NAMES.iter().zip(&counts.levels);
    Levels(names.map(|(name, counts)| (*name, Counts::from(*counts))).collect())
}

impl Counters {
    fn read(policy: &impl Counting, frames: &Frames, cpus: usize) -> Self {
        let memory = policy.memory(frames);
        let mut text = memory.to_string();
        let nodes = (0..frames.nodes()).filter_map(|node| {
            let (memory, c) = policy.node(NodeId(node))?;
            text += &NodeLines(NodeId(node), memory).to_string();
            let lists = Lists {
                budget: c.budget,
                depot_tops: c.depot_tops,
                depot_zero: c.depot_zero,
                came_home_tops: c.came_home_tops,
                came_home: c.came_home,
                tops: c.tops,
                pages: c.pages,
                magazine_tops: c.magazine_tops,
                magazine_zero: c.magazine_zero,
            };
            Some(OfNode { node, meminfo: memory.lines().into(), lists })
        });
        let nodes = nodes.collect();
        let of_cpu = |cpu| OfCpu { cpu, levels: by_level(&policy.on(CpuId(cpu))) };
        Counters {
            meminfo: memory.lines().into(),
            levels: by_level(&policy.counts()),
            cpus: (0..cpus as u16).map(of_cpu).collect(),
            nodes,
            text,
        }
    }

    /// For people: at most 80 columns wide.
    pub fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "counters when the last space has ended\n{}", self.text)?;
        if !self.nodes.is_empty() {
            write_nodes(out, &self.nodes)?;
        }
        writeln!(
            out,
            "{:<5} {:<5} {:>11} {:>11} {:>9} {:>9} {:>11} {:>11}",
            "cpu", "level", "allocs", "hits", "refills", "misses", "frees", "returns"
        )?;
        for OfCpu { cpu, levels } in &self.cpus {
            write_levels(out, &cpu.to_string(), levels)?;
        }
        write_levels(out, "all", &self.levels)
    }
}

/// Lines of levels at which there was something to count.
fn write_levels(out: &mut String, who: &str, levels: &Levels<Counts>) -> std::fmt::Result {
    for (name, c) in levels.0.iter().filter(|(_, c)| c.allocs + c.frees + c.misses + c.returns > 0) {
        writeln!(
            out,
            "{who:<5} {name:<5} {:>11} {:>11} {:>9} {:>9} {:>11} {:>11}",
            c.allocs, c.hits, c.refills, c.misses, c.frees, c.returns
        )?;
    }
    Ok(())
}

fn write_nodes(out: &mut String, nodes: &[OfNode]) -> std::fmt::Result {
    writeln!(
        out,
        "{:<5} {:>10} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9}",
        "node", "budget", "pages", "tops", "depot", "its tops", "came home", "magazine"
    )?;
    for OfNode { node, lists: l, .. } in nodes {
        writeln!(
            out,
            "{node:<5} {:>10} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9}",
            l.budget,
            l.pages,
            l.tops,
            l.depot_zero,
            l.depot_tops,
            l.came_home + l.came_home_tops,
            l.magazine_zero
        )?;
    }
    writeln!(out)
}
