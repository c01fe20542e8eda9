//! Machines that broadcast invalidations: numbers that are the same on all CPUs, and come round.
use crate::machine::{SHAPE, Shape, World, model, pin};
use crate::shootdown::{Spaces, join};
use ptarmigan::table::Free;
use ptarmigan::tlb::{Generation, SpaceTlb};
use std::sync::Arc;

type Model = Spaces<true>;

/// As many numbers as CPUs can keep, and one: each number but those that are kept comes round with
/// every other new space.
const NUMBERS: Shape = Shape { asids: 3, ..SHAPE };

/// With memory for the tables of another space.
const MORE: Shape = Shape { tables: 4, data: 2, ..NUMBERS };

/// Does the same for TLBs without numbers and with few, for a flush that frees tables and one that
/// does not.
fn all(preemptions: usize, f: impl Fn(Shape, Free) + Send + Sync + Copy + 'static) {
    for shape in [SHAPE, NUMBERS] {
        for free in [Free::Empty, Free::Never] {
            model(preemptions, move || f(shape, free));
        }
    }
}

#[test]
fn an_active_cpu_reaches_nothing_that_is_used_again() {
    all(4, |shape, free| {
        let mut m = Model::on_both(shape);
        m.unmap_beside(free, |b| {
            b.look();
            b.look();
        });
    });
}

#[test]
fn a_cpu_that_begins_in_the_space_sees_the_flush_or_is_seen() {
    all(4, |shape, free| {
        // No CPU has loaded it before: it has no number yet.
        let mut m = Model::in_world(World::new(shape), Generation(0), 0);
        m.unmap_beside(free, |b| {
            b.activate();
            b.look();
        });
    });
}

#[test]
fn a_cpu_that_comes_and_goes_has_nothing_stale_when_it_returns() {
    all(3, |shape, free| {
        // It has no number before.
        let mut m = Model::in_world(World::new(shape), Generation(0), 0);
        m.unmap_beside(free, |b| {
            b.activate();
            b.look();
            b.deactivate();
            b.activate();
            b.look();
        });
    });
}

#[test]
fn a_lazy_cpu_reaches_nothing_that_is_used_again() {
    all(3, |shape, free| {
        let mut m = Model::on_both(shape);
        m.unmap_beside(free, |b| {
            b.look();
            b.rest();
            b.look();
            b.activate();
            b.look();
        });
    });
}

#[test]
fn a_cpu_that_leaves_and_comes_back_finds_no_old_translation() {
    all(3, |shape, free| {
        let mut m = Model::on_both(shape);
        m.unmap_beside(free, |b| {
            b.look();
            b.deactivate();
            b.activate();
            b.look();
        });
    });
}

#[test]
fn a_space_without_cpus_is_flushed_where_its_number_is_known() {
    model(3, || {
        let mut m = Model::on_both(NUMBERS);
        m.world.mmu().look(&pin(1), 0);
        let (a, b) = (pin(0), pin(1));
        m.tlb().deactivate(&a, &m.space).unwrap();
        m.tlb().deactivate(&b, &m.space).unwrap();
        m.unmap_beside(Free::Never, |b| {
            b.activate();
            b.look();
        });
    });
}

/// Spaces that take numbers.
fn others<const N: usize>(m: &Model) -> [Arc<SpaceTlb>; N] {
    [(); N].map(|()| Arc::new(m.tlb().new_space()))
}

#[test]
fn a_number_that_another_space_had_shows_nothing_of_it() {
    model(2, || {
        let x = Model::in_world(World::new(MORE), Generation(0), 1);
        let y = Model::in_world(x.world.clone(), Generation(0), 1);
        let b = pin(1);
        for (m, value) in [(&x, 10), (&y, 20)] {
            m.runs_on(1);
            assert!(m.world.mmu().write(&b, 0, value));
            m.tlb().deactivate(&b, &m.space).unwrap();
        }
        let spaces: [_; 3] = others(&x);
        let (its, root) = (y.space.clone(), y.tables.root());
        let other = x.on(1, move |b| {
            let read = || b.on.machine().mmu().read(b.on.pin(), 0);
            b.activate();
            assert_eq!(read(), Some(10));
            b.activate_other(&its, root);
            assert_eq!(read(), Some(20), "what the TLB holds of another space");
            b.activate();
            assert_eq!(read(), Some(10), "what the TLB holds of another space");
        });
        let a = pin(0);
        for space in &spaces {
            // SAFETY: 1. no page is used through it.
            unsafe { x.tlb().activate(&a, space, x.tables.root()).unwrap() };
        }
        join(&x, [other]);
    });
}

