//! The lock of a shared space: the CPU that has taken it is alone, and no CPU waits for ever.
use crate::machine::{SHAPE, Shape, World, model, pin};
use crate::small::Small;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::machine::On;
use ptarmigan::space::{Access, AreaFlags, FaultError, SharedSpace, Space};
use ptarmigan::sync::SpinLock;
use std::sync::Arc;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

type W = World<2>;
type Shared = SharedSpace<Small<2>>;

fn range(page: u64) -> VirtRange {
    VirtRange::new(page * PAGE, (page + 1) * PAGE).unwrap()
}

fn run(preemptions: usize, a: fn(On<'_, W>, &Shared), b: fn(On<'_, W>, &Shared)) {
    model(preemptions, move || {
        let w = W::new(Shape { data: 2, spare: 2, ..SHAPE });
        let pin = pin(0);
        let on = w.seen(&pin);
        let mut space = Space::new(on).unwrap();
        space.edit(on).unwrap().mmap(range(0), RW, 0).unwrap();
        let space = Arc::new(SharedSpace::new(space));
        let its = space.clone();
        let other = w.beside(1, move |_, on| b(on, &its));
        a(on, &space);
        other.join().unwrap();
        Arc::into_inner(space).expect("all threads have ended").end(on).unwrap();
        w.audit();
    });
}

/// Has the space for itself, twice, and sees only whole changes of others.
fn change(on: On<'_, W>, space: &Shared) {
    for _ in 0..2 {
        let mut locked = space.lock(on).unwrap();
        let mut all = locked.edit();
        // Not alike, so that they are not joined.
        all.mmap(range(2), AreaFlags(1), 0).unwrap();
        all.mmap(range(4), AreaFlags(1), 0).unwrap();
        assert!(all.area(VirtAddr(2 * PAGE)).is_some() && all.area(VirtAddr(4 * PAGE)).is_some());
        all.munmap(range(2)).unwrap();
        all.munmap(range(4)).unwrap();
    }
}

fn fault(on: On<'_, W>, space: &Shared) {
    space.fault(on, VirtAddr(0), Access::Read).unwrap();
    let outside = space.fault(on, VirtAddr(4 * PAGE), Access::Read);
    assert_eq!(outside, Err(FaultError::NoArea(VirtAddr(4 * PAGE))), "half a change is seen");
}

#[test]
fn two_writers_take_turns() {
    run(3, change, change);
}

#[test]
fn a_reader_and_a_writer_take_turns() {
    run(3, change, fault);
}

#[test]
fn a_reader_lets_a_writer_waiting_for_another_reader_go_first() {
    run(4, |on, space| drop(space.lock(on).unwrap()), fault);
}

#[test]
fn a_spin_lock_lets_one_in_at_a_time() {
    model(4, || {
        let lock = Arc::new(SpinLock::new(0));
        let its = lock.clone();
        let other = loom::thread::spawn(move || {
            *its.lock() += 1;
            *its.lock() += 1;
        });
        *lock.lock() += 1;
        *lock.lock() += 1;
        other.join().unwrap();
        assert_eq!(*lock.lock(), 4);
    });
}
