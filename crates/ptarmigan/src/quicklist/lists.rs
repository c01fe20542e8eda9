//! Quicklists: per-CPU magazines of clean pages before a depot per node, within one budget per node.
//!
//! On each CPU a class has two magazines of [`MAGAZINE`] page numbers at most, laid end to end in one array: the
//! top one is handed out from and put back to, the other one is what Bonwick calls *previous*; only when both are
//! empty, or both full, a whole magazine is exchanged with the depot. So a CPU that allocates and frees in turn
//! never goes there. A hit touches the CPU's own lines: no lock, no atomic read-modify-write, nothing of the page
//! and nothing of its frame's record (links inside pages cost four times as much as soon as more than a few pages
//! are in flight).
//!
//! Pages freed on a foreign node go to their home node's depot, after the flush like all others (REQ-7, REQ-8).
//! What a node caches, CPUs and depot together, never exceeds its budget (REQ-12): the magazines' worst case is
//! set aside first and the depot may have the rest.
use super::depot::{Depot, Magazine};
use super::tally::Tallies;
use super::{Clean, Construct, Flushed, Level, Policy, PolicyCounts, Source};
use crate::addr::PhysAddr;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{NodeId, PerCpu, Pinned};
use crate::frames::{Ask, Frames, NoFrame};
use crate::sync::SpinLock;
use crate::window::Window;

/// Pages a magazine can hold; how many it does hold is [`ListsConfig::magazine`].
pub const MAGAZINE: usize = 64;
/// Pages given back to the allocator in one call of anything (I6).
const BOUNDED: usize = 16;
/// Pages fetched from the allocator when neither magazines nor depot have one.
const BATCH: u32 = 4;
/// Tops, and everything else.
const CLASSES: usize = 2;
const TOP: usize = 0;
const REST: usize = 1;

/// Sizes of the lists.
#[derive(Clone, Copy, Debug)]
pub struct ListsConfig {
    /// CPUs.
    pub cpus: usize,
    /// Pages per magazine, 0 to 64; 0 turns caching off: every call goes to the allocator.
    pub magazine: usize,
    /// A node may cache this share of its memory: 1/`share`.
    pub share: u32,
}

impl ListsConfig {
    /// The defaults for `cpus` CPUs: magazines of 16, one sixteenth of a node.
    pub const fn new(cpus: usize) -> Self {
        ListsConfig { cpus, magazine: 16, share: 16 }
    }
}

struct Stack {
    n: u32,
    /// Twice the magazine's size.
    limit: u32,
    items: [u32; 2 * MAGAZINE],
}

