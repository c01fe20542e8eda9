//! Quicklists: per-CPU magazines of clean pages before a depot per node, within one budget per
//! node.
//!
//! # The protocol
//!
//! ```text
//!              hit                    both empty: load            depot empty: a miss
//!  caller <──────── upper magazine <──────────────── depot <───────────────────── allocator
//!         ────────>                ────────────────>       ─────────────────────>
//!              put                    both full: store             over the limit: 16 pages
//!               CPU: no lock, no atomic operation     node: a lock of a shard
//! ```
//!
//! 1. `take` and `put` use the CPU's own magazines.
//! 2. When both are empty, or both full, one is exchanged with the `depot`, whose shards have a
//!    lock each.
//! 3. If the depot is empty too, the page comes from the allocator: a miss. If other CPUs hold
//!    pages, the CPU rings the `doorbell`.
//! 4. At its next gather, each CPU of the node compares the doorbell with its last response, and
//!    responds.
//!
//! # Why
//!
//! A hit takes no lock and looks at no page, because it is nearly every call. (Links inside pages
//! cost four times as much as soon as more than a few pages are in flight.) Two magazines, and not
//! one, are there so that a CPU that allocates and frees in turn at a boundary does not exchange
//! one each time (Bonwick). Other CPUs cannot take from a magazine: that would need atomic
//! operations on each hit. So they must ask, and a CPU answers where it is slow anyway.
//!
//! # Classes
//!
//! Pages are kept by class: root tables, which rest constructed; leaf tables in high memory; and
//! all other tables, which are all zero alike. Where no tables are in high memory, that class is
//! empty and takes no instruction of a hit.
//!
//! # Magazines
//!
//! On each CPU a class has two magazines of page numbers, laid end to end in one array. Pages are
//! handed out from the upper one and put back to it; the lower one is Bonwick's *previous*. A hit
//! touches the CPU's own lines: no lock, no atomic read-modify-write, no access to the page or to
//! its frame's record.
//!
//! Where several CPUs have pages at hand, magazines are scaled to the depot: large while it has
//! plenty, small as it runs low. So little rests on one CPU while another one runs short.
//!
//! # The doorbell
//!
//! Each node has one request word, raised when a limit drops below what is cached or when a CPU
//! goes to the allocator while others hold pages. A CPU compares the word when its next gather
//! ends, and gives up the pages that exceed the limit. The over-limit flag is cleared before the
//! check, and not after it: a limit that is set during the check raises the flag again.
//!
//! # The budget
//!
//! The pages that a node caches, in CPUs and depots together, never exceed its budget: the
//! magazines' worst case is set aside first and the depots may have the rest. High memory has a
//! budget of its own. One call gives back at most 16 pages, whatever is to be done, so that no call
//! takes long.
//!
//! # Remote returns
//!
//! Pages freed on a foreign node go home in batches, after the flush like all others:
//!
//! ```text
//!  CPU of node 1 frees ── gather, flush ──> parcel of up to 16 ──> depot of node 0 (its lock)
//!                                                     no room ──> allocator of node 0
//! ```
//!
//! A page that stayed on the foreign node would make tables there slower for ever (REQ-7, REQ-8).
mod classes;
mod config;
mod depot;
mod direct;
mod doorbell;
mod magazine;
mod node;
mod put;
mod reclaim;
mod ring;
mod shard;
mod take;

pub use config::{ListsConfig, ListsError};
pub use magazine::MAGAZINE;

use super::check::{Check, Site, Unchecked};
use super::here::{HereCopy, Proof};
use super::tally::{NodeCounts, Tally};
use super::{Here, Placement, Policy, PolicyCounts, Returned, Source, TakesUnhooked};
use crate::addr::{FRAME_SHIFT, PhysAddr};
use crate::bootmem::{BootArray, BootMemory};
use crate::cpu::{CpuId, Guard, MachineId, NodeId, PerCpu};
use crate::frames::{AllocFlags, HighUse, MemorySize, NoFrame, ZoneClass};
use crate::page::{Clean, Construct, Flushed, FlushedLeaves, Level, MAX_LEVELS};
use crate::window::OpenWindow;
use classes::{CLASSES, HIGH, ROOT, ZERO};
use config::{MOST_CPUS, frames_of_each, order, part};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use depot::Depot;
use magazine::{MagazineStore, Magazines};
use node::{Basis, Node};
use ring::Ring;
use shard::Shard;

/// Pages given back to the allocator in one call of anything.
const BOUNDED: usize = 16;
/// Levels, rounded up to a power of two, so that an index is cut to size instead of checked.
const LEVELS: usize = MAX_LEVELS.next_power_of_two();

