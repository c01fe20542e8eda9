//! Quicklists: per-CPU magazines of clean pages before a depot per node, within one budget per node.
//!
//! On each CPU a class has two magazines of page numbers, laid end to end in one array: the upper one is handed out
//! from and put back to, the lower one is what Bonwick calls *previous*; only when both are empty, or both full, a
//! magazine is exchanged with the depot. So a CPU that allocates and frees in turn never goes there. A hit touches
//! the CPU's own lines: no lock, no atomic read-modify-write, nothing of the page and nothing of its frame's record
//! (links inside pages cost four times as much as soon as more than a few pages are in flight).
//!
//! Where several CPUs have pages at hand, magazines are scaled to the depot: large while it has plenty, small as it runs low, so
//! that little rests on one CPU while another one runs short. Who does run short calls the others, which leave what
//! is too much by now when their next gather ends. What a node keeps, CPUs and depot together, never exceeds its
//! budget (REQ-12): the magazines' worst case is set aside first and the depot may have the rest.
//!
//! Pages freed on a foreign node go home in batches, after the flush like all others (REQ-7, REQ-8).
mod call;
mod depot;
mod hit;
mod magazine;
mod node;
mod shard;
mod trim;
mod upkeep;

pub use magazine::MAGAZINE;

use super::check::{Check, Unchecked};
use super::tally::{NodeCounts, Tally};
use super::{PolicyCounts, Source};
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{CpuId, NodeId, PerCpu, Pinned};
use crate::frames::Frames;
use crate::page::{Construct, Layout, Level, MAX_LEVELS};
use crate::window::Window;
use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use depot::Depot;
use magazine::{Hand, Stack};
use node::{Node, Shelf};
use shard::Shard;

/// Pages given back to the allocator in one call of anything (I6).
const BOUNDED: usize = 16;
/// Tops, and everything else.
const CLASSES: usize = 2;
const TOP: usize = 0;
const REST: usize = 1;
/// Levels, rounded up to a power of two, so that an index is cut to size instead of checked.
const LEVELS: usize = MAX_LEVELS.next_power_of_two();
/// A depot for tops may have this part of a node's room: they are the fewer.
const TOP_PART: usize = 8;

/// Sizes of the lists.
#[derive(Clone, Copy, Debug)]
pub struct ListsConfig {
    /// CPUs, at least 1.
    pub cpus: usize,
    /// Pages per magazine at the most, 0 to 64; 0 turns caching off: every call goes to the allocator.
    pub magazine: usize,
    /// A node may keep this share of what is free there: 1/`share`; at least 1.
    pub share: u32,
    /// A node may keep so many pages, whatever is free there; `None`: the share says.
    pub keep: Option<u32>,
    /// CPUs that may be on one node at a time; 0: they are spread evenly, and stay where they are.
    pub crowd: usize,
}

impl ListsConfig {
    /// The defaults for `cpus` CPUs: magazines of up to 64, one sixteenth of a node.
    pub const fn new(cpus: usize) -> Self {
        ListsConfig { cpus, magazine: MAGAZINE, share: 16, keep: None, crowd: 0 }
    }

    fn check(&self) -> Result<(), ListsError> {
        let range = |what, value, least, most| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(ListsError::Range { what, value, least, most })
        };
        range("CPUs", self.cpus, 1, usize::from(u16::MAX))?;
        range("pages per magazine", self.magazine, 0, MAGAZINE)?;
        range("share", self.share as usize, 1, u32::MAX as usize)
    }
}

/// Why lists cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListsError {
    /// A size is out of its range.
    Range {
        /// Which.
        what: &'static str,
        /// What it is.
        value: usize,
        /// The least that it may be.
        least: usize,
        /// The most.
        most: usize,
    },
    /// They do not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for ListsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListsError::Range { what, value, least, most } => {
                write!(f, "quicklists: {what} must be {least} to {most}, not {value}")
            }
            ListsError::Boot(e) => write!(f, "quicklists: {e}"),
        }
    }
}

impl core::error::Error for ListsError {}

impl From<BootMemoryShort> for ListsError {
    fn from(e: BootMemoryShort) -> Self {
        ListsError::Boot(e)
    }
}

/// The policy that this library is about. `K` says whether pages are looked after while they are in it, see
/// [`Checked`](super::Checked).
pub struct Quicklists<'m, W, C, K = Unchecked> {
    source: Source<'m, W, C>,
    /// Each CPU's pages by class, and its counts.
    cpus: PerCpu<[Stack; CLASSES], Own>,
    check: K,
    nodes: BootSlice<Node>,
    top: Level,
    one_node: bool,
    /// By level: a page of it is no top, and cannot be of another node than the CPU.
    near: [bool; LEVELS],
    config: ListsConfig,
    cpus_per_node: u32,
    top_shift: u32,
}