/// The policy that this library is about.
pub struct Quicklists<'m, W, C> {
    source: Source<'m, W, C>,
    stacks: PerCpu<[Stack; CLASSES]>,
    tallies: Tallies,
    /// By node and class.
    depots: BootSlice<SpinLock<Depot>>,
    config: ListsConfig,
    cpus_per_node: usize,
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
        let cpus_per_node = config.cpus.div_ceil(nodes).max(1);
        let smallest =
            (0..nodes).map(|n| Self::budget_of(frames, &config, NodeId(n as u8), false)).min().unwrap_or(0);
        let fits = smallest as usize / 2 / (2 * CLASSES * cpus_per_node);
        config.magazine = config.magazine.min(MAGAZINE).min(fits);
        let magazine = config.magazine;
        let stack = || Stack { n: 0, limit: 2 * magazine as u32, items: [0; 2 * MAGAZINE] };
        let stacks = PerCpu::new(boot, config.cpus, |_| [stack(), stack()])?;
        let tallies = Tallies::new(boot, config.cpus)?;
        // The depots' own arrays are carved first: `take` below needs the block to itself.
        let mut short = None;
        let mut made: [Option<Depot>; 2 * 64] = [const { None }; 128];
        for (i, slot) in made.iter_mut().enumerate().take(nodes * CLASSES) {
            match Depot::new(boot, Self::most(frames, &config, NodeId((i / CLASSES) as u8))) {
                Ok(depot) => *slot = Some(depot),
                Err(e) => short = Some(e),
            }
        }
        if let Some(e) = short {
            return Err(e);
        }
        let mut left = made.iter_mut().filter_map(Option::take);
        let depots = boot.take(nodes * CLASSES, |_| {
            // One was made for each of them above.
            SpinLock::new(left.next().unwrap_or_else(|| unreachable!("a depot for each node and class")))
        })?;
        let layout = *source.layout();
        let top_shift = layout.table_shift[layout.top().at()] as u32;
        let shift = [top_shift, layout.table_shift[0] as u32];
        let lists = Quicklists { source, stacks, tallies, depots, config, cpus_per_node, shift };
        for node in 0..nodes {
            lists.set_limits(NodeId(node as u8));
        }
        Ok(lists)
    }

    /// Boot memory for `config` over `frames`.
    pub fn bytes(frames: &Frames, config: &ListsConfig) -> usize {
        let nodes = frames.nodes();
        let depots: usize =
            (0..nodes).map(|n| CLASSES * Depot::bytes(Self::most(frames, config, NodeId(n)))).sum();
        PerCpu::<[Stack; CLASSES]>::bytes(config.cpus)
            + Tallies::bytes(config.cpus)
            + depots
            + BootMemory::bytes::<SpinLock<Depot>>(nodes as usize * CLASSES)
    }

    fn budget_of(frames: &Frames, config: &ListsConfig, node: NodeId, now: bool) -> u32 {
        let of = if now { frames.node_free(node) } else { frames.node_frames(node) };
        of / config.share.max(1)
    }

    /// Magazines that one depot can ever hold: no more than the budget, and no more than 1024, which is 256 MiB.
    fn most(frames: &Frames, config: &ListsConfig, node: NodeId) -> usize {
        (Self::budget_of(frames, config, node, false) as usize / config.magazine.clamp(1, MAGAZINE)).min(1024)
    }

    /// Frames that node may cache at the moment.
    pub fn budget(&self, node: NodeId) -> u32 {
        Self::budget_of(self.source.frames(), &self.config, node, true)
    }

    /// The source beneath.
    pub fn source(&self) -> &Source<'m, W, C> {
        &self.source
    }

    /// Pages per magazine that are in force.
    pub fn magazine(&self) -> usize {
        self.config.magazine
    }

    fn depot(&self, node: NodeId, class: usize) -> &SpinLock<Depot> {
        &self.depots[node.0 as usize * CLASSES + class]
    }

    /// Sets what the depots of `node` may hold from what is free there now.
    fn set_limits(&self, node: NodeId) {
        let magazine = self.config.magazine.max(1);
        let aside = 2 * self.config.magazine * CLASSES * self.cpus_per_node + CLASSES * magazine;
        let room = (self.budget(node) as usize).saturating_sub(aside) / magazine;
        // Tops are the fewer: one in eight.
        self.depot(node, TOP).lock().set_limit(room / 8);
        self.depot(node, REST).lock().set_limit(room - room / 8);
    }

    #[inline(always)]
    fn class(&self, level: Level) -> usize {
        if level == self.source.layout().top() { TOP } else { REST }
    }

    /// A level of the class, for pages whose own level is no longer known.
    fn level_of(&self, class: usize) -> Level {
        if class == TOP { self.source.layout().top() } else { Level::PTE }
    }

    #[inline(always)]
    fn page(&self, class: usize, item: u32) -> Clean {
        // SAFETY: 1. the item came out of a list, where it was put by `into_item`, its owner's last act. 2. and
        // 3. only clean pages are put there, and nobody writes to them while they rest.
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
        if self.config.magazine > 0 {
            if let Some(mut stacks) = self.stacks.enter(pin) {
                let stack = &mut stacks[class];
                let mut depot = self.depot(pin.node(), class).lock();
                let n = depot.fetch(&mut stack.items[..MAGAZINE]);
                if n > 0 {
                    tally.refills.add(1);
                    tally.allocs.add(1);
                    stack.n = n as u32 - 1;
                    return Ok(self.page(class, stack.items[n - 1]));
                }
            } else {
                // An interrupt found the magazines in use: single pages from the depot.
                let mut one = [0];
                if self.depot(pin.node(), class).lock().shed(&mut one, true) == 1 {
                    tally.allocs.add(1);
                    return Ok(self.page(class, one[0]));
                }
            }
        }
        let page = self.miss(pin, level, ask)?;
        tally.misses.add(1);
        tally.allocs.add(1);
        // A few more while at it, if they can be had without effort. Small classes come cheap from their slab.
        let more = BATCH.min(self.config.magazine as u32) / 2;
        for _ in 0..more {
            let Ok(extra) = self.source.make(pin.node(), level, Ask::ATOMIC) else { break };
            tally.misses.add(1);
            self.put(pin, class, level, extra);
        }
        Ok(page)
    }

    fn miss(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Result<Clean, NoFrame> {
        self.source.make(pin.node(), level, ask).or_else(|e| {
            if !ask.may_sleep {
                return Err(e);
            }
            let nodes = self.source.frames().nodes();
            let freed: u32 = (0..nodes).map(|n| self.reclaim(pin, NodeId(n), u32::MAX)).sum();
            self.drain(pin);
            if freed == 0 && self.config.magazine == 0 {
                return Err(e);
            }
            self.source.make(pin.node(), level, ask)
        })
    }

    /// Keeps a clean page, or gives it back if there is no room for it.
    #[inline(always)]
    fn put(&self, pin: &Pinned<'_>, class: usize, level: Level, page: Clean) {
        let frames = self.source.frames();
        if frames.nodes() > 1 && frames.node_of(page.addr().pfn()) != pin.node() {
            return self.put_home(pin, class, level, page);
        }
        if let Some(mut stacks) = self.stacks.enter(pin) {
            let stack = &mut stacks[class];
            let n = stack.n;
            if n < stack.limit {
                stack.items[n as usize & (2 * MAGAZINE - 1)] = self.item(class, page);
                stack.n = n + 1;
                return;
            }
        }
        self.put_slow(pin, class, level, page)
    }

    #[cold]
    #[inline(never)]
    fn put_slow(&self, pin: &Pinned<'_>, class: usize, level: Level, page: Clean) {
        let magazine = self.config.magazine;
        if magazine > 0
            && let Some(mut stacks) = self.stacks.enter(pin)
        {
            let stack = &mut stacks[class];
            // Both magazines are full: the older one goes to the depot, the newer one becomes the older.
            if self.depot(pin.node(), class).lock().store(&stack.items[..magazine]) {
                stack.items.copy_within(magazine..2 * magazine, 0);
                stack.items[magazine] = self.item(class, page);
                stack.n = magazine as u32 + 1;
                return;
            }
        }
        self.put_home(pin, class, level, page)
    }

    /// To the depot of the page's home node, or to the allocator if that is full.
    fn put_home(&self, pin: &Pinned<'_>, class: usize, level: Level, page: Clean) {
        let home = self.source.frames().node_of(page.addr().pfn());
        let item = self.item(class, page);
        if self.config.magazine > 0 && self.depot(home, class).lock().store_one(item) {
            return;
        }
        self.unmake(pin, class, level, item);
    }

    fn unmake(&self, pin: &Pinned<'_>, class: usize, level: Level, item: u32) {
        self.tallies.of(pin, level).returns.add(1);
        self.source.unmake(level, self.page(class, item));
    }

    /// Gives back at most [`BOUNDED`] pages that are beyond the node's budget.
    fn trim(&self, pin: &Pinned<'_>) {
        let node = pin.node();
        self.set_limits(node);
        for class in 0..CLASSES {
            let mut items = [0; BOUNDED / CLASSES];
            // Detach under the lock, unmake outside it (REQ-15).
            let n = self.depot(node, class).lock().shed(&mut items, false);
            for item in &items[..n] {
                self.unmake(pin, class, self.level_of(class), *item);
            }
        }
    }
}

