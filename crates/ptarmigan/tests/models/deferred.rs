//! Flushes that are left to the CPUs that they concern: a page is not used again before these have
//! forgotten it.
use crate::machine::{SHAPE, Shape, World, model, pin};
use crate::small::Small;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space, Unmapping};
use std::sync::Arc;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

fn page(number: u64) -> VirtRange {
    VirtRange::new(number * PAGE, (number + 1) * PAGE).unwrap()
}

/// A space with pages from 0 on, that both CPUs run in and that unmaps later.
fn on_both(w: &World<2>, a: On<'_, World<2>>, pages: u64) -> Arc<SharedSpace<Small<2>>> {
    let mut space = Space::new(a).unwrap();
    let mut edit = space.edit(a).unwrap();
    edit.set_unmapping(Unmapping::Deferred);
    edit.mmap(VirtRange::new(0, pages * PAGE).unwrap(), RW, 0).unwrap();
    for number in 0..pages {
        space.fault(a, VirtAddr(number * PAGE), Access::Write).unwrap();
    }
    let space = SharedSpace::new(space);
    space.activate(a).unwrap();
    space.activate(w.seen(&pin(1))).unwrap();
    w.mmu().look(&pin(1), 0);
    Arc::new(space)
}

/// CPU 0 unmaps the pages one by one, gives back those that wait for no CPU, uses its own; CPU 1
/// does `other` meanwhile. In the end, all frames are back.
fn unmap_beside(
    preemptions: usize,
    (asids, pages): (u16, u64),
    other: impl Fn(&World<2>, On<'_, World<2>>, &SharedSpace<Small<2>>) + Send + Sync + Copy + 'static,
) {
    model(preemptions, move || {
        let w = World::<2>::new(Shape { park: 8, data: pages as usize, spare: 2, asids, ..SHAPE });
        let (a, b) = (pin(0), pin(1));
        let a = w.seen(&a);
        let space = on_both(&w, a, pages);
        let its = space.clone();
        let thread = w.beside(1, move |w, b| other(w, b, &its));
        for number in 0..pages {
            space.lock(a).unwrap().edit().munmap(page(number)).unwrap();
        }
        assert_eq!(w.tlb().counts().asked, 0);
        w.reuse(a.pin());
        a.collect();
        w.reuse(a.pin());
        thread.join().unwrap();
        w.tlb().catch_up(&b, Some(space.tlb())).unwrap();
        a.collect();
        assert_eq!(w.parking().parked(a.pin()), 0, "all have caught up");
        w.reuse(a.pin());
        w.mmu().look(&b, 0);
        space.deactivate(w.seen(&b)).unwrap();
        Arc::into_inner(space).expect("all threads have ended").end(a).unwrap();
        w.audit();
    });
}

#[test]
fn a_cpu_that_makes_up_for_it_reaches_no_reused_page() {
    for named in [true, false] {
        unmap_beside(3, (0, 1), move |w, b, space| {
            w.mmu().look(b.pin(), 0);
            w.tlb().catch_up(b.pin(), named.then_some(space.tlb())).unwrap();
            w.mmu().look(b.pin(), 0);
            w.tlb().catch_up(b.pin(), named.then_some(space.tlb())).unwrap();
            w.mmu().look(b.pin(), 0);
        });
    }
}

#[test]
fn nor_does_one_that_goes_and_comes_back() {
    for asids in [0, 2] {
        unmap_beside(3, (asids, 1), |w, b, space| {
            w.mmu().look(b.pin(), 0);
            space.deactivate(b).unwrap();
            w.mmu().look(b.pin(), 0);
            space.activate(b).unwrap();
            w.mmu().look(b.pin(), 0);
        });
    }
}

#[test]
fn nor_does_one_that_rests() {
    unmap_beside(3, (0, 1), |w, b, space| {
        space.rest(b).unwrap();
        w.mmu().look(b.pin(), 0);
        b.idle();
        w.mmu().look(b.pin(), 0);
        space.activate(b).unwrap();
        w.mmu().look(b.pin(), 0);
    });
}

#[test]
fn two_flushes_that_are_left_to_a_cpu_both_count() {
    unmap_beside(2, (0, 2), |w, b, space| {
        w.tlb().catch_up(b.pin(), Some(space.tlb())).unwrap();
        w.mmu().look(b.pin(), 0);
        w.tlb().catch_up(b.pin(), None).unwrap();
    });
}
