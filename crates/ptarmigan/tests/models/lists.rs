//! Quicklists of several CPUs: pages exchanged through the depot, and pages that come home from
//! another node.
use crate::At;
use crate::machine::{model, part_of_model};
use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned};
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, MemoryRun, Request, ZoneClass};
use ptarmigan::page::{Clean, Construct, Layout, Level, NoConstruct};
use ptarmigan::quicklist::{ListsConfig, Policy, Quicklists, Source};
use ptarmigan::window::DirectMap;
use std::alloc;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

pub const ROOT: Level = Level(0);
pub const CPUS: usize = 2;
/// All tables are roots: one class is enough.
pub const LAYOUT: Layout = Layout { levels: 1, table_shift: [12; 5] };

/// The content of a page, as far as it matters. The CPU that has it writes this, so that two CPUs
/// that have it at once, or one after the other without an order between them, are noticed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Clean,
    UsedBy(usize),
}

/// The most pages that magazines hold on one of `nodes` nodes. They are of one page, so three pages
/// at one CPU reach the depot.
fn aside(nodes: usize) -> u32 {
    2 * (CPUS / nodes) as u32
}

/// The capacity of the depot of one of `nodes` nodes, and how many pages may come home and wait.
/// The least for which there are magazines at all, and a part for visitors.
fn room(nodes: usize) -> (u32, u32) {
    if nodes == 1 { (4, 0) } else { (7, 1) }
}

fn budget(nodes: usize) -> u32 {
    let (depot, remote) = room(nodes);
    aside(nodes) + depot + remote
}

pub struct Lists<C: 'static> {
    nodes: usize,
    pub lists: Quicklists<'static, DirectMap, C>,
    contents: Vec<UnsafeCell<Content>>,
    /// Pages that CPUs have, those on their way to the lists included.
    in_use: Cell<u32>,
    /// Frames that are free while the lists are empty.
    free: u32,
    pub frames: Box<Frames>,
    base: *mut u8,
    layout: alloc::Layout,
    _boot: Vec<MaybeUninit<u64>>,
}

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl<C> Send for Lists<C> {}
// SAFETY: as above.
unsafe impl<C> Sync for Lists<C> {}

impl<C> Drop for Lists<C> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; no remaining object uses it.
        unsafe { alloc::dealloc(self.base, self.layout) };
    }
}

