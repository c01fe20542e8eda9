//! The pool as Linux has it.
use crate::common::Rng;
use crate::machine::{HIGH, Tlbs, host, low, machine, store};
use ptarmigan::addr::Pfn;
use ptarmigan::highmem::Slots;
use ptarmigan::highmem::linux::LinuxPool;
use ptarmigan::highmem::pool::{PoolError, SweepCounts};
use ptarmigan::machine::Machine;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

fn high(n: u32) -> Pfn {
    Pfn(HIGH + n)
}

#[test]
fn each_round_sweeps_all_slots_with_one_flush_of_the_whole_window() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(1), store(&host, 16));
    let machine = machine(&host, &tlbs);
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory.
    let pool =
        unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let pinned = pool.try_map(&pin, high(500)).unwrap();
    for n in 0..200 {
        let before = tlbs.pages.load(Ordering::Relaxed);
        let base = pool.try_map(&pin, high(n)).unwrap();
        assert_ne!(base, pinned);
        // SAFETY: 1. mapped just now.
        assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
        let pages = tlbs.pages.load(Ordering::Relaxed) - before;
        assert!(pages == 0 || pages == 16, "{pages} pages");
    }
    let counts = pool.counts();
    assert_eq!(counts.total.slots(), 16 * counts.sweeps);
    assert_eq!(counts.total.pinned, counts.sweeps);
    // SAFETY: 1. it is not mapped: refused.
    assert_eq!(unsafe { pool.unmap(&pin, high(700)) }, Ok(false));
    // SAFETY: 1. mapped above.
    assert_eq!(unsafe { pool.unmap(&pin, high(500)) }, Ok(true));
    pool.flush_unused(&pin).unwrap();
    assert!((0..16).all(|slot| pool.state(slot) == 0 && slots.frame(slot).is_none()));
    assert_eq!(pool.try_map(&pin, Pfn::NONE), Err(PoolError::NoSuchFrame(Pfn::NONE)));
    assert!(counts.total != SweepCounts::default());
}

#[test]
fn random_operations_keep_the_states_exact() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(1), store(&host, 24));
    let machine = machine(&host, &tlbs);
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory.
    let pool =
        unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let rng = Rng::new(3);
    let mut users: HashMap<u32, u32> = HashMap::new();
    for _ in 0..6000 {
        let n = rng.below(60) as u32;
        let its = users.entry(n).or_default();
        if rng.below(2) == 0 {
            match pool.try_map(&pin, high(n)) {
                Ok(_) => *its += 1,
                Err(PoolError::Exhausted { slots: 24 }) => assert_eq!(*its, 0),
                Err(e) => panic!("{e}"),
            }
        } else if *its > 0 {
            // SAFETY: 1. it has a user.
            assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
            *its -= 1;
        }
        for slot in 0..24 {
            match (pool.state(slot), slots.frame(slot)) {
                (0, shown) => assert_eq!(shown, None),
                (count, shown) => {
                    let frame = shown.expect("shows a frame");
                    assert_eq!(count, users.get(&(frame.0 - HIGH)).copied().unwrap_or(0) + 1);
                    tlbs.read(0, slots.page(slot), frame);
                }
            }
        }
    }
}
