//! Large pages of one space on several CPUs: faults that want one place, and queries while a large
//! page is taken apart or made.
use crate::machine::{SHAPE, Shape, World, model, pin};
use crate::small::{ENTRIES, Small};
use loom::thread::JoinHandle;
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::format::{Access, Attr, Format};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::{Layout, Level, MAX_LEVELS};
use ptarmigan::space::{AreaFlags, CollapseLimits, Done, SharedSpace, Space};
use std::sync::Arc;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;
/// Pages of a large one.
const PAGES: u64 = ENTRIES as u64;
const LARGE: VirtRange = VirtRange::up_to(PAGES * PAGE);

/// `Small` with large pages in its root. Links have a bit of their own.
#[derive(Clone, Copy, Debug, Default)]
struct Large;

const LINK: u64 = 1 << 30;
type Pages = Small<2>;

// SAFETY: as for `Small`, and a link differs from a leaf by its bit.
unsafe impl Format for Large {
    type Slot = <Pages as Format>::Slot;
    const NAME: &'static str = "small, with large pages";
    const LAYOUT: Layout = Pages::LAYOUT;
    const LEVEL_NAMES: &'static [&'static str] = Pages::LEVEL_NAMES;
    const PAGE_SHIFT: u32 = Pages::PAGE_SHIFT;
    const USER_END: u64 = Pages::USER_END;
    const KERNEL_START: u64 = Pages::KERNEL_START;
    const USER_ROOT_ENTRIES: usize = Pages::USER_ROOT_ENTRIES;
    const INDEX_BITS: [u8; MAX_LEVELS] = Pages::INDEX_BITS;
    const PHYS_BITS: u32 = Pages::PHYS_BITS;
    const LEAF_LEVELS: u8 = 3;

    fn link(level: Level, at: PhysAddr) -> u64 {
        Pages::link(level, at) | LINK
    }
    fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
        if raw & LINK == 0 { None } else { Pages::linked(level, raw & !LINK) }
    }
    fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
        Pages::leaf(level, pfn, attr)
    }
    fn frame(level: Level, raw: u64) -> Pfn {
        Pages::frame(level, raw)
    }
    fn attr(level: Level, raw: u64) -> Attr {
        Pages::attr(level, raw)
    }
    fn is_present(level: Level, raw: u64) -> bool {
        Pages::is_present(level, raw)
    }
    fn write_protected(level: Level, raw: u64) -> u64 {
        Pages::write_protected(level, raw)
    }
    fn allows(level: Level, raw: u64, access: Access) -> bool {
        Pages::allows(level, raw, access)
    }
    fn is_special(level: Level, raw: u64) -> bool {
        Pages::is_special(level, raw)
    }
}