/// What a CPU has besides pages.
#[derive(Default)]
struct Own {
    tally: Tally,
    /// The last [`Call`](call::Call) that it has answered, of the node where it was then. The CPU's alone.
    answered: AtomicU32,
}

impl<'m, W: Window, C: Construct> Quicklists<'m, W, C> {
    /// Lists of the given sizes. Magazines shrink, if need be, until they fit half of the smallest node's budget.
    ///
    /// # Errors
    ///
    /// [`ListsError`] if a size is out of range, or they do not fit into `boot`.
    pub fn new(
        boot: &mut BootMemory,
        config: ListsConfig,
        source: Source<'m, W, C>,
    ) -> Result<Self, ListsError> {
        Self::with_check(boot, config, source, Unchecked)
    }
}

impl<'m, W: Window, C: Construct, K: Check> Quicklists<'m, W, C, K> {
    /// As [`new`](Quicklists::new), with somebody who looks on.
    ///
    /// # Errors
    ///
    /// As [`new`](Quicklists::new).
    pub fn with_check(
        boot: &mut BootMemory,
        mut config: ListsConfig,
        source: Source<'m, W, C>,
        check: K,
    ) -> Result<Self, ListsError> {
        config.check()?;
        let frames = source.frames();
        let nodes = frames.nodes() as usize;
        let cpus_per_node = Self::crowd(&config, nodes);
        let smallest = (0..nodes).map(|n| Self::room(frames, &config, NodeId(n as u8))).min().unwrap_or(0);
        let classes = Self::classes(source.layout());
        let fits = smallest as usize / 2 / (2 * classes * cpus_per_node);
        config.magazine = config.magazine.min(fits);
        let cpus = PerCpu::new(boot, frames.machine(), config.cpus, |_| [Stack::new(), Stack::new()])?;
        let shards = Shelf::shards_for(cpus_per_node);
        let by_node = boot.take_with(nodes, |boot, node| {
            let room = Self::room(frames, &config, NodeId(node as u8)) as usize;
            let mut shelf = |class| {
                let most = Self::part(room, class, classes).div_ceil(shards);
                let shards = boot.take_with(shards, |boot, _| Ok(Shard::new(Depot::new(boot, most)?)))?;
                Ok(Shelf::new(shards, class, config.magazine))
            };
            Ok(Node::new([shelf(TOP)?, shelf(REST)?]))
        })?;
        let layout = *source.layout();
        let top_shift = layout.table_shift[layout.top().at()] as u32;
        let cpus_per_node = cpus_per_node as u32;
        let (top, one_node) = (layout.top(), nodes == 1);
        let lists = Quicklists {
            source,
            cpus,
            check,
            nodes: by_node,
            top,
            one_node,
            near: core::array::from_fn(|level| one_node && level != top.at()),
            config,
            cpus_per_node,
            top_shift,
        };
        for node in 0..nodes {
            lists.set_limits_anew(NodeId(node as u8));
        }
        Ok(lists)
    }

    /// Boot memory for `config` over `frames`.
    pub fn bytes(frames: &Frames, config: &ListsConfig) -> usize {
        let nodes = frames.nodes();
        let shards = Shelf::shards_for(Self::crowd(config, nodes as usize));
        // However the classes share a node's room, together they have it; each shard's part is rounded up.
        let depots = |node| {
            let all = CLASSES * shards;
            let room = Self::room(frames, config, NodeId(node)) as usize;
            Depot::bytes(room + all) + (all - 1) * Depot::bytes(0)
        };
        PerCpu::<[Stack; CLASSES], Own>::bytes(config.cpus)
            + BootMemory::bytes::<Node>(nodes as usize)
            + nodes as usize * CLASSES * BootMemory::bytes::<Shard>(shards)
            + (0..nodes).map(depots).sum::<usize>()
    }

    /// CPUs that may be on a node at a time.
    fn crowd(config: &ListsConfig, nodes: usize) -> usize {
        let even = config.cpus.div_ceil(nodes);
        if config.crowd == 0 { even } else { config.crowd }.max(1)
    }

    /// Pages that a node can ever keep.
    fn room(frames: &Frames, config: &ListsConfig, node: NodeId) -> u32 {
        let all = frames.node_frames(node);
        config.keep.map_or(all / config.share.max(1), |keep| keep.min(all))
    }

    /// Classes that are used: where trees are nothing but tops, one.
    fn classes(layout: &Layout) -> usize {
        if layout.top() == Level::PTE { 1 } else { CLASSES }
    }

    /// The part of `room` pages that the depot of a class may have.
    fn part(room: usize, class: usize, classes: usize) -> usize {
        let tops = if classes == 1 { room } else { room / TOP_PART };
        if class == TOP { tops } else { room - tops }
    }

    /// Frames that a node may keep at the moment: a share of what is free there, or what was set.
    pub fn budget(&self, node: NodeId) -> u32 {
        self.budget_of(self.basis(node))
    }

