//! Large pages of objects where memory runs out, and on machines of every format.
use crate::common::{FailAt, Starved, any_frame, each_allocation_fails, ends_without_memory, range, va};
use crate::formats::small;
use crate::objects::{IN_BLOCKS, IN_PAGES, Store, WithObjects};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::*;
use ptarmigan::frames::{AllocFlags, Request};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::setup::Objects;
use ptarmigan::space::{
    Access, Advice, AreaFlags, Done, EmptyTables, FaultError, Object, Space, SpaceMachine,
};
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};

const PAGE: u64 = 4096;
const M2: u64 = 2 << 20;
const AT: u64 = 0x40_0000_0000;
const RW: AreaFlags = AreaFlags(3);
const SHARED: AreaFlags = RW.with(AreaFlags::SHARED).with(AreaFlags::LARGE);
const PRIVATE: AreaFlags = RW.with(AreaFlags::BACKED).with(AreaFlags::LARGE);

/// Binary logarithms of the bytes of all leaves.
fn shifts<F: Format, M: SpaceMachine>(on: On<'_, M>, space: &Space<F>) -> Vec<u32> {
    let (mut shifts, all) = (Vec::new(), VirtRange::up_to(F::USER_END));
    space.tree().walk_leaves(on, all, |leaf| shifts.push(leaf.shift)).unwrap();
    shifts
}

/// Calls `f` on a machine of x86-64 with objects of two blocks and a half, and with the layer that
/// refuses its tables. Every frame must be back then, and none reserved.
macro_rules! on_machine {
    (|$host:ident, $on:ident, $fail:ident| $body:block) => {
        let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..small() }).unwrap();
        let (slots, store) = (host.slots(), Store::new(&host, 3));
        let pin = slots[0].pin();
        let policy = Layered::new(FailAt::new(), host.quicklists().unwrap());
        let policy = policy.map_err(|refused| refused.error).unwrap();
        let machine = WithObjects { inner: HostMachine::new(&host, policy, NoTlb).unwrap(), objects: &store };
        let ($host, $on, $fail) = (&host, machine.on(&pin).unwrap(), machine.policy().layer());
        $body
        assert_eq!(host.frames().reserved(), 0);
        machine.inner.drain(&slots);
        drop(machine);
        store.end(&host);
        host.audit().unwrap();
    };
}

/// Calls `f` while no frame is free but those that are reserved.
fn starving(host: &Host<X86_64>, f: impl FnOnce()) {
    let starved = Starved::new(host, 0);
    let mut urgent = Vec::new();
    while let Ok(frame) = host.frames().take(Request { flags: AllocFlags::URGENT, ..any_frame(0) }) {
        urgent.push(frame.dirty());
    }
    f();
    urgent.into_iter().for_each(|frame| host.frames().give(frame));
    drop(starved);
}

/// A space that shows object `id`, in two blocks and a half from `AT` on.
fn space<M: SpaceMachine>(on: On<'_, M>, flags: AreaFlags, id: u32) -> Space<X86_64> {
    let mut space = Space::new(on).unwrap();
    space.edit(on).unwrap().mmap(range(AT, AT + 3 * M2), flags, id).unwrap();
    space
}