/// The policy that this library is about. `K` says whether pages are looked after while they are in
/// it, see [`Checked`](super::Checked).
///
/// ```
/// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// # use ptarmigan::{format::X86_64, machine::Machine};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
/// # let cpus = host.slots();
/// # let pin = cpus[0].pin();
/// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
/// # let on = machine.on(&pin)?;
/// use ptarmigan::frames::AllocFlags;
/// use ptarmigan::page::Level;
/// use ptarmigan::quicklist::Policy;
///
/// let table = on.alloc(Level::PTE, AllocFlags::NORMAL)?; // known to be zero
/// // SAFETY: it came from this machine, and was never linked: no TLB knows it.
/// unsafe { on.free_unlinked(table) };
/// let counts = machine.policy().counts();
/// assert_eq!((counts.live(), counts.levels[0].allocs), (0, 1));
/// assert!(counts.cached() > 0); // it waits for the next one
/// # Ok(())
/// # }
/// ```
pub struct Quicklists<'m, W, C, K = Unchecked> {
    source: Source<'m, W, C>,
    /// Each CPU's pages by class, and its counts.
    cpus: PerCpu<[MagazineStore; CLASSES], Own>,
    check: K,
    nodes: BootArray<Node>,
    root: Level,
    one_node: bool,
    /// Leaf tables may be in high memory.
    has_high: bool,
    /// By level: a page of it is no root, and can neither be of another node than the CPU nor of
    /// high memory.
    near: [bool; LEVELS],
    config: ListsConfig,
    cpus_per_node: u32,
    root_shift: u32,
}

/// The state of a CPU besides its pages.
#[derive(Default)]
struct Own {
    tally: Tally,
    /// The last [`Doorbell`](doorbell::Doorbell) word that it has responded to, of the node where
    /// it was then. Only this CPU writes it.
    responded: AtomicU32,
}

impl<'m, W: OpenWindow, C: Construct> Quicklists<'m, W, C> {
    /// Makes lists of the given sizes. Magazines shrink, if need be, until they fit half of the
    /// smallest node's budget.
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

impl<'m, W: OpenWindow, C: Construct, K: Check> Quicklists<'m, W, C, K> {
    /// Makes lists as [`new`](Quicklists::new) does, with `check` to look after their pages.
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
        let cpus_per_node = config.most_on_a_node(nodes);
        let smallest =
            (0..nodes).map(|n| config.room(frames.node_frames(NodeId(n as u8)))).min().unwrap_or(0);
        let layout = *source.layout();
        let pages = |frames: u32| frames as usize >> order(&layout);
        let each = frames_of_each(&layout);
        config.magazine = config.magazine.min(smallest as usize / 2 / (2 * each * cpus_per_node));
        let has_high = !source.placement().is_low() && frames.has_high();
        // How many pages of high memory a node can ever keep.
        let high = |config: &ListsConfig, node: usize| {
            if has_high { config.room(frames.node_high_frames(NodeId(node as u8))) } else { 0 }
        };
        if let Some(smallest) = (0..nodes).map(|node| high(&config, node)).filter(|room| *room > 0).min() {
            config.magazine = config.magazine.min(pages(smallest) / 2 / (2 * cpus_per_node));
        }
        let cpus =
            PerCpu::new(boot, frames.machine(), config.cpus, |_| [const { MagazineStore::new() }; CLASSES])?;
        let by_node = boot.take_each_with(nodes, |boot, node| {
            let room = config.room(frames.node_frames(NodeId(node as u8))) as usize;
            let depots = boot.take_each_with(CLASSES, |boot, class| {
                let shards = Depot::shards_for(cpus_per_node);
                let room =
                    if class == HIGH { pages(high(&config, node)) } else { part(room, class, &layout) };
                let most = room.div_ceil(shards);
                let shards = boot.take_with(shards, |boot, _| Ok(Shard::new(Ring::new(boot, most)?)))?;
                Depot::new(boot, shards, class, config.magazine)
            })?;
            Ok(Node::new(depots))
        })?;
        let (root, one_node) = (source.layout().root(), nodes == 1);
        let root_shift = source.layout().table_shift[root.at()].into();
        let lists = Quicklists {
            source,
            cpus,
            check,
            nodes: by_node,
            root,
            one_node,
            has_high,
            near: core::array::from_fn(|level| {
                one_node && level != root.at() && !(has_high && level == Level::PTE.at())
            }),
            config,
            cpus_per_node: cpus_per_node as u32,
            root_shift,
        };
        for node in 0..nodes {
            lists.set_limits_anew(NodeId(node as u8));
        }
        Ok(lists)
    }