/// Runs a model with a space that has one area, of the size of a large page, in a machine with so
/// many free blocks. Every frame is back at its end, and none is reserved.
fn in_world(
    preemptions: usize,
    (blocks, entries): (usize, usize),
    f: impl Fn(&Arc<World<2>>, On<'_, World<2>>, &Arc<SharedSpace<Large>>) + Send + Sync + Copy + 'static,
) {
    // The first block begins with frame 64; data frames of lists are taken from the end.
    let spare = blocks * ENTRIES + ENTRIES;
    model(preemptions, move || {
        let w = World::new(Shape { spare, entries, ..SHAPE });
        let pin_a = pin(0);
        let a = w.seen(&pin_a);
        let mut space = Space::<Large>::new(a).unwrap();
        space.edit(a).unwrap().mmap(LARGE, RW.with(AreaFlags::LARGE), 0).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        f(&w, a, &space);
        let space = Arc::into_inner(space).expect("all threads have ended").into_inner();
        let large = u32::from(space.tree().query_leaf(a, VirtAddr(PAGE)).is_some_and(|leaf| leaf.shift > 12));
        assert_eq!(w.frames().reserved(), large, "the reserve is not what large pages need");
        space.end(a).unwrap();
        assert_eq!(w.frames().reserved(), 0);
        w.audit();
    });
}

/// Another CPU faults at a page.
fn faults(w: &Arc<World<2>>, space: &Arc<SharedSpace<Large>>, page: u64, access: Access) -> JoinHandle<()> {
    let its = space.clone();
    w.beside(1, move |_, b| {
        its.fault(b, VirtAddr(page * PAGE), access).unwrap();
    })
}

/// The frame of a page.
fn frame(on: On<'_, World<2>>, space: &SharedSpace<Large>, page: u64) -> Option<Pfn> {
    space.query(on, VirtAddr(page * PAGE)).unwrap().map(|(pfn, _)| pfn)
}

/// Two CPUs fault in a span that nobody has touched, and both pages are there. Returns whether
/// they lie in one block.
fn both_are_there(on: On<'_, World<2>>, space: &SharedSpace<Large>) -> bool {
    let (first, second) = (frame(on, space, 0).expect("mapped"), frame(on, space, 1).expect("mapped"));
    assert_ne!(first, second);
    let whole = (2..PAGES).all(|page| frame(on, space, page) == Some(Pfn(first.0 + page as u32)));
    whole && second.0 == first.0 + 1
}

#[test]
fn racing_large_page_faults_put_one_page_and_free_the_other() {
    in_world(1, (2, 2), |w, a, space| {
        let other = faults(w, space, 1, Access::Write);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        other.join().unwrap();
        assert!(both_are_there(a, space));
    });
}

#[test]
fn racing_large_and_small_faults_free_the_losers_page() {
    in_world(1, (1, 2), |w, a, space| {
        let other = faults(w, space, 1, Access::Read);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        other.join().unwrap();
        both_are_there(a, space);
    });
}

#[test]
fn of_two_faults_with_one_block_one_may_bring_a_page() {
    in_world(1, (1, 2), |w, a, space| {
        let other = faults(w, space, 1, Access::Write);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        other.join().unwrap();
        both_are_there(a, space);
    });
}

#[test]
fn a_page_beside_those_unmapped_is_the_same_all_the_time() {
    in_world(2, (1, ENTRIES), |w, a, space| {
        assert_eq!(space.fault(a, VirtAddr(0), Access::Write), Ok(Done::Large));
        let whole = frame(a, space, 1).expect("mapped");
        let its = space.clone();
        let other = w.beside(1, move |_, b| {
            assert_eq!(frame(b, &its, 1), Some(whole));
            let done = its.fault(b, VirtAddr(PAGE), Access::Write);
            assert_eq!(done, Ok(Done::Spurious));
        });
        space.lock(a).unwrap().edit().munmap(VirtRange::new(0, PAGE).unwrap()).unwrap();
        other.join().unwrap();
        assert_eq!((frame(a, space, 0), frame(a, space, 1)), (None, Some(whole)));
    });
}

#[test]
fn a_page_of_a_span_that_becomes_large_is_the_old_or_new_one() {
    in_world(1, (1, ENTRIES), |w, a, space| {
        // No block for it yet.
        let block = w.block();
        space.fault(a, VirtAddr(PAGE), Access::Write).unwrap();
        w.give_block(block);
        let old = frame(a, space, 1).expect("mapped");
        let its = space.clone();
        let other = w.beside(1, move |_, b| {
            let found = frame(b, &its, 1);
            let is_new = |pfn: Pfn| pfn.0 % PAGES as u32 == 1;
            assert!(found.is_none_or(|pfn| pfn == old || is_new(pfn)), "{found:?} instead of {old}");
            assert_eq!(its.fault(b, VirtAddr(PAGE), Access::Write), Ok(Done::Spurious));
        });
        let limits = CollapseLimits { spans: 1, missing: PAGES as u32 };
        let collapsed = space.lock(a).unwrap().edit().collapse(VirtAddr(0), limits).unwrap();
        other.join().unwrap();
        assert_eq!(collapsed.large, 1);
        assert!(both_are_there(a, space));
    });
}