#[test]
fn a_part_of_a_large_page_of_an_object_goes_without_any_memory() {
    for flags in [SHARED, PRIVATE] {
        on_machine!(|host, on, _fail| {
            let mut space = space(on, flags, IN_BLOCKS);
            space.edit(on).unwrap().populate(range(AT, AT + 2 * M2), Access::Read).unwrap();
            // A copy that has the pages at once.
            space.edit(on).unwrap().copy_on_fork(va(AT)).unwrap();
            let mut child = space.edit(on).unwrap().fork().unwrap();
            assert_eq!((shifts(on, &space), shifts(on, &child)), (vec![21; 2], vec![21; 2]));
            on.drain();
            starving(host, || {
                assert_eq!(host.frames().counts().free, 4, "all but the tables that are reserved");
                // A private copy has no frame to go to; the page stays what it is.
                let written = space.fault(on, va(AT + PAGE), Access::Write);
                if flags == PRIVATE {
                    assert!(matches!(written, Err(FaultError::NoFrame(_))), "{written:?}");
                    assert_eq!(shifts(on, &space).len(), 1 + 512);
                } else {
                    assert_eq!(written, Ok(Done::Reused));
                }
                assert_eq!(space.fault(on, va(AT + PAGE), Access::Read), Ok(Done::Spurious));
                for space in [&mut space, &mut child] {
                    let mut edit = space.edit(on).unwrap();
                    edit.munmap(range(AT + PAGE, AT + M2 - PAGE)).unwrap();
                    edit.madvise(range(AT + M2 + PAGE, AT + M2 + 2 * PAGE), Advice::DontNeed).unwrap();
                    edit.mprotect(range(AT, AT + PAGE), AreaFlags::READ).unwrap();
                    assert_eq!(shifts(on, space), [12; 2 + 511]);
                }
            });
            child.end(on).unwrap();
            space.end(on).unwrap();
        });
    }
}

#[test]
fn all_of_an_object_is_split_without_any_memory() {
    on_machine!(|host, on, _fail| {
        let mut space = space(on, SHARED, IN_BLOCKS);
        space.edit(on).unwrap().populate(range(AT, AT + 2 * M2), Access::Write).unwrap();
        on.drain();
        starving(host, || {
            let mut edit = space.edit(on).unwrap();
            // A log tells a block once, and then its pages.
            let mut told = Vec::new();
            edit.take_dirty(range(AT, AT + M2), Level::PTE, |leaf| told.push(leaf.shift)).unwrap();
            assert_eq!(told, [21]);
            edit.madvise(range(AT, AT + 3 * M2), Advice::Large(false)).unwrap();
            assert_eq!(edit.reserved_tables(), 0);
            assert_eq!(shifts(on, &space), [12; 1024]);
        });
        // The same by the permission to write, of a block.
        let mut edit = space.edit(on).unwrap();
        edit.set_empty_tables(EmptyTables::Covered);
        edit.madvise(range(AT, AT + 3 * M2), Advice::DontNeed).unwrap();
        edit.madvise(range(AT, AT + 3 * M2), Advice::Large(true)).unwrap();
        edit.populate(range(AT, AT + M2), Access::Write).unwrap();
        let mut told = Vec::new();
        edit.write_protect(range(AT, AT + M2), Level(1), |leaf| told.push(leaf.shift)).unwrap();
        edit.take_dirty(range(AT, AT + M2), Level(1), |leaf| told.push(leaf.shift)).unwrap();
        assert_eq!(told, [21; 2]);
        assert_eq!(edit.fault(va(AT + 7 * PAGE), Access::Write), Ok(Done::Reused));
        edit.take_dirty(range(AT, AT + M2), Level(1), |leaf| told.push(leaf.shift)).unwrap();
        assert_eq!(told, [21; 3], "all of it is told of");
        space.end(on).unwrap();
    });
}

#[test]
fn where_no_table_can_be_reserved_a_fault_maps_a_page() {
    on_machine!(|host, on, _fail| {
        let mut space = space(on, SHARED, IN_BLOCKS);
        // Leaf tables are at hand before memory ends.
        let other = range(AT + 16 * M2, AT + 17 * M2);
        space.edit(on).unwrap().mmap(other, RW, 0).unwrap();
        space.edit(on).unwrap().populate(other, Access::Read).unwrap();
        space.edit(on).unwrap().make_tables(range(AT, AT + M2), Level(1)).unwrap();
        space.edit(on).unwrap().munmap(other).unwrap();
        let starved = Starved::new(host, 0);
        let fault = space.fault(on, va(AT + 5 * PAGE), Access::Read);
        assert_eq!((fault, host.frames().reserved()), (Ok(Done::Backed), 0));
        assert!(shifts(on, &space).iter().all(|shift| *shift == 12));
        drop(starved);
        assert_eq!(space.fault(on, va(AT + M2), Access::Read), Ok(Done::Backed));
        assert_eq!(shifts(on, &space).last(), Some(&21));
        space.end(on).unwrap();
    });
}

