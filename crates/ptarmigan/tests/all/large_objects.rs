//! Large pages of objects: where an object has its pages in blocks, what writes to private ones do,
//! and operations on parts.
use crate::common::{range, va};
use crate::setup::{Memory, Parts, build, pin};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format, X86_64};
use ptarmigan::frames::MemoryRun;
use ptarmigan::machine::{Machine, On};
use ptarmigan::setup::{Objects, Place};
use ptarmigan::space::{
    Access, Advice, AreaError, AreaFlags, CollapseLimits, Done, EmptyTables, FaultError, LargePages, Object,
    SharedSpace, Space, SpaceMachine,
};

const PAGE: u64 = 4096;
const M2: u64 = 2 << 20;
const AT: u64 = 0x40_0000_0000;
const RW: AreaFlags = AreaFlags(3);
const SHARED: AreaFlags = RW.with(AreaFlags::SHARED).with(AreaFlags::LARGE);
const PRIVATE: AreaFlags = RW.with(AreaFlags::BACKED).with(AreaFlags::LARGE);
/// The first frame of the objects, behind those of the machine.
const BLOCKS: u32 = 2048;
/// Frames of the objects: three blocks and a half.
const FRAMES: u32 = 3 * 512 + 256;

/// Objects that show the same frames, from page 0 on; only object 1 has them in blocks.
struct Blocks;

// SAFETY: 1. the frames are memory that the machine is not told of.
unsafe impl Objects for Blocks {
    fn frame(&self, _: u32, page: u64) -> Option<Pfn> {
        (page < FRAMES.into()).then_some(Pfn(BLOCKS + page as u32))
    }
    fn block(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        assert_eq!(pages, 512);
        let fits = object == 1 && page + u64::from(pages) <= FRAMES.into();
        // Not aligned for some: the library looks.
        self.frame(object, page).filter(|_| fits)
    }
}

/// Calls `f` on a machine with these objects. Every frame must be back then.
fn on_machine(f: impl FnOnce(On<'_, Parts<'_, X86_64, Blocks>>)) {
    let memory = Memory::new(BLOCKS + FRAMES);
    let runs = [MemoryRun { frames: BLOCKS - memory.run().start.0, ..memory.run() }];
    let place = Place::<X86_64, _>::new();
    let m = build(memory.setup(&runs).objects(Blocks), &place).expect("a machine");
    let pin = pin(&m);
    let on = m.on(&pin).expect("its own pin");
    on.drain();
    let free = m.frames().counts().free;
    f(on);
    on.drain();
    assert_eq!((m.frames().counts().free, m.frames().reserved()), (free, 0));
}

fn space<M: SpaceMachine>(on: On<'_, M>, at: VirtRange, flags: AreaFlags, object: Object) -> Space<X86_64> {
    let mut space = Space::new(on).unwrap();
    space.edit(on).unwrap().mmap(at, flags, object).unwrap();
    space
}

/// Offsets and binary logarithms of the bytes of all leaves from `base` on.
fn leaves<M: SpaceMachine>(on: On<'_, M>, space: &Space<X86_64>, base: u64) -> Vec<(u64, u32)> {
    let (mut leaves, all) = (Vec::new(), VirtRange::up_to(X86_64::USER_END));
    space
        .tree()
        .walk_leaves(on, all, |leaf| leaves.push((leaf.at.0.wrapping_sub(base), leaf.shift)))
        .unwrap();
    leaves
}

fn large<M: SpaceMachine>(on: On<'_, M>, space: &Space<X86_64>) -> usize {
    leaves(on, space, AT).iter().filter(|(_, shift)| *shift == 21).count()
}

fn shown<M: SpaceMachine>(on: On<'_, M>, space: &Space<X86_64>, at: u64) -> (Pfn, bool) {
    let (pfn, attr) = space.tree().query(on, VirtAddr(at)).unwrap();
    (pfn, attr.has(Attr::WRITE))
}