impl<W: Window, C: Construct> Policy for Quicklists<'_, W, C> {
    #[inline]
    fn alloc(&self, pin: &Pinned<'_>, level: Level, ask: Ask) -> Result<Clean, NoFrame> {
        let class = self.class(level);
        if let Some(mut stacks) = self.stacks.enter(pin) {
            let stack = &mut stacks[class];
            if stack.n > 0 {
                let n = stack.n - 1;
                stack.n = n;
                let item = stack.items[n as usize & (2 * MAGAZINE - 1)];
                self.tallies.of(pin, level).allocs.add(1);
                let page = self.page(class, item);
                debug_assert!(
                    class == TOP || self.source.is_zero(page.addr()),
                    "page {} rested as zero and is not",
                    page.addr()
                );
                return Ok(page);
            }
        }
        self.alloc_slow(pin, level, ask)
    }

    #[inline]
    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.tallies.of(pin, level).frees.add(1);
        self.put(pin, self.class(level), level, page);
    }

    #[inline]
    fn flushed(&self, pin: &Pinned<'_>, mut pages: Flushed) {
        let frames = self.source.frames();
        let (one_node, node, top) = (frames.nodes() == 1, pin.node(), self.source.layout().top());
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

    fn gather_end(&self, pin: &Pinned<'_>) {
        // Budgets change slowly; looking at them is left to idle time unless memory is short.
        if self.source.frames().pressed(pin.node()) {
            self.trim(pin);
        }
    }

    fn idle(&self, pin: &Pinned<'_>) {
        self.trim(pin);
    }

    fn reclaim(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        let mut freed = 0;
        for class in [REST, TOP] {
            loop {
                let mut items = [0; BOUNDED];
                let most = BOUNDED.min((want - freed) as usize);
                let n = self.depot(node, class).lock().shed(&mut items[..most], true);
                for item in &items[..n] {
                    self.unmake(pin, class, self.level_of(class), *item);
                }
                freed += n as u32;
                if n == 0 || freed == want {
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

const _: () = assert!(size_of::<Magazine>() == 4 + 4 * MAGAZINE);
