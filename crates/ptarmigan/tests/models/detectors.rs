//! Machines that break their promises: the models have to notice (REQ-36).
use crate::machine::{SHAPE, Shape, Tables, World, model, pin};
use crate::mmu::Lie;
use ptarmigan::gather::Gather;
use ptarmigan::machine::Machine;
use ptarmigan::table::Free;
use std::sync::Arc;

/// CPU 0 unmaps a page that CPU 1 knows, and CPU 1 is lazy meanwhile if `lazy`; both use their
/// memory again.
fn unmap_elsewhere(lie: Lie, free: Free, lazy: bool) {
    model(2, move || {
        let w = World::<2>::new(Shape { lie, ..SHAPE });
        let (a, b) = (pin(0), pin(1));
        let mut tables = Tables::new(w.seen(&a), 0);
        let space = Arc::new(w.tlb().new_space());
        let root = tables.root();
        // SAFETY: 1. it is the root of the space's tables.
        unsafe { w.tlb().activate(&b, &space, root).unwrap() };
        w.mmu().look(&b, 0);
        let its = space.clone();
        let other = w.cpu(1, move |w, b| {
            let b = b.pin();
            if lazy {
                w.tlb().rest(b, &its).unwrap();
                w.tlb().serve(b);
                if free == Free::Never {
                    // SAFETY: 1. it is the root of the space's tables.
                    unsafe { w.tlb().activate(b, &its, root).unwrap() };
                }
            } else {
                w.tlb().serve(b);
            }
            w.mmu().look(b, 0);
        });
        let mut gather = Gather::new(w.seen(&a), &space, 12).unwrap();
        tables.unmap(0, free, &mut gather);
        gather.finish();
        w.reuse(&a);
        w.attend(&a);
        other.join().unwrap();
    });
}

#[test]
fn an_honest_machine_passes() {
    for free in [Free::Empty, Free::Never] {
        for lazy in [true, false] {
            unmap_elsewhere(Lie::None, free, lazy);
        }
    }
}

#[test]
#[should_panic = "Causality violation"]
fn a_cpu_that_answers_and_forgets_nothing_is_noticed() {
    unmap_elsewhere(Lie::ForgetsNothing, Free::Never, false);
}

#[test]
#[should_panic = "Causality violation"]
fn a_cpu_that_answers_before_it_forgets_is_noticed() {
    unmap_elsewhere(Lie::ForgetsLate, Free::Never, false);
}

#[test]
#[should_panic = "Causality violation"]
fn a_cpu_whose_paging_structure_caches_keep_a_table_is_noticed() {
    unmap_elsewhere(Lie::KeepsTables, Free::Empty, false);
}

#[test]
#[should_panic = "Causality violation"]
fn a_cpu_that_loads_a_root_and_keeps_what_it_knew_is_noticed() {
    unmap_elsewhere(Lie::KeepsAtLoad, Free::Never, true);
}

#[test]
#[should_panic = "Causality violation"]
fn an_idle_cpu_that_does_not_leave_the_root_is_noticed() {
    unmap_elsewhere(Lie::StaysLoaded, Free::Empty, true);
}