impl<C: Construct + 'static> Lists<C> {
    /// Lists of `nodes` nodes, each with a set budget.
    pub fn new(nodes: usize, construct: impl FnOnce(&Frames, DirectMap) -> C) -> Arc<Self> {
        let keep = budget(nodes);
        let config = ListsConfig { magazine: 1, fixed_budget: Some(keep), ..ListsConfig::new(CPUS) };
        // More than are kept, so that the kept pages have a bound; one for the kernel map, and some
        // to be in use.
        Self::with(nodes, keep + 4, config, construct)
    }

    fn with(
        nodes: usize,
        per_node: u32,
        config: ListsConfig,
        construct: impl FnOnce(&Frames, DirectMap) -> C,
    ) -> Arc<Self> {
        let total = per_node as usize * nodes;
        let layout = alloc::Layout::from_size_align((total + 1) * FRAME_SIZE, FRAME_SIZE).unwrap();
        // SAFETY: the size is not 0.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        assert!(!base.is_null());
        // SAFETY: 1. all frames lie in the block, which is kept beside its users. 2. nobody else
        // has its address.
        let window = unsafe { DirectMap::new(base, layout.size() as u64) }.unwrap();
        let mut block: Vec<MaybeUninit<u64>> = Vec::with_capacity(4096);
        // SAFETY: 1. the block is kept beside the parts made of it.
        let mut boot = unsafe { BootMemory::new(NonNull::new(block.as_mut_ptr().cast()).unwrap(), 4096 * 8) };
        let run = |node| MemoryRun {
            start: Pfn(1 + node as u32 * per_node),
            frames: per_node,
            node: NodeId(node as u8),
            class: ZoneClass::Low,
        };
        let runs: Vec<MemoryRun> = (0..nodes).map(run).collect();
        // SAFETY: 1. and 3. the block was allocated zeroed, for these frames. 2. the identity is
        // new.
        let frames = Box::new(unsafe { Frames::new_zero(&mut boot, MachineId::new(), &runs) }.unwrap());
        let construct = construct(&frames, window);
        // SAFETY: the box is kept beside the lists and moves nowhere with them.
        let borrowed: &'static Frames = unsafe { &*std::ptr::from_ref(&*frames) };
        // SAFETY: 1. all frames lie in the block. 2. the caller's is for these frames. 3. the
        // layout has frames alone but for its root. 4. no tree is made.
        let source = unsafe { Source::new(borrowed, window, construct, LAYOUT) };
        let lists = Quicklists::new(&mut boot, config, source).unwrap();
        assert_eq!(lists.magazine(), 1);
        let free = frames.counts().free;
        let contents = (0..=total).map(|_| UnsafeCell::new(Content::Clean)).collect();
        let in_use = Cell::new(0);
        Arc::new(Lists { nodes, lists, contents, in_use, free, frames, base, layout, _boot: block })
    }

    pub fn pin(&self, cpu: usize) -> Pinned<'static> {
        let node = NodeId((cpu * self.nodes / CPUS) as u8);
        // SAFETY: 1. each thread of a model is one CPU, and the first is all of them while it is
        // alone. 2. there are two.
        unsafe { Pinned::assume(self.frames.machine(), CpuId(cpu as u16), node) }
    }

    /// A page for this CPU, which uses it at once.
    pub fn take(&self, cpu: usize) -> PhysAddr {
        let at = self
            .lists
            .at(&self.pin(cpu))
            .alloc(ROOT, AllocFlags::ATOMIC)
            .expect("there are enough")
            .into_raw();
        self.in_use.update(|n| n + 1);
        self.write(at, Content::Clean, Content::UsedBy(cpu));
        at
    }

    /// CPU `from` had it; this CPU gives it back as it was.
    pub fn put(&self, cpu: usize, from: usize, at: PhysAddr) {
        self.give_back(cpu, from, at);
        self.within_budget();
    }

    fn give_back(&self, cpu: usize, from: usize, at: PhysAddr) {
        self.write(at, Content::UsedBy(from), Content::Clean);
        // SAFETY: 1. handed out by `take`, and forgotten by the caller. 2. as it was. 3. no MMU
        // walks it.
        self.lists.at(&self.pin(cpu)).free_unlinked(unsafe { Clean::from_raw(at, ROOT) });
        self.in_use.update(|n| n - 1);
    }

    /// 2^`order` frames for somebody else.
    fn use_up(&self, order: u8) -> Frame<Dirty> {
        let request = Request {
            node: NodeId(0),
            order,
            zero: false,
            class: ZoneClass::Low,
            end: End::High,
            flags: AllocFlags::ATOMIC,
        };
        self.frames.take(request).expect("there are enough").dirty()
    }

    /// Gives back pages that this CPU has used.
    pub fn put_all<const N: usize>(&self, cpu: usize, pages: [PhysAddr; N]) {
        pages.into_iter().for_each(|at| self.put(cpu, cpu, at));
    }

    fn write(&self, at: PhysAddr, was: Content, is: Content) {
        // SAFETY: loom checks that nobody else is at it.
        self.contents[at.pfn().0 as usize].with_mut(|p| unsafe {
            assert_eq!(*p, was, "{at} is not as the CPU that had it before has left it");
            *p = is;
        });
    }

    pub fn take_many<const N: usize>(&self, cpu: usize) -> [PhysAddr; N] {
        std::array::from_fn(|_| self.take(cpu))
    }

    /// All cached pages together are within the budget.
    fn within_budget(&self) {
        let taken = self.free - self.frames.counts().free;
        let rests = taken.saturating_sub(self.in_use.get());
        let budget = self.nodes as u32 * budget(self.nodes);
        assert!(rests <= budget, "{rests} pages rest, the budget is {budget}");
        // Two counts that are read without their locks need not belong together: with two nodes
        // pages come home.
        if self.nodes == 1 {
            let (held, limit) = (self.lists.in_depots(NodeId(0)), room(1).0);
            assert!(held <= limit, "the depot holds {held}, {limit} is the limit");
        }
    }

    /// Fills the magazines of CPU 0 and, but for one page, its node's depot.
    pub fn nearly_fill(&self) {
        let (depot, _) = room(self.nodes);
        let pages: Vec<PhysAddr> = (0..depot + 1).map(|_| self.take(0)).collect();
        pages.into_iter().for_each(|at| self.put(0, 0, at));
        assert_eq!(self.lists.in_depots(NodeId(0)), depot - 1);
    }

    pub fn on(self: &Arc<Self>, f: impl FnOnce(&Self) + 'static) -> JoinHandle<()> {
        let its = self.clone();
        loom::thread::spawn(move || f(&its))
    }

    /// All is quiet and no page is in use: every page that was taken from the allocator is where
    /// the lists say it is, and goes back; the depots then take as much as in the beginning.
    pub fn audit(&self) {
        assert_eq!(self.lists.counts().live(), 0);
        for cpu in 0..CPUS {
            self.lists.at(&self.pin(cpu)).drain();
        }
        let nodes = || (0..self.nodes).map(|n| NodeId(n as u8));
        let held: u32 = nodes().map(|n| self.lists.in_depots(n)).sum();
        assert_eq!(held as usize, self.lists.counts().cached(), "pages that depots do not know of");
        let (depot, remote) = room(self.nodes);
        nodes().for_each(|n| assert!(self.lists.in_depots(n) <= depot + remote, "more than the limit"));
        let given: u32 = nodes().map(|n| self.lists.at(&self.pin(0)).reclaim(n, u32::MAX)).sum();
        assert_eq!(given, held);
        assert_eq!(self.frames.counts().free, self.free, "pages are missing");
        let pages: Vec<PhysAddr> = (0..depot + 2).map(|_| self.take(0)).collect();
        pages.into_iter().for_each(|at| self.put(0, 0, at));
        assert_eq!(self.lists.in_depots(NodeId(0)), depot, "room is lost");
    }
}

