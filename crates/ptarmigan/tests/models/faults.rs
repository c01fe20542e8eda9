//! Faults of one space on several CPUs, with each other and with calls that have the space for themselves.
use crate::machine::{SHAPE, Shape, World, model, pin};
use crate::mmu::Owner;
use crate::small::Small;
use loom::sync::atomic::{AtomicBool, Ordering};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::{AllocFlags, DataFrames, Use};
use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space};
use ptarmigan::table::Machine;
use std::sync::Arc;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

/// A shared space with one area of `pages` pages from 0 on.
fn shared<const L: u8>(w: &World<L>, pages: u64) -> Space<Small<L>> {
    let mut space = Space::new(w, &pin(0)).unwrap();
    space.mmap(w, &pin(0), VirtRange { start: 0, end: pages * PAGE }, RW, 0).unwrap();
    space
}

fn last<T>(it: Arc<T>) -> T {
    Arc::into_inner(it).expect("all threads have ended")
}

fn both_find_no_table<const L: u8>(vas: [u64; 2]) {
    let w = World::<L>::new(Shape { tables: usize::from(L), data: 1, spare: 2, ..SHAPE });
    let space = Arc::new(SharedSpace::new(shared(&w, 128)));
    let its = space.clone();
    let other = w.beside(1, move |w, b| {
        its.fault(w, b, VirtAddr(vas[1]), Access::Write).unwrap();
    });
    let a = pin(0);
    space.fault(&*w, &a, VirtAddr(vas[0]), Access::Write).unwrap();
    other.join().unwrap();
    let space = last(space).into_inner();
    let (one, two) = (space.tree().query(&*w, VirtAddr(vas[0])), space.tree().query(&*w, VirtAddr(vas[1])));
    let (one, two) = (one.expect("mapped").0, two.expect("mapped").0);
    assert_eq!(one == two, vas[0] == vas[1]);
    let leaves = if vas[0] >> 18 == vas[1] >> 18 { 1 } else { 2 };
    assert_eq!(
        space.tree().tables_below_top(),
        leaves + u32::from(L) - 2,
        "one path, and the other given back"
    );
    space.end(&*w, &a);
    w.audit();
}

#[test]
fn of_two_faults_that_find_no_table_one_links_and_the_other_gives_back() {
    model(3, || both_find_no_table::<2>([0, PAGE]));
}

#[test]
fn two_faults_that_link_in_one_table_are_both_counted() {
    model(3, || both_find_no_table::<2>([0, 1 << 18]));
}

