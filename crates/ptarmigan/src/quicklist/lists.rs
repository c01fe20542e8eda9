//! Quicklists: per-CPU magazines of clean pages before a depot per node, within one budget per node.
//!
//! On each CPU a class has two magazines of page numbers, laid end to end in one array: the upper one is handed out
//! from and put back to, the lower one is what Bonwick calls *previous*; only when both are empty, or both full, a
//! magazine is exchanged with the depot. So a CPU that allocates and frees in turn never goes there. A hit touches
//! the CPU's own lines: no lock, no atomic read-modify-write, nothing of the page and nothing of its frame's record
//! (links inside pages cost four times as much as soon as more than a few pages are in flight).
//!
//! Magazines are scaled to the node: where it has several CPUs, all together hold at most a sixth of the pages that the node has
//! in use or keeps, so that what rests on one CPU while another one runs short stays small beside what is in use.
//! What a node keeps, CPUs and depot together, never exceeds its budget (REQ-12): the magazines' worst case is set
//! aside first and the depot may have the rest.
//!
//! Pages freed on a foreign node go to their home node's depot, after the flush like all others (REQ-7, REQ-8).
mod upkeep;

use super::depot::Depot;
use super::source::GROUP;
use super::tally::{NodeCounts, Tallies};
use super::{Clean, Construct, Flushed, Layout, Level, Policy, PolicyCounts, Source};
use crate::addr::PhysAddr;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{CpuId, NodeId, PerCpu, Pinned};
use crate::frames::{Ask, Frames, NoFrame};
use crate::sync::SpinLock;
use crate::window::Window;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Pages a magazine can hold; how many it does hold is scaled to the node, up to [`ListsConfig::magazine`].
pub const MAGAZINE: usize = 64;
/// Pages of a class's magazine at the least, where there is caching at all.
const SMALLEST: u32 = 4;
/// Magazines of all CPUs of a node together hold at most 1/`PART` of the node's table pages. What rests on CPUs that do
/// not need it is what a node has to fetch beyond what it ever uses: a sixth.
const PART: u32 = 6;
/// Pages given back to the allocator in one call of anything (I6).
const BOUNDED: usize = 16;
/// Tops, and everything else.
const CLASSES: usize = 2;
const TOP: usize = 0;
const REST: usize = 1;
/// A depot for tops may have this part of a node's room: they are the fewer.
const TOP_PART: usize = 8;

/// Sizes of the lists.
#[derive(Clone, Copy, Debug)]
pub struct ListsConfig {
    /// CPUs.
    pub cpus: usize,
    /// Pages per magazine at the most, 0 to 64; 0 turns caching off: every call goes to the allocator.
    pub magazine: usize,
    /// A node may keep this share of what is free there: 1/`share`.
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
}

struct Stack {
    n: u32,
    /// Twice the magazine's size as it is now.
    limit: u32,
    items: [u32; 2 * MAGAZINE],
}

struct Shelf {
    depot: SpinLock<Depot>,
    /// What the depot holds, written under its lock, for a look without it.
    held: AtomicU32,
    /// What it may hold at the moment.
    limit: AtomicU32,
    /// Pages of the class that the node has in use or keeps. Changed when a page comes from or goes to the allocator.
    pages: AtomicU32,
    /// The size that magazines should have, worked out when `pages` changes.
    magazine: AtomicU32,
}

/// The policy that this library is about.
pub struct Quicklists<'m, W, C> {
    source: Source<'m, W, C>,
    stacks: PerCpu<[Stack; CLASSES]>,
    tallies: Tallies,
    /// By node.
    shelves: BootSlice<[Shelf; CLASSES]>,
    top: Level,
    one_node: bool,
    config: ListsConfig,
    cpus_per_node: u32,
    /// Of them at work, if somebody says.
    active: AtomicU32,
    shift: [u32; CLASSES],
}