    fn budget_of(&self, basis: u32) -> u32 {
        if self.config.keep.is_some() { basis } else { basis / self.config.share.max(1) }
    }

    /// What one CPU has counted. A page may be counted as allocated on one CPU and as freed on another.
    pub fn counts_on(&self, cpu: CpuId) -> PolicyCounts {
        PolicyCounts::sum(self.cpus.shown().nth(usize::from(cpu.0)).map(|own| &own.tally))
    }

    /// What a node keeps and may keep, by state.
    pub fn node_counts(&self, node: NodeId) -> NodeCounts {
        let (tops, rest) = (self.shelf(node, TOP), self.shelf(node, REST));
        NodeCounts {
            budget: self.budget(node),
            depot_tops: tops.held(),
            depot_zero: rest.held(),
            came_home_tops: tops.came(),
            came_home: rest.came(),
            tops: tops.pages.load(Relaxed),
            pages: rest.pages.load(Relaxed),
            magazine_tops: tops.magazine(CpuId(0)),
            magazine_zero: rest.magazine(CpuId(0)),
        }
    }

    /// Who looks on.
    pub fn check(&self) -> &K {
        &self.check
    }

    /// The source beneath.
    pub fn source(&self) -> &Source<'m, W, C> {
        &self.source
    }

    /// Pages per magazine at the most.
    pub fn magazine(&self) -> usize {
        self.config.magazine
    }

    #[inline(always)]
    fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.0 as usize]
    }

    #[inline(always)]
    fn shelf(&self, node: NodeId, class: usize) -> &Shelf {
        &self.node(node).shelves[class]
    }

    /// What the caller's CPU counts.
    #[inline(always)]
    fn tally(&self, pin: &Pinned<'_>) -> &Tally {
        &self.shown(pin).tally
    }

    /// What the caller's CPU shows to others.
    #[inline(always)]
    fn shown(&self, pin: &Pinned<'_>) -> &Own {
        // SAFETY: 1. the lists are used with pins of the machine that they were made for.
        unsafe { self.cpus.own_shown_unchecked(pin) }
    }

    /// What a node's budget is worked out from: what was set, or what is free there now.
    #[inline]
    fn basis(&self, node: NodeId) -> u32 {
        self.config.keep.unwrap_or_else(|| self.source.frames().node_free(node))
    }

    /// Sets what the depots of `node` may hold. A compare if nothing has changed.
    #[inline]
    fn set_limits(&self, node: NodeId) {
        if !self.node(node).has_limits_of(self.basis(node)) {
            self.set_limits_anew(node);
        }
    }

    #[cold]
    fn set_limits_anew(&self, node: NodeId) {
        let classes = Self::classes(self.source.layout());
        let aside = 2 * self.config.magazine * classes * self.cpus_per_node as usize;
        let limits = |basis| {
            let budget = self.budget_of(basis);
            // Who may keep all there is cannot keep too much.
            let all = self.config.keep.is_some() && budget >= self.source.frames().node_frames(node);
            let room = (budget as usize).saturating_sub(if all { 0 } else { aside });
            [TOP, REST].map(|class| Self::part(room, class, classes) as u32)
        };
        self.node(node).set_limits(|| self.basis(node), limits, !self.one_node);
    }

    /// A page of the class came from the allocator.
    fn missed(&self, pin: &Pinned<'_>, class: usize) {
        self.shelf(pin.node(), class).missed(&self.node(pin.node()).call);
    }

    /// A CPU's magazines of a class get the size that they should have. A CPU that had none there takes part from now on.
    fn resize(&self, pin: &Pinned<'_>, stack: &mut Hand<'_>, class: usize) {
        let node = self.node(pin.node());
        let shelf = &node.shelves[class];
        if self.config.magazine > 0 && stack.node() != Some(pin.node()) {
            self.leave(stack, class);
            shelf.join(&node.call);
        }
        stack.resize(pin.node(), shelf.magazine(pin.cpu()));
    }

    /// A CPU takes no part any more where it did: others may have larger magazines.
    fn leave(&self, stack: &Hand<'_>, class: usize) {
        if let Some(node) = stack.node() {
            self.shelf(node, class).leave();
        }
    }

    /// All that a CPU has at hand of a class, and the node that it is of: the one where the CPU was when it got it, wherever it
    /// is by now. It takes no part until it has some again. `None` if it took none, or its lists are in use.
    fn take_all(&self, pin: &Pinned<'_>, class: usize) -> Option<(NodeId, [u32; 2 * MAGAZINE], usize)> {
        let mut cpu = self.cpus.enter(pin)?;
        let mut stack = Hand::new(&mut cpu, class);
        let node = stack.node()?;
        self.leave(&stack, class);
        let (items, n) = stack.take_all();
        Some((node, items, n))
    }
}