    /// Returns the bytes of boot memory that lists of `config` over memory of this size take.
    pub fn bytes(size: &MemorySize, config: &ListsConfig) -> usize {
        // `new` refuses more, whatever the size of the memory.
        let config = &ListsConfig { cpus: config.cpus.min(MOST_CPUS), ..*config };
        let nodes = size.nodes();
        let shards = Depot::shards_for(config.most_on_a_node(nodes));
        // However the classes share a node's room, together they have it; each shard's part is
        // rounded up.
        let depots = |node| {
            let all = CLASSES * shards;
            let node = NodeId(node as u8);
            let room = config.room(size.node_frames(node)) as usize;
            let high = config.room(size.node_high_frames(node)) as usize;
            Ring::bytes(room + high + all) + (all - 1) * Ring::bytes(0) + CLASSES * Depot::bytes()
        };
        PerCpu::<[MagazineStore; CLASSES], Own>::bytes(config.cpus)
            + BootMemory::bytes::<Node>(nodes)
            + nodes * BootMemory::bytes::<Depot>(CLASSES)
            + nodes * CLASSES * BootMemory::bytes::<Shard>(shards)
            + (0..nodes).map(depots).sum::<usize>()
    }

    /// Returns how many frames of low memory a node may keep pages in now: a share of its free
    /// memory, or the value that was set. Returns 0 if the node does not exist.
    pub fn budget(&self, node: NodeId) -> u32 {
        if self.has(node) { self.budget_of(self.basis(node).low) } else { 0 }
    }

    /// Returns whether there is such a node.
    #[inline]
    fn has(&self, node: NodeId) -> bool {
        usize::from(node.0) < self.nodes.len()
    }

    fn budget_of(&self, basis: u32) -> u32 {
        let divisor = if self.config.fixed_budget.is_some() { 1 } else { self.config.budget_divisor };
        basis.checked_div(divisor).unwrap_or(basis)
    }

    /// Returns the counts of one CPU. A page may be counted as allocated on one CPU and as freed on
    /// another.
    pub fn counts_on(&self, cpu: CpuId) -> PolicyCounts {
        PolicyCounts::sum(self.cpus.shown().nth(usize::from(cpu.0)).map(|own| &own.tally))
    }

    /// Returns a node's cached pages and its limit, by state. All is 0 for a node that there is
    /// not.
    pub fn node_counts(&self, node: NodeId) -> NodeCounts {
        if !self.has(node) {
            return NodeCounts::default();
        }
        let [zero, roots, high] = [ZERO, ROOT, HIGH].map(|class| self.depot(node, class));
        NodeCounts {
            budget: self.budget(node),
            depot_roots: roots.held(),
            depot_zero: zero.held(),
            remote_returns_roots: roots.remote_held(),
            remote_returns: zero.remote_held(),
            roots: roots.pages.load(Relaxed),
            pages: zero.pages.load(Relaxed),
            high_budget: if self.has_high { self.budget_of(self.basis(node).high) } else { 0 },
            depot_high: high.held(),
            remote_returns_high: high.remote_held(),
            high_pages: high.pages.load(Relaxed),
            magazine_roots: roots.magazine(CpuId(0)),
            magazine_zero: zero.magazine(CpuId(0)),
        }
    }

    /// Returns the check of pages.
    pub fn check(&self) -> &K {
        &self.check
    }