#[test]
fn a_fault_maps_a_large_page_where_an_object_has_a_block() {
    on_machine(|on| {
        // Spans of which a page is not shown.
        for (at, offset) in [(range(AT + PAGE, AT + M2), PAGE), (range(AT, AT + M2 - PAGE), 0)] {
            let mut space = space(on, at, SHARED, Object { id: 1, offset });
            assert_eq!(space.fault(on, va(AT + 7 * PAGE), Access::Read), Ok(Done::Backed));
            assert_eq!(leaves(on, &space, AT), [(7 * PAGE, 12)]);
            space.end(on).unwrap();
        }
        // A page more on both sides, so that the first and the last span are not whole.
        let at = range(AT - PAGE, AT + 4 * M2 + PAGE);
        let mut space = space(on, at, SHARED, Object { id: 1, offset: 0 });
        let mut fault = |at, access| space.fault(on, va(at), access);
        // The object begins a page before: its blocks are not aligned as the addresses are.
        assert_eq!(fault(AT + 5 * PAGE, Access::Read), Ok(Done::Backed));
        assert_eq!(leaves(on, &space, AT), [(5 * PAGE, 12)]);
        space.end(on).unwrap();
        let at = range(AT, AT + 4 * M2);
        let mut space = self::space(on, at, SHARED, Object { id: 1, offset: 0 });
        let mut fault = |at, access| space.fault(on, va(at), access);
        assert_eq!(fault(AT + 5 * PAGE, Access::Read), Ok(Done::Backed));
        assert_eq!(fault(AT + 6 * PAGE, Access::Read), Ok(Done::Spurious));
        assert_eq!(fault(AT + M2 + PAGE, Access::Write), Ok(Done::Backed));
        assert_eq!(fault(AT + 3 * M2, Access::Read), Ok(Done::Backed));
        assert_eq!(
            fault(AT + 4 * M2 - PAGE, Access::Read),
            Err(FaultError::BeyondObject(va(AT + 4 * M2 - PAGE)))
        );
        assert_eq!(leaves(on, &space, AT), [(0, 21), (M2, 21), (3 * M2, 12)], "half a block is pages");
        assert_eq!(shown(on, &space, AT + 9 * PAGE), (Pfn(BLOCKS + 9), false));
        assert_eq!(shown(on, &space, AT + M2 + 9 * PAGE), (Pfn(BLOCKS + 512 + 9), true));
        // A write to a shared one gives it the permission as a whole.
        assert_eq!(space.fault(on, va(AT + 9 * PAGE), Access::Write), Ok(Done::Reused));
        assert_eq!(shown(on, &space, AT + 10 * PAGE), (Pfn(BLOCKS + 10), true));
        assert_eq!(space.edit(on).unwrap().reserved_tables(), 2);
        // The copy of fork is filled by faults of its own.
        let mut child = space.edit(on).unwrap().fork().unwrap();
        assert_eq!(leaves(on, &child, AT), []);
        child.fault(on, va(AT), Access::Write).unwrap();
        assert_eq!(shown(on, &child, AT + 10 * PAGE), (Pfn(BLOCKS + 10), true));
        child.end(on).unwrap();
        // A part goes, as when the object loses it.
        let part = range(AT + M2 - PAGE, AT + M2 + PAGE);
        space.edit(on).unwrap().madvise(part, Advice::DontNeed).unwrap();
        assert_eq!((large(on, &space), leaves(on, &space, AT).len()), (0, 511 + 511 + 1));
        space.end(on).unwrap();
    });
}

#[test]
fn a_write_to_a_private_one_splits_it_and_copies_a_page() {
    for copy in [false, true] {
        on_machine(|on| {
            let at = range(AT, AT + 2 * M2);
            let mut space = space(on, at, PRIVATE, Object { id: 1, offset: M2 });
            space.edit(on).unwrap().set_large_pages(LargePages { in_new_areas: false, copy });
            // A write to an untouched span is one of a page.
            assert_eq!(space.fault(on, va(AT + M2), Access::Write), Ok(Done::Copied));
            assert_eq!(space.fault(on, va(AT + 7 * PAGE), Access::Read), Ok(Done::Backed));
            assert_eq!(leaves(on, &space, AT), [(0, 21), (M2, 12)]);
            let mut child = space.edit(on).unwrap().fork().unwrap();
            assert_eq!(leaves(on, &child, AT), [(0, 21), (M2, 12)]);
            assert_eq!(space.fault(on, va(AT + 8 * PAGE), Access::Write), Ok(Done::Copied));
            let (copied, writable) = shown(on, &space, AT + 8 * PAGE);
            assert!(copied != Pfn(BLOCKS + 512 + 8) && writable);
            assert_eq!(shown(on, &space, AT + 9 * PAGE), (Pfn(BLOCKS + 512 + 9), false));
            assert_eq!(shown(on, &child, AT + 8 * PAGE), (Pfn(BLOCKS + 512 + 8), false));
            assert_eq!((large(on, &space), large(on, &child)), (0, 1));
            // Other permissions do not let a page of the object be written.
            child.edit(on).unwrap().mprotect(at, AreaFlags::READ).unwrap();
            child.edit(on).unwrap().mprotect(at, RW).unwrap();
            assert_eq!(shown(on, &child, AT + 8 * PAGE), (Pfn(BLOCKS + 512 + 8), false));
            // Its pages are not collapsed: those that are not copied show the object.
            let limits = CollapseLimits { spans: 100, missing: 512 };
            assert_eq!(space.edit(on).unwrap().collapse(va(0), limits).unwrap().large, 0);
            assert_eq!(shown(on, &space, AT + 9 * PAGE), (Pfn(BLOCKS + 512 + 9), false));
            child.end(on).unwrap();
            space.end(on).unwrap();
        });
    }
}