impl<'m, W: Window, C: Construct> Quicklists<'m, W, C> {
    /// Lists of the given sizes. Magazines shrink, if need be, until they fit half of the smallest node's budget.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit into `boot`.
    pub fn new(
        boot: &mut BootMemory,
        mut config: ListsConfig,
        source: Source<'m, W, C>,
    ) -> Result<Self, BootMemoryShort> {
        let frames = source.frames();
        let nodes = frames.nodes() as usize;
        let even = config.cpus.div_ceil(nodes);
        let cpus_per_node = if config.crowd == 0 { even } else { config.crowd }.max(1);
        let smallest = (0..nodes).map(|n| Self::room(frames, &config, NodeId(n as u8))).min().unwrap_or(0);
        let classes = Self::classes(source.layout());
        let fits = smallest as usize / 2 / (2 * classes * cpus_per_node);
        config.magazine = config.magazine.min(MAGAZINE).min(fits);
        let start = Self::magazine_for(0, cpus_per_node as u32, config.magazine as u32);
        let stack = || Stack { n: 0, limit: 2 * start, items: [0; 2 * MAGAZINE] };
        let stacks = PerCpu::new(boot, config.cpus, |_| [stack(), stack()])?;
        let tallies = Tallies::new(boot, config.cpus)?;
        // Each shelf's depot is carved from the same block as the shelves.
        let mut depots = boot.take(nodes * CLASSES, |_| None)?;
        for (i, depot) in depots.iter_mut().enumerate() {
            let node = NodeId((i / CLASSES) as u8);
            let most = Self::part(Self::room(frames, &config, node) as usize, i % CLASSES, classes);
            *depot = Some(Depot::new(boot, most)?);
        }
        let shelves = boot.take(nodes, |node| {
            [TOP, REST].map(|class| Shelf {
                depot: SpinLock::new(
                    // Every one was made just above.
                    depots[node * CLASSES + class].take().unwrap_or_else(|| unreachable!("node {node}")),
                ),
                held: AtomicU32::new(0),
                limit: AtomicU32::new(0),
                pages: AtomicU32::new(0),
                magazine: AtomicU32::new(start),
            })
        })?;
        let layout = *source.layout();
        let top_shift = layout.table_shift[layout.top().at()] as u32;
        let shift = [top_shift, layout.table_shift[0] as u32];
        let cpus_per_node = cpus_per_node as u32;
        let active = AtomicU32::new(cpus_per_node);
        let (top, one_node) = (layout.top(), nodes == 1);
        let lists = Quicklists {
            source,
            stacks,
            tallies,
            shelves,
            top,
            one_node,
            config,
            cpus_per_node,
            active,
            shift,
        };
        for node in 0..nodes {
            lists.set_limits(NodeId(node as u8));
        }
        Ok(lists)
    }

    /// Boot memory for `config` over `frames`.
    pub fn bytes(frames: &Frames, config: &ListsConfig) -> usize {
        let nodes = frames.nodes();
        // However the classes share a node's room, together they have it.
        let depots: usize = (0..nodes)
            .map(|n| {
                Depot::bytes(Self::room(frames, config, NodeId(n)) as usize) + (CLASSES - 1) * Depot::bytes(0)
            })
            .sum();
        PerCpu::<[Stack; CLASSES]>::bytes(config.cpus)
            + Tallies::bytes(config.cpus)
            + depots
            + BootMemory::bytes::<[Shelf; CLASSES]>(nodes as usize)
            + BootMemory::bytes::<Option<Depot>>(nodes as usize * CLASSES)
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
        self.config.keep.unwrap_or_else(|| self.source.frames().node_free(node) / self.config.share.max(1))
    }

    /// What one CPU has counted. A page may be counted as allocated on one CPU and as freed on another.
    pub fn counts_on(&self, cpu: CpuId) -> PolicyCounts {
        self.tallies.on(cpu)
    }

