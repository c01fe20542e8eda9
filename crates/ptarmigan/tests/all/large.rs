//! Large pages: refusals, lack of memory, and the addresses that a flush names.
use crate::common::{Starved, Watch, any_frame, forgets_on, range, va, watched};
use crate::formats::{on_failing_machine, on_machine, small};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::{Aarch64, Aarch64K64, Attr, Format, LoongArch64, X86_64, X86_64La57};
use ptarmigan::frames::{AllocFlags, Request};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::table::{CollapseError, Free, MapError, Mapped, Tree, TreeMut};
use ptarmigan_hosted::test::TestMmu;
use ptarmigan_hosted::{Host, HostConfig, HostMachine};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const PAGE: u64 = 4096;
const M2: u64 = 2 << 20;
const G1: u64 = 1 << 30;
const AT: u64 = 0x40_0000_0000;
/// Beyond the memory of every host here.
const FAR: Pfn = Pfn(0x40_0000);
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::USER.0);

/// Changes of a tree in which no program runs.
trait Unused {
    fn large(&mut self, at: u64, level: u8, first: Pfn, attr: Attr) -> Result<(), MapError>;
    fn blocks(&mut self, range: VirtRange, first: Pfn, level: u8) -> Result<(), MapError>;
}

impl<F: Format, M: Machine> Unused for TreeMut<'_, F, M> {
    fn large(&mut self, at: u64, level: u8, first: Pfn, attr: Attr) -> Result<(), MapError> {
        // SAFETY: 1. no program runs in the tree.
        unsafe { self.map_large(va(at), Level(level), first, attr, AllocFlags::NORMAL) }
    }

    fn blocks(&mut self, range: VirtRange, first: Pfn, level: u8) -> Result<(), MapError> {
        // SAFETY: 1. no program runs in the tree.
        unsafe { self.map_range_large(range, first, RW, Level(level)) }
    }
}

/// All leaves of a tree.
pub fn leaves<F: Format, M: Machine>(on: On<'_, M>, tree: &Tree<F>) -> Vec<Mapped> {
    let mut leaves = Vec::new();
    let all = VirtRange::up_to(F::USER_END);
    tree.view().walk_leaves(on, all, |leaf| leaves.push(leaf)).unwrap();
    leaves
}