fn plain(nodes: usize) -> Arc<Lists<NoConstruct>> {
    Lists::new(nodes, |_, _| NoConstruct)
}

#[test]
fn a_page_that_goes_through_the_depot_is_intact_and_of_one_cpu() {
    model(3, || {
        let w = plain(1);
        let pages: [_; 4] = w.take_many(0);
        let other = w.on(|w| {
            let at = w.take(1);
            w.put(1, 1, at);
        });
        // The third and the fourth send an older one to the depot each.
        w.put_all(0, pages);
        other.join().unwrap();
        w.audit();
    });
}

#[test]
fn two_cpus_that_come_with_full_magazines_keep_to_the_limit() {
    model(4, || {
        let w = plain(1);
        let [a, b, c] = w.take_many(1);
        let d = w.take(0);
        w.nearly_fill();
        w.put_all(1, [a, b]);
        let other = w.on(move |w| w.put(1, 1, c));
        w.put(0, 0, d);
        other.join().unwrap();
        w.audit();
    });
}

#[test]
fn what_one_cpu_leaves_another_one_finds() {
    model(3, || {
        let w = plain(1);
        let pages: [_; 4] = w.take_many(0);
        w.put_all(0, pages);
        // Two are at hand at CPU 0, in its own shard the others.
        let misses = w.lists.counts().levels[0].misses;
        let other = w.on(|w| {
            let at = w.take(1);
            w.put(1, 1, at);
        });
        let at = w.take(0);
        w.put(0, 0, at);
        other.join().unwrap();
        assert_eq!(w.lists.counts().levels[0].misses, misses);
        w.audit();
    });
}