#[test]
fn of_two_faults_that_find_no_path_one_links_and_the_other_gives_back() {
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
fn entries_that_shared_faults_put_are_all_found_when_the_space_ends() {
    model(3, || {
        let w = World::<2>::new(Shape { data: 2, spare: 2, ..SHAPE });
        let mut space = shared(&w, 2);
        let a = pin(0);
        // The table is there, so both go without a lock.
        space.fault(&*w, &a, VirtAddr(0), Access::Read).unwrap();
        space
            .madvise(&*w, &a, VirtRange { start: 0, end: PAGE }, ptarmigan::space::Advice::DontNeed)
            .unwrap();
        let space = Arc::new(SharedSpace::new(space));
        let its = space.clone();
        let other = w.beside(1, move |w, b| {
            its.fault(w, b, VirtAddr(PAGE), Access::Write).unwrap();
        });
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        other.join().unwrap();
        last(space).end(&*w, &a);
        w.audit();
    });
}

#[test]
fn a_fault_comes_before_munmap_or_after_it() {
    model(3, || {
        let w = World::<2>::new(Shape { data: 2, spare: 2, ..SHAPE });
        let mut space = shared(&w, 2);
        let a = pin(0);
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        space.activate(&*w, &pin(1));
        let its = space.clone();
        let other = w.on(1, move |w, b| {
            let done = its.fault(w, b, VirtAddr(PAGE), Access::Write);
            let wrote = w.mmu().write(b, PAGE, 7);
            assert!(done.is_ok() || !wrote, "no area, and yet a page");
            w.step(b, 0);
        });
        space.lock(&*w, &a).munmap(VirtRange { start: 0, end: 2 * PAGE }).unwrap();
        w.reuse(&a);
        w.attend(&a);
        other.join().unwrap();
        space.deactivate(&*w, &pin(1));
        last(space).end(&*w, &a);
        w.audit();
    });
}

/// No CPU is left in the space; all threads have ended.
fn leave_all(w: &World<2>, space: &SharedSpace<Small<2>>) {
    for cpu in 0..2 {
        space.deactivate(w, &pin(cpu));
    }
}

#[test]
fn a_page_that_one_cpu_maps_is_complete_for_the_mmus_of_others() {
    model(3, || {
        let w = World::<2>::new(Shape { data: 2, spare: 2, ..SHAPE });
        let space = Arc::new(SharedSpace::new(shared(&w, 2)));
        // The table is there already: linking it would order what comes before it.
        space.fault(&*w, &pin(0), VirtAddr(PAGE), Access::Read).unwrap();
        space.activate(&*w, &pin(1));
        let other = w.on(1, |w, b| {
            assert!(matches!(w.mmu().read(b, 0), None | Some(0)));
            w.step(b, 0);
        });
        let a = pin(0);
        w.memory.write(frame_to_come(&w), 9);
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        w.attend(&a);
        other.join().unwrap();
        leave_all(&w, &space);
        last(space).end(&*w, &a);
        w.audit();
    });
}

/// The frame that CPU 0 takes next.
fn frame_to_come(w: &World<2>) -> Pfn {
    let frame = w.data().take(w.frames(), &pin(0), AllocFlags::URGENT).unwrap();
    assert!(w.data().release(w.frames(), &pin(0), frame).unwrap());
    frame
}

/// A space whose page 0 holds 5 and is shared with a child, for which a reference stands.
fn forked(w: &World<2>) -> (Space<Small<2>>, Space<Small<2>>) {
    let a = pin(0);
    let mut space = shared(w, 1);
    space.fault(w, &a, VirtAddr(0), Access::Write).unwrap();
    let frame = frame_at(w, &space);
    w.memory.write(frame, 5);
    let child = space.fork(w, &a).unwrap();
    (space, child)
}

fn frame_at(w: &World<2>, space: &Space<Small<2>>) -> Pfn {
    space.tree().query(w, VirtAddr(0)).expect("mapped").0
}

#[test]
fn no_cpu_reads_the_old_frame_once_another_has_written_to_the_copy() {
    model(2, || {
        let w = World::<2>::new(Shape { cpus: 3, data: 2, spare: 4, tables: 4, ..SHAPE });
        let (space, child) = forked(&w);
        let space = Arc::new(SharedSpace::new(space));
        let a = pin(0);
        for cpu in 0..3 {
            space.activate(&*w, &pin(cpu));
        }
        assert_eq!(w.mmu().read(&pin(1), 0), Some(5));
        // One thread is two CPUs: the second one writes as soon as it can, the first one reads after it.
        let other = w.on(1, |w, b| {
            let c = pin(2);
            for _ in 0..2 {
                if w.mmu().write(&c, 0, 7) {
                    let seen = w.mmu().read(b, 0);
                    assert!(seen.is_none_or(|v| v == 7), "reads {seen:?} after 7 was written");
                    break;
                }
                w.tlb().serve(&c);
                w.tlb().serve(b);
            }
            w.until_all_left(&[b, &c]);
        });
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        w.leave();
        other.join().unwrap();
        assert_eq!(w.memory.read(frame_at(&w, &child)), 5, "the child's page has changed");
        for cpu in 0..3 {
            space.deactivate(&*w, &pin(cpu));
        }
        last(space).end(&*w, &a);
        child.end(&*w, &a);
        w.audit();
    });
}

#[test]
fn a_page_that_two_cpus_copy_at_once_is_copied_once() {
    model(2, || {
        let w = World::<2>::new(Shape { data: 2, spare: 4, tables: 4, ..SHAPE });
        let (space, child) = forked(&w);
        let space = Arc::new(SharedSpace::new(space));
        let a = pin(0);
        space.activate(&*w, &a);
        space.activate(&*w, &pin(1));
        let its = space.clone();
        let other = w.on(1, move |w, b| {
            while !w.mmu().write(b, 0, 7) {
                its.fault(w, b, VirtAddr(0), Access::Write).unwrap();
            }
        });
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        w.attend(&a);
        other.join().unwrap();
        leave_all(&w, &space);
        let space = last(space).into_inner();
        assert_eq!(w.memory.read(frame_at(&w, &space)), 7, "a write is lost");
        assert_eq!(w.memory.read(frame_at(&w, &child)), 5, "the child's page has changed");
        space.end(&*w, &a);
        child.end(&*w, &a);
        w.audit();
    });
}

/// Makes page 0 the space's own, and writes to it.
fn own(w: &World<2>, pin: &Pinned<'_>, space: &SharedSpace<Small<2>>) {
    space.fault(w, pin, VirtAddr(0), Access::Write).unwrap();
    let (frame, _) = space.query(w, pin, VirtAddr(0)).expect("mapped");
    w.memory.give(frame, Owner::Data);
}

#[test]
fn a_page_that_its_two_spaces_copy_at_once_has_one_owner_each() {
    model(3, || {
        let w = World::<2>::new(Shape { data: 2, spare: 4, tables: 4, ..SHAPE });
        let (space, child) = forked(&w);
        let shared = Arc::new(SharedSpace::new(child));
        let its = shared.clone();
        let other = w.beside(1, move |w, b| own(w, b, &its));
        let a = pin(0);
        let space = SharedSpace::new(space);
        own(&w, &a, &space);
        other.join().unwrap();
        let (space, child) = (space.into_inner(), last(shared).into_inner());
        let (one, two) = (frame_at(&w, &space), frame_at(&w, &child));
        assert_ne!(one, two);
        for frame in [one, two] {
            assert_eq!(w.frames().meta(frame).usage(), Use::Data);
            assert!(unsafe { DataFrames::is_sole_raw(w.frames(), frame) }, "references are lost");
            assert_eq!(w.memory.read(frame), 5);
        }
        space.end(&*w, &a);
        child.end(&*w, &a);
        w.audit();
    });
}

#[test]
fn what_a_child_gets_by_fork_does_not_change_under_it() {
    model(2, || {
        let w = World::<2>::new(Shape { data: 2, spare: 4, tables: 4, ..SHAPE });
        let a = pin(0);
        let mut space = shared(&w, 1);
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        space.activate(&*w, &pin(1));
        let its = space.clone();
        let written = Arc::new(AtomicBool::new(false));
        let other = w.on(1, move |w, b| {
            while !w.mmu().write(b, 0, 7) {
                its.fault(w, b, VirtAddr(0), Access::Write).unwrap();
            }
            written.store(true, Ordering::Relaxed);
            w.tlb().serve(b);
        });
        let child = space.lock(&*w, &a).fork().unwrap();
        let at_fork = w.memory.read(frame_at(&w, &child));
        w.attend(&a);
        other.join().unwrap();
        assert_eq!(w.memory.read(frame_at(&w, &child)), at_fork, "the child's page has changed");
        leave_all(&w, &space);
        let space = last(space).into_inner();
        assert_eq!(w.memory.read(frame_at(&w, &space)), 7, "a write is lost");
        space.end(&*w, &a);
        child.end(&*w, &a);
        w.audit();
    });
}

#[test]
fn a_page_that_is_allowed_again_is_given_back_while_others_fault_it() {
    model(2, || {
        let w = World::<2>::new(Shape { data: 2, spare: 2, ..SHAPE });
        let mut space = shared(&w, 1);
        let a = pin(0);
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        let all = VirtRange { start: 0, end: PAGE };
        space.mprotect(&*w, &a, all, AreaFlags(0)).unwrap();
        space.mprotect(&*w, &a, all, RW).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        let its = space.clone();
        let other = w.beside(1, move |w, b| {
            its.fault(w, b, VirtAddr(0), Access::Read).unwrap();
        });
        space.fault(&*w, &a, VirtAddr(0), Access::Write).unwrap();
        other.join().unwrap();
        let space = last(space).into_inner();
        let (_, attr) = space.tree().query(&*w, VirtAddr(0)).unwrap();
        assert!(attr.has(Attr::READ));
        assert!(Small::<2>::is_writable(Small::<2>::leaf(Pfn(1), attr)), "a write permission is lost");
        space.end(&*w, &a);
        w.audit();
    });
}