#[test]
fn what_no_large_page_can_be_is_refused_and_nothing_changes() {
    on_machine::<X86_64, _>(small(), |host, on| {
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let format = X86_64::NAME;
        let no_size = |level| Err(MapError::NoSuchSize { level: Level(level), format });
        assert_eq!(edit.large(AT, 3, Pfn(0), RW), no_size(3));
        assert_eq!(edit.large(AT, 4, Pfn(0), RW), no_size(4));
        assert_eq!(edit.large(AT, 200, Pfn(0), RW), no_size(200));
        assert_eq!(edit.blocks(range(AT, AT + G1), FAR, 3), no_size(3));
        let misaligned = |at, page| Err(MapError::Misaligned { at: VirtAddr(at), page });
        assert_eq!(edit.large(AT + PAGE, 1, FAR, RW), misaligned(AT + PAGE, M2));
        assert_eq!(edit.large(AT + M2, 2, FAR, RW), misaligned(AT + M2, G1));
        assert_eq!(edit.blocks(range(AT, AT + 7), FAR, 1), misaligned(AT + 7, PAGE));
        let bad = |first| Err(MapError::BadFrame { first, format });
        assert_eq!(edit.large(AT, 1, Pfn(FAR.0 + 1), RW), bad(Pfn(FAR.0 + 1)));
        assert_eq!(edit.large(AT, 2, Pfn(FAR.0 + 512), RW), bad(Pfn(FAR.0 + 512)));
        assert_eq!(edit.large(AT, 1, Pfn(u32::MAX - 511), RW), Ok(()), "the last frames that have numbers");
        assert!(edit.unmap(VirtAddr(AT)).is_some());
        edit.unmap_range(range(AT, AT + M2), Free::Empty, |_, _, _| {});
        let end = X86_64::USER_END;
        assert_eq!(edit.large(end, 1, FAR, RW), Err(MapError::OutOfRange { at: VirtAddr(end) }));
        assert!(edit.large(AT, 1, FAR, RW | Attr::GLOBAL).is_err());
        let collapse = edit.collapse(VirtAddr(AT), Level(3));
        assert!(matches!(collapse, Err(CollapseError::BadPlace(MapError::NoSuchSize { .. }))));
        let collapse = edit.collapse(VirtAddr(AT), Level::PTE);
        assert!(matches!(collapse, Err(CollapseError::BadPlace(MapError::NoSuchSize { .. }))));
        let collapse = edit.collapse(VirtAddr(AT), Level(1));
        assert_eq!(collapse, Err(CollapseError::Differs { at: VirtAddr(AT) }));
        drop(edit);
        assert_eq!((tree.tables_below_root(), tree.reserved(), host.frames().reserved()), (0, 0, 0));
        tree.end(on, |_, _, _| panic!("nothing is mapped")).unwrap();
    });
    on_machine::<LoongArch64, _>(small(), |_, on| {
        let mut tree = Tree::<LoongArch64>::new(on, AllocFlags::NORMAL).unwrap();
        let refused = tree.edit(on).unwrap().large(0, 1, Pfn(0), RW);
        assert!(matches!(refused, Err(MapError::NoSuchSize { .. })), "{refused:?}");
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn a_gigabyte_reserves_one_table_for_each_2_mib() {
    on_machine::<X86_64, _>(small(), |host, on| {
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        let free = host.frames().counts().free;
        tree.edit(on).unwrap().blocks(range(AT, AT + G1), FAR, 1).unwrap();
        assert_eq!((tree.reserved(), host.frames().reserved()), (512, 512));
        assert_eq!(tree.tables_below_root(), 2, "no leaf table");
        assert!(free - host.frames().counts().free <= 16, "no table is held");
        // As one page of 1 GiB: the table of its halves, too.
        let mut edit = tree.edit(on).unwrap();
        edit.unmap_leaves(range(AT, AT + G1), Free::Empty, |leaf| assert_eq!(leaf.shift, 21));
        edit.large(AT, 2, FAR, RW).unwrap();
        drop(edit);
        assert_eq!((tree.reserved(), host.frames().reserved()), (513, 513));
        // A page of it: one table of each level is drawn.
        tree.edit(on).unwrap().unmap_range(range(AT, AT + PAGE), Free::Empty, |_, frame, _| {
            assert_eq!(frame, FAR);
        });
        assert_eq!((tree.reserved(), host.frames().reserved()), (511, 511));
        assert_eq!(leaves(on, &tree).len(), 511 + 511);
        tree.end_leaves(on, |_| {}).unwrap();
        assert_eq!(host.frames().reserved(), 0);
    });
}

/// Maps two large pages, has no memory then, and takes parts of them away.
fn without_memory<F: Format>(level: u8) {
    on_machine::<F, _>(HostConfig { bytes: 512 << 20, ..small() }, |host, on| {
        let size = 1u64 << F::shift(Level(level));
        let page = 1u64 << F::PAGE_SHIFT;
        let at = size * 4;
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        tree.edit(on).unwrap().blocks(range(at, at + 2 * size), Pfn((size >> 12) as u32 * 8), level).unwrap();
        on.policy().drain();
        let reserved = tree.reserved();
        let starved = Starved::new(host, 0);
        let none = Request { flags: AllocFlags::URGENT, ..any_frame(0) };
        let mut urgent = Vec::new();
        while let Ok(frame) = host.frames().take(none) {
            urgent.push(frame.dirty());
        }
        let in_frames = if F::PAGE_ORDER == 0 { reserved } else { 0 };
        assert_eq!(host.frames().counts().free, in_frames, "all others are gone");
        assert!(tree.edit(on).unwrap().large(at + 8 * size, level, Pfn(0), RW).is_err(), "no memory");
        let mut gone = 0;
        let mut edit = tree.edit(on).unwrap();
        edit.unmap_range(range(at + page, at + 2 * size - page), Free::Never, |_, _, _| gone += 1);
        assert_eq!(gone, 2 * size / page - 2);
        drop(edit);
        let left: Vec<_> = leaves(on, &tree).iter().map(|leaf| leaf.at.0).collect();
        assert_eq!(left, [at, at + 2 * size - page]);
        for frame in urgent {
            host.frames().give(frame);
        }
        drop(starved);
        tree.end(on, |_, _, _| {}).unwrap();
        assert_eq!(host.frames().reserved(), 0);
    });
}

#[test]
fn a_part_of_a_large_page_is_unmapped_without_any_memory() {
    without_memory::<X86_64>(1);
    without_memory::<X86_64La57>(2);
    without_memory::<Aarch64>(1);
    without_memory::<Aarch64K64>(1);
}

#[test]
fn whichever_allocation_fails_nothing_is_lost_and_unmapping_never_fails() {
    on_failing_machine(|host, on, fail| {
        let place = range(AT + M2 - 3 * PAGE, AT + G1 + 3 * M2 + 5 * PAGE);
        let pages = place.len() / PAGE;
        let first = Pfn(FAR.0 + 509);
        let mut k = 0;
        loop {
            let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
            fail.set(k);
            let mapped = tree.edit(on).unwrap().blocks(place, first, 2);
            if mapped.is_err() {
                assert!(leaves(on, &tree).is_empty(), "allocation {k}: all of it, or nothing");
                assert_eq!((tree.reserved(), host.frames().reserved()), (0, 0));
            }
            // Parts go while every allocation fails.
            fail.set(0);
            let mut gone = 0;
            let mut edit = tree.edit(on).unwrap();
            for (from, to) in [(1, 2), (3, 700), (1024, 1025), (2000, 5000), (pages - 3, pages)] {
                let part = range(place.start + from * PAGE, place.start + to * PAGE);
                edit.unmap_range(part, Free::Empty, |_, _, _| gone += 1);
            }
            drop(edit);
            assert_eq!(gone, if mapped.is_ok() { 1 + 697 + 1 + 3000 + 3 } else { 0 }, "allocation {k}");
            fail.set(usize::MAX);
            let mut left = 0;
            tree.end(on, |_, _, _| left += 1).unwrap();
            assert_eq!(left + gone, if mapped.is_ok() { pages } else { 0 });
            assert_eq!(host.frames().reserved(), 0, "allocation {k}");
            k += 1;
            if mapped.is_ok() {
                break;
            }
        }
        assert!(k > 4, "{k} allocations were refused");
    });
}

#[test]
fn a_large_page_is_one_invalidation_and_its_pages_are_many() {
    let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..small() }).unwrap();
    let watch = Watch::new(&host);
    let slots = host.slots();
    let m = watched(&watch, host.quicklists().unwrap());
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    tree.edit(on).unwrap().blocks(range(AT, AT + 8 * M2), FAR, 1).unwrap();
    tree.activate(on).unwrap();
    let named = |tree: &mut Tree<X86_64>, part: VirtRange| {
        let before = on.tlb().counts().pages;
        tree.edit(on).unwrap().unmap_range(part, Free::Never, |_, _, _| {});
        on.tlb().counts().pages - before
    };
    assert_eq!(named(&mut tree, range(AT, AT + M2)), 1);
    assert_eq!(named(&mut tree, range(AT + 2 * M2, AT + 4 * M2)), 2, "two of them");
    // A part of one: the pages of the large one, which are too many to be named.
    let full = on.tlb().counts().full;
    assert_eq!(named(&mut tree, range(AT + 5 * M2, AT + 5 * M2 + 8 * PAGE)), 0);
    assert_eq!(on.tlb().counts().full, full + 1);
    // A page and a large one: all in pages.
    let mut edit = tree.edit(on).unwrap();
    edit.unmap_range(range(AT + 6 * M2, AT + 7 * M2), Free::Never, |_, _, _| {});
    assert!(edit.unmap(VirtAddr(AT + 5 * M2 + 9 * PAGE)).is_some());
    drop(edit);
    assert_eq!(on.tlb().counts().full, full + 2);
    tree.deactivate(on).unwrap();
    tree.end(on, |_, _, _| {}).unwrap();
    m.drain(&slots);
    drop(m);
    assert!(watch.finish().is_empty());
}

/// Maps a large page in the place of an empty table that CPU 1 may know. Returns whether CPU 1 has
/// flushed when the call returns, before the edit ends.
fn flushes_an_empty_table(is_loaded: bool) -> bool {
    let host = Host::<X86_64>::new(HostConfig { cpus: 2, ..small() }).unwrap();
    let is_flushed = AtomicBool::new(false);
    let tlbs = TestMmu::new();
    let slots = host.slots();
    let (pin, other) = (slots[0].pin(), slots[1].pin());
    let m = HostMachine::new(&host, host.quicklists().unwrap(), &tlbs).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    tree.edit(on).unwrap().blocks(range(AT, AT + PAGE), FAR, 0).unwrap();
    if is_loaded {
        tree.activate(on).unwrap();
        tree.activate(m.on(&other).unwrap()).unwrap();
    }
    let mut edit = tree.edit(on).unwrap();
    assert!(edit.unmap(VirtAddr(AT)).is_some());
    edit.flush();
    let mut edit = tree.edit(on).unwrap();
    tlbs.before_next(forgets_on(1), |_| is_flushed.store(true, SeqCst));
    edit.large(AT, 1, FAR, RW).unwrap();
    let result = is_flushed.load(SeqCst);
    drop(edit);
    assert_eq!(leaves(on, &tree).iter().map(|leaf| leaf.shift).collect::<Vec<_>>(), [21]);
    if is_loaded {
        tree.deactivate(m.on(&other).unwrap()).unwrap();
        tree.deactivate(on).unwrap();
    }
    tree.end(on, |_, _, _| {}).unwrap();
    m.drain(&slots);
    drop(m);
    host.audit().unwrap();
    result
}

#[test]
fn all_cpus_forget_an_empty_table_before_a_large_page_replaces_it() {
    assert!(flushes_an_empty_table(true), "CPU 1 walks the table beside the large page");
    assert!(!flushes_an_empty_table(false), "no CPU has loaded the tree");
}

#[test]
fn a_collapse_names_the_first_leaf_that_differs() {
    on_machine::<X86_64, _>(small(), |_, on| {
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        let page = |i: u64| range(AT + i * PAGE, AT + (i + 1) * PAGE);
        let frame = |i: u64| Pfn(FAR.0 + i as u32);
        for odd in [1, 300, 511] {
            for wrong in [Some((frame(odd + 1), RW)), Some((frame(odd), RW.without(Attr::WRITE))), None] {
                let mut edit = tree.edit(on).unwrap();
                edit.blocks(range(AT, AT + M2), FAR, 0).unwrap();
                assert!(edit.unmap(VirtAddr(page(odd).start)).is_some());
                if let Some((frame, attr)) = wrong {
                    // SAFETY: 1. no program runs in the tree.
                    unsafe { edit.map_range(page(odd), frame, attr) }.unwrap();
                }
                let differs = Err(CollapseError::Differs { at: VirtAddr(page(odd).start) });
                assert_eq!(edit.collapse(VirtAddr(AT), Level(1)), differs, "{wrong:?}");
                edit.unmap_range(range(AT, AT + M2), Free::Empty, |_, _, _| {});
            }
        }
        let mut edit = tree.edit(on).unwrap();
        edit.blocks(range(AT, AT + M2), FAR, 0).unwrap();
        assert_eq!(edit.collapse(VirtAddr(AT), Level(1)), Ok(()));
        drop(edit);
        assert_eq!(leaves(on, &tree).len(), 1);
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn a_cursor_that_is_done_touches_no_page_behind_its_range() {
    on_machine::<X86_64, _>(small(), |_, on| {
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        tree.edit(on).unwrap().blocks(range(AT, AT + 4 * PAGE), FAR, 0).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let mut cursor = edit.cursor(range(AT, AT + 2 * PAGE));
        assert!(cursor.unmap().is_some() && cursor.unmap().is_some() && cursor.is_done());
        assert_eq!((cursor.query(), cursor.protect(RW), cursor.unmap()), (None, Ok(None), None));
        drop(edit);
        let left: Vec<_> = leaves(on, &tree).iter().map(|leaf| leaf.at.0).collect();
        assert_eq!(left, [AT + 2 * PAGE, AT + 3 * PAGE]);
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn a_callback_that_panics_leaves_large_pages_to_the_end_of_the_tree() {
    on_machine::<X86_64, _>(small(), |host, on| {
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        tree.edit(on).unwrap().blocks(range(AT, AT + 4 * M2), FAR, 1).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            tree.edit(on).unwrap().unmap_leaves(range(AT, AT + 4 * M2), Free::Empty, |leaf| {
                assert_ne!(leaf.at, VirtAddr(AT + M2), "on purpose");
            });
        }));
        assert!(panicked.is_err());
        let left: Vec<_> = leaves(on, &tree).iter().map(|leaf| leaf.at.0).collect();
        assert_eq!(left, [AT + 2 * M2, AT + 3 * M2]);
        let ended = catch_unwind(AssertUnwindSafe(|| tree.end(on, |_, _, _| panic!("on purpose")).unwrap()));
        assert!(ended.is_err());
        assert_eq!(host.frames().reserved(), 0);
    });
}

#[test]
fn large_pages_that_were_cleared_before_a_callback_panicked_are_flushed() {
    let host = Host::<X86_64>::new(small()).unwrap();
    let watch = Watch::new(&host);
    let slots = host.slots();
    let m = watched(&watch, host.quicklists().unwrap());
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    tree.edit(on).unwrap().blocks(range(AT, AT + 4 * M2), FAR, 1).unwrap();
    tree.activate(on).unwrap();
    let before = on.tlb().counts().pages;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        tree.edit(on).unwrap().unmap_leaves(range(AT, AT + 4 * M2), Free::Never, |leaf| {
            assert_ne!(leaf.at, VirtAddr(AT + 2 * M2), "on purpose");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(leaves(on, &tree).len(), 1);
    assert_eq!(on.tlb().counts().pages - before, 3);
    tree.deactivate(on).unwrap();
    tree.end(on, |_, _, _| {}).unwrap();
    m.drain(&slots);
    drop(m);
    assert!(watch.finish().is_empty());
}