#[test]
fn whichever_allocation_fails_spaces_of_an_object_lose_nothing() {
    for flags in [SHARED, PRIVATE] {
        on_machine!(|_host, on, fail| {
            let far = AT + (1 << 39);
            each_allocation_fails(4, |k| {
                let mut space = space(on, flags, IN_BLOCKS);
                let mut failed = false;
                fail.set(k);
                for span in 0..3 {
                    failed |= space.fault(on, va(AT + span * M2 + PAGE), Access::Read).is_err();
                }
                failed |= space.fault(on, va(AT + 2 * PAGE), Access::Write).is_err();
                let before = shifts(on, &space);
                space.edit(on).unwrap().copy_on_fork(va(AT)).unwrap();
                match space.edit(on).unwrap().fork() {
                    Ok(child) => {
                        assert_eq!(shifts(on, &child), before, "allocation {k}: a copy is complete");
                        child.end(on).unwrap();
                    }
                    Err(_) => failed = true,
                }
                let (from, to) = (range(AT + PAGE, AT + 3 * M2), range(far + PAGE, far + 3 * M2));
                failed |= space.edit(on).unwrap().mremap(from, to, false).is_err();
                let parts = [AT, far].map(|base| {
                    [range(base + 3 * PAGE, base + 5 * PAGE), range(base + M2 + PAGE, base + 3 * M2 - PAGE)]
                });
                ends_without_memory(on, fail, space, parts.as_flattened(), k);
                failed
            });
        });
    }
}

#[test]
fn a_truncated_object_is_unmapped_from_each_space_and_freed() {
    on_machine!(|_host, on, _fail| {
        let mut spaces = [SHARED, PRIVATE, SHARED].map(|flags| space(on, flags, IN_BLOCKS));
        let store = on.machine().objects;
        let cut = M2 / PAGE + 100;
        for space in &mut spaces {
            space.edit(on).unwrap().populate(range(AT, AT + 3 * M2), Access::Read).unwrap();
            assert_eq!(shifts(on, space).len(), 2 + 256, "half a block is pages");
        }
        store.resize(cut);
        for space in &mut spaces {
            space.edit(on).unwrap().set_empty_tables(EmptyTables::Covered);
            space.edit(on).unwrap().madvise(range(AT + cut * PAGE, AT + 3 * M2), Advice::DontNeed).unwrap();
            assert_eq!(shifts(on, space).len(), 1 + 100);
            let beyond = va(AT + cut * PAGE);
            assert_eq!(space.fault(on, beyond, Access::Read), Err(FaultError::BeyondObject(beyond)));
            // A span of which a part is gone is mapped page by page, with those around it.
            space.edit(on).unwrap().madvise(range(AT, AT + 2 * M2), Advice::DontNeed).unwrap();
            assert_eq!(space.fault(on, va(AT + M2 + PAGE), Access::Read), Ok(Done::Backed));
            let around = shifts(on, space);
            assert!(around.len() > 2 && around.iter().all(|shift| *shift == 12), "{around:?}");
            assert_eq!(space.fault(on, va(AT), Access::Read), Ok(Done::Backed));
        }
        store.resize(store.most());
        for mut space in spaces {
            space.edit(on).unwrap().madvise(range(AT, AT + 3 * M2), Advice::DontNeed).unwrap();
            space.edit(on).unwrap().populate(range(AT, AT + 2 * M2), Access::Read).unwrap();
            assert_eq!(shifts(on, &space), [21; 2]);
            space.end(on).unwrap();
        }
    });
}

