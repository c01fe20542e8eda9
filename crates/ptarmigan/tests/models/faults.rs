//! Faults of one space on several CPUs, with each other and with calls that have the space for
//! themselves.
use crate::machine::{SHAPE, Shape, World, model, pin};
use crate::mmu::Owner;
use crate::small::Small;
use loom::sync::atomic::{AtomicBool, Ordering};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::{AllocFlags, DataFrames, Use};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space};
use std::sync::Arc;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

/// A shared space with one area of `pages` pages from 0 on.
fn shared<const L: u8>(on: On<'_, World<L>>, pages: u64) -> Space<Small<L>> {
    let mut space = Space::new(on).unwrap();
    space.edit(on).unwrap().mmap(VirtRange::new(0, pages * PAGE).unwrap(), RW, 0).unwrap();
    space
}

/// Runs a model in a world, as CPU 0. Every frame is back at its end.
fn in_world(
    preemptions: usize,
    shape: Shape,
    f: impl Fn(&Arc<World<2>>, On<'_, World<2>>) + Send + Sync + Copy + 'static,
) {
    model(preemptions, move || {
        let w = World::new(shape);
        let pin_a = pin(0);
        f(&w, w.seen(&pin_a));
        w.audit();
    });
}

fn last<T>(it: Arc<T>) -> T {
    Arc::into_inner(it).expect("all threads have ended")
}

fn both_find_no_table<const L: u8>(vas: [u64; 2]) {
    let w = World::<L>::new(Shape { tables: usize::from(L), data: 1, spare: 2, ..SHAPE });
    let pin_a = pin(0);
    let a = w.seen(&pin_a);
    let space = Arc::new(SharedSpace::new(shared(a, 128)));
    let its = space.clone();
    let other = w.beside(1, move |_, b| {
        its.fault(b, VirtAddr(vas[1]), Access::Write).unwrap();
    });
    space.fault(a, VirtAddr(vas[0]), Access::Write).unwrap();
    other.join().unwrap();
    let space = last(space).into_inner();
    let (one, two) = (space.tree().query(a, VirtAddr(vas[0])), space.tree().query(a, VirtAddr(vas[1])));
    let (one, two) = (one.expect("mapped").0, two.expect("mapped").0);
    assert_eq!(one == two, vas[0] == vas[1]);
    let leaves = if vas[0] >> 18 == vas[1] >> 18 { 1 } else { 2 };
    assert_eq!(
        space.tree().tables_below_root(),
        leaves + u32::from(L) - 2,
        "one path, and the other given back"
    );
    space.end(a).unwrap();
    w.audit();
}

#[test]
fn racing_faults_without_a_table_link_one_and_free_the_other() {
    model(3, || both_find_no_table::<2>([0, PAGE]));
}

#[test]
fn two_faults_that_link_in_one_table_are_both_counted() {
    model(3, || both_find_no_table::<2>([0, 1 << 18]));
}

#[test]
fn racing_faults_without_a_path_link_one_and_free_the_other() {
    model(2, || both_find_no_table::<3>([0, PAGE]));
}

#[test]
fn two_paths_that_part_below_the_top_are_both_there() {
    model(2, || both_find_no_table::<3>([0, 1 << 18]));
}

#[test]
fn of_two_faults_at_one_page_one_maps_and_the_other_gives_back() {
    model(3, || both_find_no_table::<2>([0, 0]));
}

#[test]
fn entries_that_shared_faults_put_are_found_when_the_space_ends() {
    in_world(3, Shape { data: 2, spare: 2, ..SHAPE }, |w, a| {
        let mut space = shared(a, 2);
        // The table is there, so both go without a lock.
        space.fault(a, VirtAddr(0), Access::Read).unwrap();
        space
            .edit(a)
            .unwrap()
            .madvise(VirtRange::new(0, PAGE).unwrap(), ptarmigan::space::Advice::DontNeed)
            .unwrap();
        let space = Arc::new(SharedSpace::new(space));
        let its = space.clone();
        let other = w.beside(1, move |_, b| {
            its.fault(b, VirtAddr(PAGE), Access::Write).unwrap();
        });
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        other.join().unwrap();
        last(space).end(a).unwrap();
    });
}

#[test]
fn faults_beside_the_only_entry_of_a_table_forget_neither() {
    in_world(3, Shape { data: 2, spare: 2, ..SHAPE }, |w, a| {
        let mut space = shared(a, 2);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        let its = space.clone();
        let other = w.beside(1, move |_, b| {
            its.fault(b, VirtAddr(PAGE), Access::Write).unwrap();
        });
        space.fault(a, VirtAddr(PAGE), Access::Write).unwrap();
        other.join().unwrap();
        last(space).end(a).unwrap();
    });
}

#[test]
fn a_fault_comes_before_munmap_or_after_it() {
    in_world(3, Shape { data: 2, spare: 2, ..SHAPE }, |w, a| {
        let mut space = shared(a, 2);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        space.activate(w.seen(&pin(1))).unwrap();
        let its = space.clone();
        let other = w.cpu(1, move |w, b| {
            let done = its.fault(b, VirtAddr(PAGE), Access::Write);
            let wrote = w.mmu().write(b.pin(), PAGE, 7);
            assert!(done.is_ok() || !wrote, "no area, and yet a page");
            w.step(b.pin(), 0);
        });
        space.lock(a).unwrap().edit().munmap(VirtRange::new(0, 2 * PAGE).unwrap()).unwrap();
        w.reuse(a.pin());
        w.attend(a.pin());
        other.join().unwrap();
        space.deactivate(w.seen(&pin(1))).unwrap();
        last(space).end(a).unwrap();
    });
}

/// These CPUs leave the space; all threads have ended.
fn leave_all(w: &World<2>, space: &SharedSpace<Small<2>>, cpus: impl IntoIterator<Item = usize>) {
    for cpu in cpus {
        space.deactivate(w.seen(&pin(cpu))).unwrap();
    }
}

#[test]
fn a_page_that_one_cpu_maps_is_complete_for_the_mmus_of_others() {
    in_world(3, Shape { data: 2, spare: 2, ..SHAPE }, |w, a| {
        let space = Arc::new(SharedSpace::new(shared(a, 2)));
        // The table is there already: linking it would order earlier accesses.
        space.fault(a, VirtAddr(PAGE), Access::Read).unwrap();
        space.activate(w.seen(&pin(1))).unwrap();
        let other = w.cpu(1, |w, b| {
            assert!(matches!(w.mmu().read(b.pin(), 0), None | Some(0)));
            w.step(b.pin(), 0);
        });
        w.memory.write(frame_to_come(w), 9);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        w.attend(a.pin());
        other.join().unwrap();
        leave_all(w, &space, 0..2);
        last(space).end(a).unwrap();
    });
}

/// The frame that CPU 0 takes next.
fn frame_to_come(w: &World<2>) -> Pfn {
    let frame = w.data().take(w.frames(), &pin(0), AllocFlags::URGENT).unwrap();
    let pfn = frame.pfn();
    assert!(w.data().release(w.frames(), &pin(0), frame).unwrap());
    pfn
}

/// A space whose page 0 holds 5 and is shared with a child, for which a reference stands.
fn forked(a: On<'_, World<2>>) -> (Space<Small<2>>, Space<Small<2>>) {
    let mut space = shared(a, 1);
    space.fault(a, VirtAddr(0), Access::Write).unwrap();
    let frame = frame_at(a, &space);
    a.machine().memory.write(frame, 5);
    let child = space.edit(a).unwrap().fork().unwrap();
    (space, child)
}

fn frame_at(on: On<'_, World<2>>, space: &Space<Small<2>>) -> Pfn {
    space.tree().query(on, VirtAddr(0)).expect("mapped").0
}

#[test]
fn no_cpu_reads_the_old_frame_after_a_write_to_the_copy() {
    in_world(2, Shape { cpus: 3, data: 2, spare: 4, tables: 4, ..SHAPE }, |w, a| {
        let (space, child) = forked(a);
        let space = Arc::new(SharedSpace::new(space));
        for cpu in 0..3 {
            space.activate(w.seen(&pin(cpu))).unwrap();
        }
        assert_eq!(w.mmu().read(&pin(1), 0), Some(5));
        // One thread is two CPUs: the second one writes as soon as it can, the first one reads
        // after it.
        let other = w.cpu(1, |w, b| {
            let c = pin(2);
            for _ in 0..2 {
                if w.mmu().write(&c, 0, 7) {
                    let seen = w.mmu().read(b.pin(), 0);
                    assert!(seen.is_none_or(|v| v == 7), "reads {seen:?} after 7 was written");
                    break;
                }
                w.tlb().serve(&c);
                w.tlb().serve(b.pin());
                // It may keep translations that it finds now, after its flush.
                w.mmu().look(b.pin(), 0);
                // The fault goes on in between.
                loom::thread::yield_now();
            }
            w.until_all_left(&[b.pin(), &c]);
        });
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        w.leave();
        other.join().unwrap();
        assert_eq!(w.memory.read(frame_at(a, &child)), 5, "the child's page has changed");
        leave_all(w, &space, 0..3);
        last(space).end(a).unwrap();
        child.end(a).unwrap();
    });
}

/// CPU 2 still reads the parent's page, with which `change` does something; the child, on CPU 1,
/// writes to its own meanwhile.
fn read_while_a_child_writes(change: fn(On<'_, World<2>>, &SharedSpace<Small<2>>)) {
    read_beside_a_child_that_writes(2, false, change);
}

/// As above, with so many preemptions. With `comes_back`, CPU 2 rests in the space at first, with
/// the page in its TLB.
fn read_beside_a_child_that_writes(
    preemptions: usize,
    comes_back: bool,
    change: fn(On<'_, World<2>>, &SharedSpace<Small<2>>),
) {
    in_world(preemptions, Shape { cpus: 3, data: 2, spare: 4, tables: 4, ..SHAPE }, move |w, a| {
        let (space, child) = forked(a);
        let space = Arc::new(SharedSpace::new(space));
        let shared = Arc::new(SharedSpace::new(child));
        space.activate(a).unwrap();
        space.activate(w.seen(&pin(2))).unwrap();
        shared.activate(w.seen(&pin(1))).unwrap();
        assert_eq!(w.mmu().read(&pin(2), 0), Some(5));
        if comes_back {
            space.rest(w.seen(&pin(2))).unwrap();
        }
        // One thread is two CPUs: one runs in the child and writes, the other still reads the
        // parent's page.
        let (its, back) = (shared.clone(), space.clone());
        let other = w.cpu(1, move |w, b| {
            let c = pin(2);
            if comes_back {
                back.activate(w.seen(&c)).unwrap();
                // Before or after the copy: the child's fault finds either.
                assert!(back.query(w.seen(&c), VirtAddr(0)).unwrap().is_some());
            }
            its.fault(b, VirtAddr(0), Access::Write).unwrap();
            assert!(w.mmu().write(b.pin(), 0, 9));
            let seen = w.mmu().read(&c, 0);
            assert!(seen.is_none_or(|v| v == 5), "the parent reads {seen:?}, which its child wrote");
            w.until_all_left(&[b.pin(), &c]);
        });
        change(a, &space);
        w.leave();
        other.join().unwrap();
        leave_all(w, &space, [0, 2]);
        shared.deactivate(w.seen(&pin(1))).unwrap();
        let (space, child) = (last(space).into_inner(), last(shared).into_inner());
        if space.tree().query(a, VirtAddr(0)).is_some() {
            assert_eq!(w.memory.read(frame_at(a, &space)), 5);
        }
        assert_eq!(w.memory.read(frame_at(a, &child)), 9);
        space.end(a).unwrap();
        child.end(a).unwrap();
    });
}

#[test]
fn a_cpu_that_still_reads_sees_no_child_write_after_the_copy() {
    read_while_a_child_writes(|on, space| {
        space.fault(on, VirtAddr(0), Access::Write).unwrap();
    });
}

/// A CPU that rested in the space comes back while the only CPU that runs there copies the page.
#[test]
fn a_cpu_that_comes_back_during_the_copy_sees_no_child_write() {
    read_beside_a_child_that_writes(3, true, |on, space| {
        space.fault(on, VirtAddr(0), Access::Write).unwrap();
    });
}

#[test]
fn a_cpu_that_still_reads_sees_no_child_write_after_munmap() {
    read_while_a_child_writes(|on, space| {
        space.lock(on).unwrap().edit().munmap(VirtRange::new(0, PAGE).unwrap()).unwrap();
    });
}

#[test]
fn a_page_that_two_cpus_copy_at_once_is_copied_once() {
    in_world(2, Shape { data: 2, spare: 4, tables: 4, ..SHAPE }, |w, a| {
        let (space, child) = forked(a);
        let space = Arc::new(SharedSpace::new(space));
        space.activate(a).unwrap();
        space.activate(w.seen(&pin(1))).unwrap();
        let its = space.clone();
        let other = w.cpu(1, move |w, b| {
            while !w.mmu().write(b.pin(), 0, 7) {
                its.fault(b, VirtAddr(0), Access::Write).unwrap();
            }
        });
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        w.attend(a.pin());
        other.join().unwrap();
        leave_all(w, &space, 0..2);
        let space = last(space).into_inner();
        assert_eq!(w.memory.read(frame_at(a, &space)), 7, "a write is lost");
        assert_eq!(w.memory.read(frame_at(a, &child)), 5, "the child's page has changed");
        space.end(a).unwrap();
        child.end(a).unwrap();
    });
}

/// Makes page 0 the space's own, and writes to it.
fn own(on: On<'_, World<2>>, space: &SharedSpace<Small<2>>) {
    space.fault(on, VirtAddr(0), Access::Write).unwrap();
    let (frame, _) = space.query(on, VirtAddr(0)).unwrap().expect("mapped");
    on.machine().memory.give(frame, Owner::Data);
}

#[test]
fn a_page_that_its_two_spaces_copy_at_once_has_one_owner_each() {
    in_world(3, Shape { data: 2, spare: 4, tables: 4, ..SHAPE }, |w, a| {
        let (space, child) = forked(a);
        let shared = Arc::new(SharedSpace::new(child));
        let its = shared.clone();
        let other = w.beside(1, move |_, b| own(b, &its));
        let space = SharedSpace::new(space);
        own(a, &space);
        other.join().unwrap();
        let (space, child) = (space.into_inner(), last(shared).into_inner());
        let (one, two) = (frame_at(a, &space), frame_at(a, &child));
        assert_ne!(one, two);
        for frame in [one, two] {
            assert_eq!(w.frames().meta(frame).usage(), Use::Data);
            // SAFETY: 1. a data frame, to which an entry of a space owns a reference.
            assert!(unsafe { DataFrames::is_sole_raw(w.frames(), frame) }, "references are lost");
            assert_eq!(w.memory.read(frame), 5);
        }
        space.end(a).unwrap();
        child.end(a).unwrap();
    });
}

#[test]
fn what_a_child_gets_by_fork_does_not_change_under_it() {
    in_world(2, Shape { data: 2, spare: 4, tables: 4, ..SHAPE }, |w, a| {
        let mut space = shared(a, 1);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        space.activate(w.seen(&pin(1))).unwrap();
        let its = space.clone();
        let written = Arc::new(AtomicBool::new(false));
        let other = w.cpu(1, move |w, b| {
            while !w.mmu().write(b.pin(), 0, 7) {
                its.fault(b, VirtAddr(0), Access::Write).unwrap();
            }
            written.store(true, Ordering::Relaxed);
            w.tlb().serve(b.pin());
        });
        let child = space.lock(a).unwrap().edit().fork().unwrap();
        let at_fork = w.memory.read(frame_at(a, &child));
        w.attend(a.pin());
        other.join().unwrap();
        assert_eq!(w.memory.read(frame_at(a, &child)), at_fork, "the child's page has changed");
        leave_all(w, &space, 0..2);
        let space = last(space).into_inner();
        assert_eq!(w.memory.read(frame_at(a, &space)), 7, "a write is lost");
        space.end(a).unwrap();
        child.end(a).unwrap();
    });
}

#[test]
fn a_page_that_is_allowed_again_is_freed_while_others_fault_it() {
    in_world(2, Shape { data: 2, spare: 2, ..SHAPE }, |w, a| {
        let mut space = shared(a, 1);
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        let all = VirtRange::new(0, PAGE).unwrap();
        space.edit(a).unwrap().mprotect(all, AreaFlags(0)).unwrap();
        space.edit(a).unwrap().mprotect(all, RW).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        let its = space.clone();
        let other = w.beside(1, move |_, b| {
            its.fault(b, VirtAddr(0), Access::Read).unwrap();
        });
        space.fault(a, VirtAddr(0), Access::Write).unwrap();
        other.join().unwrap();
        let space = last(space).into_inner();
        let (_, attr) = space.tree().query(a, VirtAddr(0)).unwrap();
        assert!(attr.has(Attr::READ));
        assert!(
            Small::<2>::allows(Level::PTE, Small::<2>::leaf(Level::PTE, Pfn(1), attr), Access::Write),
            "a write permission is lost"
        );
        space.end(a).unwrap();
    });
}
