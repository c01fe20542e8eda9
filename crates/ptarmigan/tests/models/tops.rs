//! Roots that rest, move and are used while the kernel map changes (H2, H14, I10), and destructors
//! (H13).
use crate::At;
use crate::lists::{CPUS, LAYOUT, Lists};
use crate::machine::model;
use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Access, Attr, Format, Slot, Slot64};
use ptarmigan::frames::{AllocFlags, End, Frames, Request, ZoneClass};
use ptarmigan::page::{Construct, Layout, Level, MAX_LEVELS};
use ptarmigan::quicklist::Policy;
use ptarmigan::table::KernelMap;
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock, Weak};

/// The kernel's only entry of a root.
const KERNEL: usize = 1;

thread_local! {
    // An execution of a model, all its threads included, runs on one thread of the host.
    static ENTRIES: RefCell<(usize, Vec<Arc<Slot64>>)> = const { RefCell::new((0, Vec::new())) };
}

/// The place of an entry. Its value is kept apart, by address, so that the page itself stays zero:
/// the library looks whether it is.
#[repr(transparent)]
struct Apart(u64);

impl Apart {
    fn slot(&self) -> Option<Arc<Slot64>> {
        ENTRIES.with_borrow(|(base, slots)| {
            let offset = std::ptr::from_ref(self).addr() - base;
            (offset % FRAME_SIZE == 8 * KERNEL).then(|| slots[offset / FRAME_SIZE].clone())
        })
    }
}

// SAFETY: the word has the size and alignment of an entry and is not looked at; `Slot64` keeps the
// other promises.
unsafe impl Slot for Apart {
    fn load(&self) -> u64 {
        self.slot().map_or(0, |slot| slot.load())
    }
    fn store(&self, raw: u64) {
        self.slot().expect("only the kernel's entry is written").store(raw);
    }
    const FILLS_AT_ONCE: bool = true;
    fn fill(&self, _: u64) -> bool {
        unreachable!("roots are not filled")
    }
    fn swap(&self, _: u64) -> u64 {
        unreachable!("roots are not filled")
    }
    fn exchange(&self, _: u64, _: u64) -> Result<(), u64> {
        unreachable!("roots are not filled")
    }
}

/// Roots only, of which one entry is the user's and one the kernel's.
#[derive(Clone, Copy, Debug, Default)]
struct Roots;

// SAFETY: 1. to 3. no table is linked and no page mapped: only the kernel's entry is written, as it
// is. 4. no MMU walks them. 5. all leaves are the same.
unsafe impl Format for Roots {
    type Slot = Apart;
    const NAME: &'static str = "roots";
    const LAYOUT: Layout = LAYOUT;
    const LEVEL_NAMES: &'static [&'static str] = &["root"];
    const PAGE_SHIFT: u32 = 12;
    const USER_END: u64 = 1 << 12;
    const KERNEL_START: u64 = (KERNEL as u64) << 12;
    const USER_ROOT_ENTRIES: usize = KERNEL;
    // More are looked at than there are: the rest are empty.
    const INDEX_BITS: [u8; MAX_LEVELS] = [6, 0, 0, 0, 0];
    const PHYS_BITS: u32 = 44;

    fn link(_: Level, _: PhysAddr) -> u64 {
        0
    }
    fn linked(_: Level, _: u64) -> Option<PhysAddr> {
        None
    }
    fn leaf(_: Level, _: Pfn, _: Attr) -> u64 {
        0
    }
    fn frame(_: Level, _: u64) -> Pfn {
        Pfn(0)
    }
    fn attr(_: Level, _: u64) -> Attr {
        Attr(0)
    }
    fn is_present(_: Level, _: u64) -> bool {
        false
    }
    fn write_protected(_: Level, raw: u64) -> u64 {
        raw
    }
    fn allows(_: Level, _: u64, _: Access) -> bool {
        false
    }
    fn is_special(_: Level, _: u64) -> bool {
        false
    }
}

type Kernel = KernelMap<Roots, DirectMap>;

impl Lists<Kernel> {
    fn kernel(&self) -> &Kernel {
        self.lists.source().constructor()
    }

    /// Sets the kernel's entry; how many roots there are.
    fn set(&self, raw: u64) -> usize {
        // SAFETY: 1. no MMU walks these roots. 2. there is no range. 3. its own frames.
        unsafe { self.kernel().set(&self.frames, KERNEL, raw) }
    }

    fn entry(&self, at: PhysAddr) -> u64 {
        let slot = ENTRIES.with_borrow(|(_, slots)| slots[at.pfn().0 as usize].clone());
        slot.walk()
    }

    /// Everybody's roots, those that rest included, show `raw`; and no root is known when all are
    /// gone.
    fn all_show(&self, raw: u64) {
        let left = || ENTRIES.with_borrow(|(_, slots)| slots.iter().filter(|slot| slot.walk() != 0).count());
        let cached = self.lists.counts().cached();
        assert_eq!(left(), cached + 1, "entries in pages that are neither roots nor the reference");
        let n = cached + 1;
        let roots: Vec<PhysAddr> = (0..n).map(|i| self.take(i % CPUS)).collect();
        roots.iter().for_each(|at| assert_eq!(self.entry(*at), raw, "the root at {at} has missed a change"));
        roots.into_iter().enumerate().for_each(|(i, at)| self.put(i % CPUS, i % CPUS, at));
        self.audit();
        for cpu in 0..CPUS {
            self.lists.at(&self.pin(cpu)).drain();
        }
        self.lists.at(&self.pin(0)).reclaim(NodeId(0), u32::MAX);
        assert_eq!(self.set(raw), 0, "a root that is gone is still known");
        assert_eq!(left(), 1, "entries in pages that are no roots any more");
    }
}