#[test]
fn an_object_that_has_no_blocks_and_one_that_has_show_the_same() {
    on_machine!(|_host, on, _fail| {
        let spaces = [IN_PAGES, IN_BLOCKS].map(|id| {
            let mut space = space(on, SHARED, id);
            space.edit(on).unwrap().populate(range(AT, AT + 2 * M2), Access::Write).unwrap();
            space
        });
        let shown = |space: &Space<X86_64>| {
            let at = |page: u64| space.tree().query(on, va(AT + page * PAGE)).unwrap();
            (0..1024).map(at).collect::<Vec<_>>()
        };
        assert_eq!(shown(&spaces[0]), shown(&spaces[1]));
        assert_eq!(spaces.each_ref().map(|space| shifts(on, space).len()), [1024, 2]);
        spaces.into_iter().for_each(|space| space.end(on).unwrap());
    });
}

/// An object that is memory beyond the host's, from 2 GiB on.
struct Beyond;

// SAFETY: 1. no program runs, and no code reads the frames.
unsafe impl Objects for Beyond {
    fn frame(&self, _: u32, page: u64) -> Option<Pfn> {
        Some(Pfn(1 << 19 | page as u32))
    }
    fn block(&self, _: u32, page: u64, _: u32) -> Option<Pfn> {
        self.frame(0, page)
    }
}

/// Maps a large page of an object, where spaces of the format have them.
fn object_of<F: Format>() {
    let host = Host::<F>::new(small()).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let inner = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let machine = WithObjects { inner, objects: &Beyond };
    let on = machine.on(&pin).unwrap();
    let mut space = Space::<F>::new(on).unwrap();
    let mut edit = space.edit(on).unwrap();
    let size = edit.large_page_size().unwrap_or(1 << F::shift(Level(1)));
    let at = VirtRange::new(4 * size, 5 * size).unwrap();
    edit.mmap(at, SHARED, Object { id: 1, offset: 0 }).unwrap();
    // Faults reserve no tables of several frames.
    let large = edit.large_page_size().is_some() && F::LAYOUT.table_shift[0] == 12;
    let last = VirtAddr(at.end - (1 << F::PAGE_SHIFT));
    if F::PAGE_ORDER == 0 {
        assert_eq!(space.fault(on, last, Access::Read), Ok(Done::Backed));
        let leaf = space.tree().query_leaf(on, last).unwrap();
        assert_eq!(leaf.shift, if large { size.trailing_zeros() } else { F::PAGE_SHIFT }, "{}", F::NAME);
        assert_eq!(space.fault(on, last, Access::Write), Ok(Done::Reused), "{}", F::NAME);
        let (pfn, attr) = space.tree().query(on, last).unwrap();
        let own = Pfn((1 << 19) + ((size >> F::PAGE_SHIFT) - 1) as u32);
        assert!(pfn == own && attr.has(Attr::SPECIAL | Attr::WRITE), "{}: {attr:?}", F::NAME);
        let gone = VirtRange::new(last.0, at.end).unwrap();
        space.edit(on).unwrap().madvise(gone, Advice::DontNeed).unwrap();
        assert_eq!(space.tree().query(on, last), None);
        assert_eq!(shifts(on, &space).len() as u64, if large { (size >> F::PAGE_SHIFT) - 1 } else { 0 });
    }
    space.end(on).unwrap();
    assert_eq!(host.frames().reserved(), 0);
    machine.inner.drain(&slots);
}

#[test]
fn objects_have_large_pages_in_every_format_with_large_spaces() {
    object_of::<X86_64>();
    object_of::<X86_64La57>();
    object_of::<Keyed<X86_64>>();
    object_of::<X86Pae>();
    object_of::<I386>();
    object_of::<Sv32>();
    object_of::<Sv39>();
    object_of::<Sv39Napot>();
    object_of::<Sv48>();
    object_of::<Sv57>();
    object_of::<Aarch64>();
    object_of::<Aarch64K16>();
    object_of::<Aarch64K64>();
    object_of::<Aarch64Stage2>();
    object_of::<Ept>();
    object_of::<Npt>();
    object_of::<Sv39x4>();
    object_of::<LoongArch64>();
}