#[test]
fn only_areas_that_are_asked_to_have_them() {
    on_machine(|on| {
        let at = |n: u64| range(AT + n * M2, AT + (n + 1) * M2);
        let mut space = Space::<X86_64>::new(on).unwrap();
        let mut edit = space.edit(on).unwrap();
        edit.set_large_pages(LargePages { in_new_areas: true, copy: false });
        let object = Object { id: 1, offset: 0 };
        let shared = RW.with(AreaFlags::SHARED);
        edit.mmap(at(0), shared, object).unwrap();
        edit.mmap(at(1), RW.with(AreaFlags::BACKED), object).unwrap();
        edit.mmap(at(2), SHARED, Object { id: 2, offset: 0 }).unwrap();
        // Nor is one taken for physical memory, whatever it is advised.
        for advice in [Advice::WipeOnFork(true), Advice::Large(true), Advice::WipeOnFork(false)] {
            edit.madvise(at(0), advice).unwrap();
            assert_eq!(edit.area(va(AT)).unwrap().memory_at(), None, "{advice:?}");
        }
        edit.madvise(at(0), Advice::Large(false)).unwrap();
        for flags in [AreaFlags::PHYSICAL, shared.with(AreaFlags::WIPE_ON_FORK)] {
            assert_eq!(edit.mmap(at(3), flags, object), Err(AreaError::Physical(at(3))));
        }
        for n in 0..3 {
            assert_eq!(space.fault(on, va(at(n).start), Access::Read), Ok(Done::Backed));
            assert_eq!(space.areas().find(on, at(n).start).unwrap().memory_at(), None);
        }
        assert_eq!(large(on, &space), 0);
        let mut edit = space.edit(on).unwrap();
        // An empty table that stays would be in the way.
        edit.set_empty_tables(EmptyTables::Covered);
        edit.madvise(at(0), Advice::DontNeed).unwrap();
        edit.madvise(at(0), Advice::Large(true)).unwrap();
        assert_eq!(space.fault(on, va(AT + PAGE), Access::Read), Ok(Done::Backed));
        assert_eq!(large(on, &space), 1);
        space.edit(on).unwrap().madvise(at(0), Advice::Large(false)).unwrap();
        assert_eq!(large(on, &space), 0);
        space.edit(on).unwrap().madvise(at(0), Advice::DontNeed).unwrap();
        space.fault(on, va(AT + PAGE), Access::Read).unwrap();
        assert_eq!(large(on, &space), 0);
        space.end(on).unwrap();
    });
}

#[test]
fn large_pages_of_objects_move_and_are_shared_by_cpus() {
    on_machine(|on| {
        let mut space = space(on, range(AT, AT + 2 * M2), SHARED, Object { id: 1, offset: 0 });
        space.edit(on).unwrap().populate(range(AT, AT + 2 * M2), Access::Write).unwrap();
        assert_eq!(leaves(on, &space, AT), [(0, 21), (M2, 21)]);
        let (to, odd) = (AT + 8 * M2, AT + 16 * M2 + PAGE);
        let mut edit = space.edit(on).unwrap();
        // It grows while it moves, as areas of objects do.
        edit.mremap(range(AT, AT + 2 * M2), range(to, to + 3 * M2), false).unwrap();
        edit.fault(va(to + 2 * M2), Access::Read).unwrap();
        assert_eq!(leaves(on, &space, to), [(0, 21), (M2, 21), (2 * M2, 21)]);
        assert_eq!(shown(on, &space, to + 2 * M2 + PAGE).0, Pfn(BLOCKS + 1024 + 1));
        let mut edit = space.edit(on).unwrap();
        edit.mremap(range(to, to + M2), range(odd, odd + M2), false).unwrap();
        assert_eq!(shown(on, &space, odd + 3 * PAGE).0, Pfn(BLOCKS + 3));
        assert_eq!(large(on, &space), 2);
        let space = SharedSpace::new(space);
        space.lock(on).unwrap().edit().munmap(range(to + M2, to + 3 * M2)).unwrap();
        let object = Object { id: 1, offset: 0 };
        space
            .lock(on)
            .unwrap()
            .edit()
            .mmap(range(AT + (1 << 30), AT + (1 << 30) + M2), SHARED, object)
            .unwrap();
        // The table that it is in is not there yet.
        assert_eq!(space.fault(on, va(AT + (1 << 30)), Access::Read), Ok(Done::Backed));
        assert_eq!(space.fault(on, va(AT + (1 << 30) + PAGE), Access::Write), Ok(Done::Reused));
        let space = space.into_inner();
        assert_eq!(large(on, &space), 1);
        space.end(on).unwrap();
    });
}