    /// What a node keeps and may keep, by state.
    pub fn node_counts(&self, node: NodeId) -> NodeCounts {
        let (tops, rest) = (self.shelf(node, TOP), self.shelf(node, REST));
        NodeCounts {
            budget: self.budget(node),
            depot_tops: tops.held.load(Relaxed),
            depot_zero: rest.held.load(Relaxed),
            tops: tops.pages.load(Relaxed),
            pages: rest.pages.load(Relaxed),
            magazine_tops: tops.magazine.load(Relaxed),
            magazine_zero: rest.magazine.load(Relaxed),
        }
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
    fn shelf(&self, node: NodeId, class: usize) -> &Shelf {
        &self.shelves[node.0 as usize][class]
    }

    /// Sets what the depots of `node` may hold from what is free there now.
    #[inline]
    fn set_limits(&self, node: NodeId) {
        let classes = Self::classes(self.source.layout());
        let aside = 2 * self.config.magazine * classes * self.cpus_per_node as usize;
        let budget = self.budget(node);
        // Who may keep all there is cannot keep too much.
        let all = self.config.keep.is_some() && budget >= self.source.frames().node_frames(node);
        let room = (budget as usize).saturating_sub(if all { 0 } else { aside });
        for class in [TOP, REST] {
            self.shelf(node, class).limit.store(Self::part(room, class, classes) as u32, Relaxed);
        }
    }

    /// The size of magazines on a node of `cpus` CPUs that has `pages` pages. A CPU that has the node to itself keeps
    /// pages from nobody.
    fn magazine_for(pages: u32, cpus: u32, most: u32) -> u32 {
        let fair = if cpus == 1 { most } else { pages / (2 * PART * cpus) };
        fair.max(SMALLEST).min(most)
    }

    /// Pages of the class have come to the shelf's node from the allocator (`change` > 0) or gone back to it.
    fn count_pages(&self, shelf: &Shelf, change: i32) {
        let pages = shelf.pages.fetch_add(change as u32, Relaxed).wrapping_add_signed(change);
        self.size_magazines(shelf, pages);
    }

    fn size_magazines(&self, shelf: &Shelf, pages: u32) {
        let most = self.config.magazine as u32;
        shelf.magazine.store(Self::magazine_for(pages, self.active.load(Relaxed), most), Relaxed);
    }

    #[inline(always)]
    fn class(&self, level: Level) -> usize {
        if level == self.top { TOP } else { REST }
    }

    /// A level of the class, for pages whose own level is no longer known.
    fn level_of(&self, class: usize) -> Level {
        if class == TOP { self.top } else { Level::PTE }
    }

    #[inline(always)]
    fn page(&self, class: usize, item: u32) -> Clean {
        // SAFETY: 1. the item came out of a list, where it was put by `item`, its owner's last act. 2. and 3. only
        // clean pages are put there, and nobody writes to them while they rest.
        unsafe { Clean::from_raw(PhysAddr((item as u64) << self.shift[class])) }
    }

    #[inline(always)]
    fn item(&self, class: usize, page: Clean) -> u32 {
        (page.into_raw().0 >> self.shift[class]) as u32
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Result<Clean, NoFrame> {
        let class = self.class(level);
        let tally = self.tallies.of(pin, level);
        let shelf = self.shelf(pin.node(), class);
        if shelf.held.load(Relaxed) > 0 {
            if let Some(mut stacks) = self.stacks.enter(pin) {
                let stack = &mut stacks[class];
                let most = shelf.magazine.load(Relaxed);
                stack.limit = 2 * most;
                let most = (most as usize).min(MAGAZINE);
                let n = shelf.with(|depot| depot.fetch(&mut stack.items[..most]));
                if n > 0 {
                    tally.refills.add(1);
                    tally.allocs.add(1);
                    stack.n = n as u32 - 1;
                    return Ok(self.page(class, stack.items[n - 1]));
                }
            } else {
                // An interrupt found the magazines in use: a single page from the depot.
                let mut one = [0];
                if shelf.with(|depot| depot.fetch(&mut one)) == 1 {
                    tally.refills.add(1);
                    tally.allocs.add(1);
                    return Ok(self.page(class, one[0]));
                }
            }
        }
        if class == REST
            && self.config.magazine >= GROUP
            && !self.source.frames().pressed(pin.node())
            && let Some(page) = self.miss_group(pin, level, ask)
        {
            return Ok(page);
        }
        let page = self.miss(pin, level, ask)?;
        self.set_limits(pin.node());
        let home = self.source.frames().node_of(page.addr().pfn());
        self.count_pages(self.shelf(home, class), 1);
        tally.misses.add(1);
        tally.allocs.add(1);
        Ok(page)
    }

    /// As many pages from the allocator as a cache line has records, for a CPU that has none: one, the others rest.
    fn miss_group(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Option<Clean> {
        let mut stacks = self.stacks.enter(pin)?;
        let stack = &mut stacks[REST];
        // Full magazines: an interrupt came in since.
        if stack.n as usize + GROUP > stack.items.len() {
            return None;
        }
        let [page, rest @ ..] = self.source.make_group(pin.node(), level, ask)?;
        for page in rest.into_iter().rev() {
            stack.items[stack.n as usize] = self.item(REST, page);
            stack.n += 1;
        }
        drop(stacks);
        self.set_limits(pin.node());
        self.count_pages(self.shelf(pin.node(), REST), GROUP as i32);
        let tally = self.tallies.of(pin, level);
        tally.misses.add(GROUP);
        tally.allocs.add(1);
        Some(page)
    }

    /// A page from the allocator; if there is none, after giving up what is kept everywhere within reach.
    fn miss(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Result<Clean, NoFrame> {
        self.source.make(pin.node(), level, ask).or_else(|e| {
            if !ask.may_sleep {
                return Err(e);
            }
            for node in 0..self.source.frames().nodes() {
                self.reclaim(pin, NodeId(node), u32::MAX);
            }
            self.drain(pin);
            self.source.make(pin.node(), level, ask)
        })
    }

    /// Keeps a clean page, or gives it back if there is no room for it.
    #[inline(always)]
    fn put(&self, pin: &Pinned<'_>, class: usize, level: Level, page: Clean) {
        let Err(page) = self.try_put(pin, class, page) else { return };
        if !self.one_node && self.source.frames().node_of(page.addr().pfn()) != pin.node() {
            return self.put_home(pin, class, level, page);
        }
        self.put_slow(pin, class, level, page)
    }

    /// Keeps a clean page in this CPU's magazines if it is of this node and they have room.
    #[inline(always)]
    fn try_put(&self, pin: &Pinned<'_>, class: usize, page: Clean) -> Result<(), Clean> {
        if !self.one_node && self.source.frames().node_of(page.addr().pfn()) != pin.node() {
            return Err(page);
        }
        if let Some(mut stacks) = self.stacks.enter(pin) {
            let stack = &mut stacks[class];
            let n = stack.n;
            if n < stack.limit {
                stack.items[n as usize & (2 * MAGAZINE - 1)] = self.item(class, page);
                stack.n = n + 1;
                return Ok(());
            }
        }
        Err(page)
    }

    #[cold]
    #[inline(never)]
    fn put_slow(&self, pin: &Pinned<'_>, class: usize, level: Level, page: Clean) {
        if self.config.magazine > 0
            && let Some(mut stacks) = self.stacks.enter(pin)
        {
            let shelf = self.shelf(pin.node(), class);
            let stack = &mut stacks[class];
            let n = stack.n as usize;
            // Both magazines are full: the older one goes to the depot, the newer one becomes the older.
            let old = (stack.limit / 2) as usize;
            stack.limit = 2 * shelf.magazine.load(Relaxed);
            let limit = shelf.limit.load(Relaxed) as usize;
            if n < stack.limit as usize {
                // The magazines have grown meanwhile.
            } else if shelf.with(|depot| depot.store(&stack.items[..old], limit)) {
                stack.items.copy_within(old..n, 0);
                stack.n = (n - old) as u32;
            } else {
                drop(stacks);
                return self.unmake(pin, class, level, self.item(class, page));
            }
            let n = stack.n as usize;
            stack.items[n] = self.item(class, page);
            stack.n += 1;
            return;
        }
        self.put_home(pin, class, level, page)
    }

    /// To the depot of the page's home node, or to the allocator if that is full.
    fn put_home(&self, pin: &Pinned<'_>, class: usize, level: Level, page: Clean) {
        let home = self.source.frames().node_of(page.addr().pfn());
        let item = self.item(class, page);
        let shelf = self.shelf(home, class);
        let limit = shelf.limit.load(Relaxed) as usize;
        if self.config.magazine > 0 && shelf.with(|depot| depot.store(&[item], limit)) {
            return;
        }
        self.unmake(pin, class, level, item);
    }

    fn unmake(&self, pin: &Pinned<'_>, class: usize, level: Level, item: u32) {
        let page = self.page(class, item);
        let home = self.source.frames().node_of(page.addr().pfn());
        self.count_pages(self.shelf(home, class), -1);
        self.tallies.of(pin, level).returns.add(1);
        self.source.unmake(level, page);
    }

    /// Gives back at most [`BOUNDED`] pages of depots that hold more than they may. Two loads each where none does.
    #[inline]
    fn trim(&self, pin: &Pinned<'_>) {
        let shelves = &self.shelves[pin.node().0 as usize];
        let over = |shelf: &Shelf| shelf.held.load(Relaxed) > shelf.limit.load(Relaxed);
        if over(&shelves[TOP]) || over(&shelves[REST]) {
            for (class, shelf) in shelves.iter().enumerate() {
                let limit = shelf.limit.load(Relaxed) as usize;
                self.shed(pin, pin.node(), class, limit, BOUNDED / CLASSES);
            }
        }
    }

    /// Gives back up to `want` (at most [`BOUNDED`]) pages of a depot that are beyond `limit`; how many.
    #[cold]
    fn shed(&self, pin: &Pinned<'_>, node: NodeId, class: usize, limit: usize, want: usize) -> u32 {
        let mut items = [0; BOUNDED];
        let want = want.min(BOUNDED);
        // Detach under the lock, unmake outside it (REQ-15).
        let n = self.shelf(node, class).with(|depot| depot.shed(&mut items[..want], limit));
        for item in &items[..n] {
            self.unmake(pin, class, self.level_of(class), *item);
        }
        n as u32
    }
}

impl Shelf {
    /// Works on the depot under its lock.
    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut Depot) -> R) -> R {
        let mut depot = self.depot.lock();
        let result = work(&mut depot);
        self.held.store(depot.held() as u32, Relaxed);
        result
    }
}

impl<W: Window, C: Construct> Policy for Quicklists<'_, W, C> {
    #[inline(always)]
    fn alloc(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Result<Clean, NoFrame> {
        match self.at_hand(pin, level) {
            Some(page) => Ok(page),
            None => self.alloc_slow(pin, level, ask),
        }
    }

    #[inline(always)]
    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.tallies.of(pin, level).frees.add(1);
        self.put(pin, self.class(level), level, page);
    }

    #[inline]
    fn flushed(&self, pin: &Pinned<'_>, mut pages: Flushed) {
        let frames = self.source.frames();
        let (one_node, node, top) = (self.one_node, pin.node(), self.top);
        let mut next = pages.pop(frames);
        while let Some((mut level, mut page)) = next {
            // Nearly all are of one class and of this node: what fits goes in with one turn of the guard.
            if let Some(mut stacks) = self.stacks.enter(pin) {
                let tally = self.tallies.cpu(pin);
                let stack = &mut stacks[REST];
                let (mut n, limit) = (stack.n, stack.limit);
                while n < limit && level != top && (one_node || frames.node_of(page.addr().pfn()) == node) {
                    tally.level(level).frees.add(1);
                    stack.items[n as usize & (2 * MAGAZINE - 1)] = self.item(REST, page);
                    n += 1;
                    let Some(after) = pages.pop(frames) else {
                        stack.n = n;
                        return;
                    };
                    (level, page) = after;
                }
                stack.n = n;
            }
            self.unused(pin, level, page);
            next = pages.pop(frames);
        }
    }

    #[inline]
    fn gather_end(&self, pin: &Pinned<'_>) {
        if self.source.frames().pressed(pin.node()) {
            self.set_limits(pin.node());
        }
        self.trim(pin);
    }

    #[inline]
    fn idle(&self, pin: &Pinned<'_>) {
        self.set_limits(pin.node());
        self.trim(pin);
    }

    fn reclaim(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        let mut freed = 0;
        for class in [REST, TOP] {
            while freed < want {
                let n = self.shed(pin, node, class, 0, (want - freed) as usize);
                freed += n;
                if n == 0 {
                    break;
                }
            }
        }
        freed
    }

    fn drain(&self, pin: &Pinned<'_>) {
        for class in 0..CLASSES {
            let Some(mut stacks) = self.stacks.enter(pin) else { return };
            let stack = &mut stacks[class];
            let (n, items) = (stack.n as usize, stack.items);
            stack.n = 0;
            drop(stacks);
            for item in &items[..n] {
                self.unmake(pin, class, self.level_of(class), *item);
            }
        }
    }

    fn counts(&self) -> PolicyCounts {
        self.tallies.sum()
    }
}