#[test]
fn a_load_without_the_lock_is_seen_by_a_rollover_or_sees_it() {
    model(2, || {
        let x = Model::in_world(World::new(MORE), Generation(0), 1);
        let y = Model::in_world(x.world.clone(), Generation(0), 1);
        let b = pin(1);
        for (m, value) in [(&x, 10), (&y, 20)] {
            m.runs_on(1);
            assert!(m.world.mmu().write(&b, 0, value));
            m.tlb().deactivate(&b, &m.space).unwrap();
        }
        // The last number, and that of `x` if it comes round before CPU 1 has loaded `x` again.
        let spaces: [_; 2] = others(&x);
        let (new, root) = (spaces[1].clone(), y.tables.root());
        let other = x.on(1, move |b| {
            let read = || b.on.machine().mmu().read(b.on.pin(), 0);
            b.activate();
            assert_eq!(read(), Some(10));
            b.activate_other(&new, root);
            assert_eq!(read(), Some(20), "what the TLB holds of another space");
        });
        for space in &spaces {
            // SAFETY: 1. no page is used through it.
            unsafe { x.tlb().activate(&pin(0), space, root).unwrap() };
        }
        join(&x, [other]);
    });
}

#[test]
fn a_number_that_a_cpu_has_loaded_goes_to_no_other_space() {
    model(0, || {
        let x = Model::in_world(World::new(MORE), Generation(0), 1);
        let y = Model::in_world(x.world.clone(), Generation(0), 1);
        let a = pin(0);
        for (m, value) in [(&y, 20), (&x, 10)] {
            m.runs_on(0);
            assert!(m.world.mmu().write(&a, 0, value));
            m.tlb().deactivate(&a, &m.space).unwrap();
        }
        x.runs_on(1);
        // The last number, and one that comes round.
        let spaces: [_; 2] = others(&x);
        for space in &spaces {
            // SAFETY: 1. no page is used through it.
            unsafe { x.tlb().activate(&a, space, x.tables.root()).unwrap() };
        }
        for (m, value) in [(&y, 20), (&x, 10)] {
            m.runs_on(0);
            assert_eq!(m.world.mmu().read(&a, 0), Some(value), "what the TLB holds of another space");
        }
    });
}

#[test]
fn a_space_that_is_active_keeps_its_number_when_numbers_wrap() {
    model(3, || {
        let mut m = Model::on_both(NUMBERS);
        let other = m.on(1, |b| {
            b.look();
            b.look();
        });
        let spaces: [_; 3] = others(&m);
        for space in &spaces {
            // SAFETY: 1. no page is used through it.
            unsafe { m.tlb().activate(&pin(0), space, m.tables.root()).unwrap() };
        }
        // By the number that CPU 0 gets for it.
        m.runs_on(0);
        m.unmap(Free::Empty);
        join(&m, [other]);
    });
}

#[test]
fn a_flush_finds_a_space_that_is_getting_another_number() {
    for free in [Free::Empty, Free::Never] {
        model(2, move || {
            let mut m = Model::on_both(MORE);
            // No CPU keeps its number.
            let spaces: [_; 3] = others(&m);
            let root = Model::in_world(m.world.clone(), Generation(0), 1).tables.root();
            let last = spaces.clone();
            let other = m.on(1, move |b| {
                b.look();
                for space in &last {
                    b.activate_other(space, root);
                }
                b.activate();
                b.look();
            });
            // SAFETY: 1. no page is used through it.
            unsafe { m.tlb().activate(&pin(0), &spaces[0], root).unwrap() };
            m.unmap(free);
            join(&m, [other]);
        });
    }
}