fn roots() -> Arc<Lists<Kernel>> {
    Lists::new(1, |frames, window| {
        let request = Request {
            node: NodeId(0),
            order: 0,
            zero: true,
            class: ZoneClass::Low,
            end: End::Low,
            flags: AllocFlags::ATOMIC,
        };
        let base = window.open(PhysAddr(0)).base().addr();
        let slots = (0..frames.runs().map(|run| run.start.0 + run.frames).max().unwrap_or(0))
            .map(|_| Arc::new(Slot64::new()))
            .collect();
        ENTRIES.set((base, slots));
        // SAFETY: 1. all frames lie in the block that the window is for.
        let kernel = unsafe { KernelMap::new(frames, window, request) }.unwrap();
        // SAFETY: 1. no MMU walks these roots.
        unsafe { kernel.set(frames, KERNEL, 1) };
        kernel
    })
}

#[test]
fn a_top_that_is_made_while_the_kernel_map_changes_shows_it() {
    model(3, || {
        let w = roots();
        let other = w.on(|w| {
            let at = w.take(1);
            let seen = w.entry(at);
            assert!(seen == 1 || seen == 2, "entry {seen}");
            w.put(1, 1, at);
        });
        w.set(2);
        // Made after the change, in any case.
        let at = w.take(0);
        assert_eq!(w.entry(at), 2);
        other.join().unwrap();
        assert_eq!(w.entry(at), 2);
        w.put(0, 0, at);
        w.all_show(2);
    });
}

#[test]
fn a_top_in_use_or_at_rest_shows_every_change_through_the_depot() {
    model(2, || {
        let w = roots();
        let roots: [_; 3] = w.take_many(0);
        let other = w.on(|w| {
            // The page that the other CPU has put into the depot, or a new one.
            let at = w.take(1);
            let seen = w.entry(at);
            w.put(1, 1, at);
            let at = w.take(1);
            assert!(w.entry(at) >= seen, "an older map");
            w.put(1, 1, at);
        });
        w.set(2);
        w.put_all(0, roots);
        w.set(3);
        other.join().unwrap();
        w.all_show(3);
    });
}

#[test]
fn a_top_that_is_unmade_during_a_map_change_is_not_written_to() {
    model(4, || {
        let w = roots();
        let [a, b] = w.take_many(0);
        w.nearly_fill();
        w.put(0, 0, a);
        let other = w.on(|w| {
            w.set(2);
            w.set(3);
        });
        // There is no room for it.
        w.put(0, 0, b);
        w.lists.at(&w.pin(0)).reclaim(NodeId(0), 1);
        other.join().unwrap();
        w.all_show(3);
    });
}

#[test]
fn a_top_that_is_made_or_stays_while_others_go_is_known() {
    model(2, || {
        let w = roots();
        let roots: [_; 3] = w.take_many(0);
        let [a, at, b] = roots;
        w.put_all(0, [a, b]);
        let other = w.on(|w| {
            let at = w.take(1);
            w.put(1, 1, at);
        });
        w.lists.at(&w.pin(0)).drain();
        other.join().unwrap();
        w.set(2);
        assert_eq!(w.entry(at), 2);
        w.put(0, 0, at);
        w.all_show(2);
    });
}

/// A destructor that uses the lists, and the depot.
#[derive(Default)]
struct Curious {
    lists: OnceLock<Weak<Lists<Curious>>>,
    asked: Cell<usize>,
}

// SAFETY: an execution of a model runs on one thread of the host.
unsafe impl Sync for Curious {}
// SAFETY: as above.
unsafe impl Send for Curious {}

// SAFETY: 1. to 3. tables stay all zero, and no reference is kept.
unsafe impl Construct for Curious {
    unsafe fn construct(&self, _: &Frames, _: PhysAddr) {}
    unsafe fn destruct(&self, _: &Frames, _: PhysAddr) {
        let lists = self.lists.get().and_then(Weak::upgrade).expect("they are there");
        // Takes the depot's lock: for ever, if the caller holds it.
        lists.lists.unneeded(NodeId(0));
        self.asked.set(self.asked.get() + 1);
    }
}

#[test]
fn a_destructor_may_use_the_depot() {
    model(1, || {
        let w = Lists::new(1, |_, _| Curious::default());
        let construct = w.lists.source().constructor();
        construct.lists.set(Arc::downgrade(&w)).expect("set once");
        w.nearly_fill();
        let asked = || construct.asked.replace(0);
        w.lists.at(&w.pin(0)).reclaim(NodeId(0), 1);
        assert_eq!(asked(), 1);
        // The destructor's question has begun an interval.
        assert_eq!(w.lists.at(&w.pin(0)).end_interval(), 2, "nobody needed them");
        assert_eq!(asked(), 2);
        w.lists.at(&w.pin(0)).drain();
        assert_eq!(asked(), 2);
        // One more than there is room for.
        let pages: [_; 7] = w.take_many(0);
        w.put_all(0, pages);
        assert_eq!(asked(), 1);
        w.audit();
    });
}