    /// Returns the source beneath.
    pub fn source(&self) -> &Source<'m, W, C> {
        &self.source
    }

    /// Returns the pages per magazine at the most.
    pub fn magazine(&self) -> usize {
        self.config.magazine
    }

    #[inline]
    fn node(&self, node: NodeId) -> &Node {
        self.nodes.of(usize::from(node.0))
    }

    #[inline]
    fn depot(&self, node: NodeId, class: usize) -> &Depot {
        self.node(node).depot(class)
    }

    /// Returns the counts of the caller's CPU.
    #[inline(always)]
    fn tally<'h>(&self, here: &impl Proof<'h>) -> &Tally {
        &self.shown(here).tally
    }

    /// Returns the part of the caller's CPU that other CPUs read.
    #[inline(always)]
    fn shown<'h>(&self, here: &impl Proof<'h>) -> &Own {
        // SAFETY: 1. a `Here` is of the lists' machine, and of one of the CPUs that they were made
        // for.
        unsafe { self.cpus.own_shown_unchecked(here) }
    }

    /// Takes the magazines of the caller's CPU; `None` while they are in use.
    #[inline(always)]
    fn enter<'a, 'h: 'a>(
        &'a self,
        here: &'a impl Proof<'h>,
    ) -> Option<Guard<'a, [MagazineStore; CLASSES], Own>> {
        // SAFETY: 1. as in `shown`.
        unsafe { self.cpus.enter_unchecked(here) }
    }

    #[inline]
    fn site<'s, 'h>(&'s self, here: &impl Proof<'h>, level: Level) -> Site<'s, 'm, W, C> {
        Site { source: &self.source, cpu: here.cpu(), level }
    }

    /// Returns the class of a page.
    #[inline]
    fn class_of(&self, page: &Clean) -> usize {
        if page.level() == self.root {
            ROOT
        } else if self.has_high && self.source.frames().is_high(page.addr().pfn()) {
            HIGH
        } else {
            ZERO
        }
    }

    /// Returns the number of low frames in tables of user trees, or kept for them.
    fn low_tables(&self) -> u32 {
        let of = |node: &Node| [ZERO, ROOT].map(|class| node.depot(class).pages.load(Relaxed));
        let [zero, roots] = self.nodes.iter().map(of).fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
        let root_frames = match FRAME_SHIFT.checked_sub(self.root_shift) {
            Some(small) => roots >> small,
            None => roots << (self.root_shift - FRAME_SHIFT),
        };
        (zero << order(self.source.layout())) + root_frames
    }

    #[inline(always)]
    fn page(&self, class: usize, level: Level, item: u32) -> Clean {
        // SAFETY: 1. the item came out of a list, where it was put by `item`, its owner's last act.
        // 2. pages of a class are in one state, of one size, and of memory for each level of the
        // class, of which `level` is. 3. only clean pages are put there, and no code writes to them
        // while they rest.
        unsafe { Clean::from_raw(PhysAddr((item as u64) << self.shift(class)), level) }
    }

    #[inline(always)]
    fn item(&self, class: usize, page: Clean) -> u32 {
        (page.into_raw().0 >> self.shift(class)) as u32
    }

    /// Items are frame numbers, so that 16 TiB can be named. Roots, which may be smaller than a
    /// frame, are counted in their own size.
    #[inline]
    fn shift(&self, class: usize) -> u32 {
        if class == ROOT { self.root_shift } else { FRAME_SHIFT }
    }

    /// Returns the basis of a node's budget: the value that was set, or the memory that is free
    /// now.
    #[inline]
    fn basis(&self, node: NodeId) -> Basis {
        let frames = self.source.frames();
        let low = self.config.fixed_budget.unwrap_or_else(|| frames.node_free(node));
        let high = || self.config.fixed_budget.unwrap_or_else(|| frames.node_high_free(node));
        Basis { low, high: if self.has_high { high() } else { 0 } }
    }

    /// Sets the limits of the depots of `node`. A compare if no limit has changed.
    #[inline]
    fn set_limits(&self, node: NodeId) {
        if !self.node(node).has_limits_of(self.basis(node)) {
            self.set_limits_anew(node);
        }
    }

    #[cold]
    fn set_limits_anew(&self, node: NodeId) {
        let layout = self.source.layout();
        let order = order(layout);
        // The capacity of magazines of one class, in pages.
        let aside = 2 * self.config.magazine * self.cpus_per_node as usize;
        let frames = self.source.frames();
        let room = |basis, all, aside| {
            let budget = self.budget_of(basis);
            // A budget of all that there is cannot be exceeded.
            let all = self.config.fixed_budget.is_some() && budget >= all;
            (budget as usize).saturating_sub(if all { 0 } else { aside })
        };
        let limits = |basis: Basis| {
            let low = room(basis.low, frames.node_frames(node), aside * frames_of_each(layout));
            let high = if self.has_high {
                room(basis.high, frames.node_high_frames(node), aside << order)
            } else {
                0
            };
            core::array::from_fn(|class| {
                let pages = if class == HIGH { high >> order } else { part(low, class, layout) };
                pages as u32
            })
        };
        self.node(node).set_limits(|| self.basis(node), limits, !self.one_node);
    }

    /// Takes a page at hand for a table of `level`, below the root; returns its class, too.
    #[inline(always)]
    fn take_below_root(&self, here: &Here<'_>, level: Level, flags: AllocFlags) -> (Option<Clean>, usize) {
        if flags.high != HighUse::Never && self.source.class(level, flags.high) == ZoneClass::High {
            (self.take_at_hand(here, HIGH, level), HIGH)
        } else {
            (self.take_at_hand(here, ZERO, level), ZERO)
        }
    }

    /// Gives a CPU's magazines of a class the size that they should have. A CPU without pages there
    /// takes part from now on.
    fn resize(&self, here: &HereCopy<'_>, magazines: &mut Magazines<'_>, class: usize) {
        let node = self.node(here.node());
        let depot = node.depot(class);
        if self.config.magazine > 0 && magazines.node() != Some(here.node()) {
            self.leave(magazines, class);
            depot.join(&node.doorbell);
        }
        magazines.resize(here.node(), depot.magazine(here.cpu()));
    }

    /// Ends a CPU's part where it took part: others may have larger magazines.
    fn leave(&self, magazines: &Magazines<'_>, class: usize) {
        if let Some(node) = magazines.node() {
            self.depot(node, class).leave();
        }
    }
}