#[test]
fn a_limit_that_is_set_while_others_work_is_kept_in_the_end() {
    part_of_model(2, 8_000, || {
        // The depot may have half as many pages as are free, less the pages in magazines.
        let config = ListsConfig { magazine: 1, budget_divisor: 2, ..ListsConfig::new(CPUS) };
        let w = Lists::with(1, 32, config, |_, _| NoConstruct);
        let pages: [_; 8] = w.take_many(0);
        pages.into_iter().for_each(|at| w.give_back(0, 0, at));
        assert_eq!(w.lists.in_depots(NodeId(0)), 6);
        // Memory is used up for something else, so that the depot holds more than it may; both CPUs
        // come to see it.
        let eight = w.use_up(3);
        let other = w.on(|w| w.lists.at(&w.pin(1)).idle());
        let four = w.use_up(2);
        w.lists.at(&w.pin(0)).idle();
        other.join().unwrap();
        // No CPU looks at free memory any more: the CPU that was called does the rest.
        for cpu in [0, 1] {
            w.lists.at(&w.pin(cpu)).gather_end();
        }
        let limit = w.lists.node_counts(NodeId(0)).budget.saturating_sub(aside(1));
        let held = w.lists.in_depots(NodeId(0));
        assert!(held <= limit, "the depot holds {held}, {limit} is the limit");
        [eight, four].into_iter().for_each(|frames| w.frames.give(frames));
    });
}

#[test]
fn one_cpu_gives_up_what_another_is_about_to_take() {
    model(2, || {
        let w = plain(1);
        w.nearly_fill();
        let other = w.on(|w| {
            let at = w.take(1);
            w.put(1, 1, at);
        });
        w.lists.at(&w.pin(0)).reclaim(NodeId(0), 2);
        w.lists.at(&w.pin(0)).end_interval();
        other.join().unwrap();
        w.audit();
    });
}

/// Two pages of node 0 that CPU 1, of node 1, sends home, while CPU 0 does `what`. There are as
/// many at home already, in CPU 0's magazines.
fn coming_home(preemptions: usize, what: fn(&Lists<NoConstruct>)) {
    model(preemptions, move || {
        let w = plain(2);
        let [a, b, c, d] = w.take_many(0);
        w.put_all(0, [c, d]);
        let other = w.on(move |w| {
            w.put(1, 0, a);
            w.put(1, 0, b);
        });
        what(&w);
        other.join().unwrap();
        w.audit();
    });
}

#[test]
fn what_comes_home_is_fetched_as_it_was_left() {
    coming_home(3, |w| {
        let pages: [_; 3] = w.take_many(0);
        w.put_all(0, pages);
    });
}

#[test]
fn what_comes_home_while_pages_are_given_up_is_not_lost() {
    coming_home(2, |w| {
        w.lists.at(&w.pin(0)).reclaim(NodeId(0), 2);
        w.lists.at(&w.pin(0)).idle();
    });
}

#[test]
fn what_comes_home_while_an_interval_ends_is_in_one_place() {
    coming_home(2, |w| {
        w.lists.at(&w.pin(0)).end_interval();
        w.lists.at(&w.pin(0)).end_interval();
        w.lists.at(&w.pin(0)).drain();
        let at = w.take(0);
        w.put(0, 0, at);
    });
}

#[test]
fn what_came_home_is_given_up_from_afar_or_joins_the_depot() {
    model(3, || {
        let w = plain(2);
        let at = w.take(0);
        w.put(1, 0, at);
        let other = w.on(|w| {
            w.lists.at(&w.pin(1)).reclaim(NodeId(0), 1);
        });
        w.lists.at(&w.pin(0)).end_interval();
        other.join().unwrap();
        w.audit();
    });
}

#[test]
fn what_comes_home_to_a_full_part_shares_the_depots_limit() {
    model(4, || {
        let w = plain(2);
        let [a, b, c] = w.take_many(0);
        w.nearly_fill();
        // One may wait, and the depot has room for one more.
        let other = w.on(move |w| {
            w.put(1, 0, a);
            w.put(1, 0, b);
        });
        w.put(0, 0, c);
        other.join().unwrap();
        w.audit();
    });
}