// SAFETY: 1. they are of the CPUs' array, which was made for the frames' machine. 2. pages of a
// class are in one state, and `page` names the level that is asked for, which is of the class. 3. a
// page is in one magazine or depot at a time, and only clean pages are put there. 4. proofs
// go to no other policy.
unsafe impl<W: OpenWindow, C: Construct, K: Check> Policy for Quicklists<'_, W, C, K> {
    fn machine(&self) -> MachineId {
        self.cpus.machine()
    }

    fn cpus(&self) -> usize {
        self.cpus.cpus()
    }

    #[inline]
    fn takes_unhooked(&self) -> Option<&dyn TakesUnhooked> {
        None
    }
    #[inline]
    fn root(&self) -> Option<Level> {
        Some(self.root)
    }

    #[inline(always)]
    fn alloc(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        let here = &here;
        if cfg!(feature = "small") {
            if level > self.root {
                return Err(self.source.none(here.node(), level));
            }
            let prefers_high = level < self.root && flags.high != HighUse::Never;
            if prefers_high && self.source.class(level, flags.high) == ZoneClass::High {
                return self.take_rare(here.copied(), HIGH, level, flags);
            }
            if level == self.root {
                return self.take_rare(here.copied(), ROOT, level, flags);
            }
        }
        let (at_hand, class) = if level == self.root {
            (self.take_at_hand(here, ROOT, level), ROOT)
        } else if level < self.root {
            self.take_below_root(here, level, flags)
        } else {
            return Err(self.source.none(here.node(), level));
        };
        match at_hand {
            Some(page) => Ok(page),
            None => self.take_slow(here.copied(), class, level, flags),
        }
    }

    #[cold]
    fn adopt(&self, here: Here<'_>, page: &Clean) {
        self.take_in(&here.copied(), page);
    }

    #[inline(always)]
    fn alloc_at_hand(&self, here: Here<'_>, level: Level, flags: AllocFlags) -> Option<Clean> {
        if level < self.root { self.take_below_root(&here, level, flags).0 } else { None }
    }

    #[inline(always)]
    fn free_unlinked(&self, here: Here<'_>, page: Returned<Clean>) {
        let here = &here.copied();
        self.put_back(here, page);
    }

    #[inline]
    fn flushed(&self, here: Here<'_>, pages: Returned<Flushed>) {
        let here = &here.copied();
        self.put_chain(here, pages);
    }

    #[inline]
    fn flushed_leaves<'t>(
        &self,
        here: Here<'_>,
        pages: Returned<FlushedLeaves<'t>>,
    ) -> Result<(), Returned<FlushedLeaves<'t>>> {
        let here = &here.copied();
        self.put_leaves(here, pages)
    }

    #[inline]
    fn gather_end(&self, here: Here<'_>) {
        let here = &here.copied();
        if self.source.frames().pressed(here.node()) {
            self.set_limits(here.node());
        }
        if let Placement::Auto(auto) = self.source.placement()
            && auto.is_short()
        {
            auto.look(self.source.frames(), self.low_tables());
        }
        self.respond(here);
    }

    #[inline]
    fn idle(&self, here: Here<'_>) {
        let here = &here.copied();
        self.set_limits(here.node());
        self.respond(here);
    }

    fn end_interval(&self, here: Here<'_>) -> u32 {
        self.end_interval_here(&here.copied())
    }

    fn reclaim(&self, here: Here<'_>, node: NodeId, want: u32) -> u32 {
        let here = &here.copied();
        if self.has(node) { self.reclaim_from(here, node, want) } else { 0 }
    }

    fn drain(&self, here: Here<'_>) {
        self.drain_here(&here.copied());
    }

    fn counts(&self) -> PolicyCounts {
        PolicyCounts::sum(self.cpus.shown().map(|own| &own.tally))
    }
}
