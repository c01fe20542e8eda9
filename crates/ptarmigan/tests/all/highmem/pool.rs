//! States of slots, failures and the state after them.
use crate::highmem::machine::{
    BASE, Failing, HIGH, Tlbs, flushed, host, is_flush, knows, low, machine, pins, pool, read, store,
};
use ptarmigan::addr::{FRAME_SHIFT, Pfn};
use ptarmigan::highmem::Slots;
use ptarmigan::highmem::pool::{Pool, PoolConfig, PoolError, PoolSetupError, SweepCounts};
use ptarmigan::highmem::window::MixedWindow;
use ptarmigan::machine::Machine;
use ptarmigan::window::{OpenWindow, Window, WindowGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

const SLOTS: usize = 64;

fn high(n: u32) -> Pfn {
    Pfn(HIGH + n)
}

#[test]
fn a_slot_is_usable_then_used_then_stale_and_usable_again_after_a_flush() {
    let host = host(2);
    let (tlbs, slots) = (Tlbs::new(), store(&host, SLOTS));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(2, SLOTS), &slots).unwrap();
    let cpus = host.slots();
    let pins = pins(&cpus);

    let first = pool.try_map(&pins[0], high(1)).unwrap();
    let slot = (0..SLOTS).find(|slot| pool.state(*slot) != 0).unwrap();
    assert_eq!((pool.state(slot), slots.frame(slot)), (2, Some(high(1))));
    let second = pool.try_map(&pins[1], high(1)).unwrap();
    assert_eq!((pool.state(slot), first.base()), (3, second.base()));
    assert_eq!(pool.address_of(high(1)), Some(first.base()));
    assert_eq!(pool.flush_unused(&pins[0]).unwrap(), SweepCounts { stale: 0, pinned: 1, free: SLOTS - 1 });
    drop(first);
    assert_eq!(pool.state(slot), 2);
    drop(second);
    // No user, but CPUs may know it: mapped again, it has the same address and needs no flush.
    assert_eq!((pool.state(slot), slots.frame(slot)), (1, Some(high(1))));
    drop(pool.try_map(&pins[1], high(1)).unwrap());
    assert_eq!((pool.state(slot), flushed(&tlbs).0), (1, 0));

    let swept = pool.flush_unused(&pins[0]).unwrap();
    assert_eq!(swept, SweepCounts { stale: 1, pinned: 0, free: SLOTS - 1 });
    // One page on each of two CPUs.
    assert_eq!((pool.state(slot), flushed(&tlbs).0), (0, 2));
    assert_eq!((slots.frame(slot), pool.address_of(high(1))), (None, None));
    let counts = pool.counts();
    assert_eq!((counts.sweeps, counts.idle_sweeps, counts.total.slots()), (2, 1, 2 * SLOTS));
}

#[test]
fn low_frames_take_no_slot_and_frames_that_there_are_not_are_refused() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, SLOTS));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(1, SLOTS), &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let low = pool.try_map(&pin, Pfn(7)).unwrap();
    assert_eq!(low.base(), host.window().open(Pfn(7).addr()).base());
    assert_eq!(pool.address_of(Pfn(7)), Some(low.base()));
    for none in [Pfn(1 << 20), Pfn::NONE, Pfn(u32::MAX - 1), Pfn(0)] {
        assert_eq!(pool.try_map(&pin, none).err(), Some(PoolError::NoSuchFrame(none)));
    }
    assert!((0..SLOTS).all(|slot| pool.state(slot) == 0));

    let other = crate::highmem::machine::host(1);
    let others = other.slots();
    assert!(matches!(pool.try_map(&others[0].pin(), high(0)).err(), Some(PoolError::WrongMachine(_))));
    assert!(matches!(pool.flush_unused(&others[0].pin()), Err(PoolError::WrongMachine(_))));
    pool.idle(&others[0].pin());
}

#[test]
fn an_exhausted_pool_says_so_changes_nothing_and_a_slot_that_is_given_up_is_found() {
    let host = host(2);
    let (tlbs, slots) = (Tlbs::new(), store(&host, SLOTS));
    let machine = machine(&host, &tlbs);
    // All at hand or in the shared set of one CPU: the other finds the remaining ones.
    let pool = pool(&host, &machine, PoolConfig { batch: 1, ..PoolConfig::new(2, SLOTS) }, &slots).unwrap();
    let cpus = host.slots();
    let pins = pins(&cpus);
    let mut held: Vec<_> = (0..SLOTS as u32).map(|n| pool.try_map(&pins[0], high(n)).unwrap()).collect();
    let states: Vec<u32> = (0..SLOTS).map(|slot| pool.state(slot)).collect();
    for pin in &pins {
        assert_eq!(pool.try_map(pin, high(500)).err(), Some(PoolError::Exhausted { slots: SLOTS }));
    }
    assert_eq!(states, (0..SLOTS).map(|slot| pool.state(slot)).collect::<Vec<_>>());
    assert_eq!(pool.address_of(high(500)), None);
    // A frame that is mapped needs no slot.
    drop(pool.try_map(&pins[1], high(3)).unwrap());
    drop(held.remove(9));
    let found = pool.try_map(&pins[1], high(500)).unwrap();
    assert_eq!(pool.address_of(high(500)), Some(found.base()));
    assert_eq!(pool.address_of(high(9)), None);
    drop((found, held));
    assert_eq!(pool.flush_unused(&pins[0]).unwrap().stale, SLOTS);
}

#[test]
fn slots_that_the_machine_beneath_cannot_change_are_not_lost() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), Failing::new(store(&host, 8)));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(1, 8), &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    for round in 0..4 {
        slots.install.store(1, Ordering::Relaxed);
        assert!(matches!(pool.try_map(&pin, high(50)).err(), Some(PoolError::Slot(_))));
        assert_eq!(pool.address_of(high(50)), None);
        let all: Vec<_> = (0..8).map(|n| pool.try_map(&pin, high(100 * round + n)).unwrap()).collect();
        drop(all);
        slots.remove.store(3, Ordering::Relaxed);
        let swept = pool.flush_unused(&pin).unwrap();
        assert_eq!((swept.stale, swept.pinned, swept.slots()), (7, 1, 8));
        assert_eq!(pool.flush_unused(&pin).unwrap(), SweepCounts { stale: 1, pinned: 0, free: 7 });
    }
}

#[test]
fn a_flush_that_unwinds_is_made_up_for_by_the_next_sweep() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 4));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(1, 4), &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let used = pool.try_map(&pin, high(0)).unwrap();
    drop(pool.try_map(&pin, high(1)).unwrap());
    tlbs.after_next(is_flush, |_| panic!("the machine fails"));
    assert!(catch_unwind(AssertUnwindSafe(|| pool.flush_unused(&pin))).is_err());
    let pages = flushed(&tlbs).0;
    // Not one of the usable slots until it has been flushed.
    let swept = pool.flush_unused(&pin).unwrap();
    assert_eq!(swept, SweepCounts { stale: 1, pinned: 1, free: 2 });
    assert_eq!(flushed(&tlbs).0, pages + 1);
    drop(used);
    assert_eq!(pool.flush_unused(&pin).unwrap(), SweepCounts { stale: 1, pinned: 0, free: 3 });
}

#[test]
fn in_the_middle_of_a_flush_what_needs_no_flush_works_and_the_rest_is_refused() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 4));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(1, 4), &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    drop((0..4).map(|n| pool.try_map(&pin, high(n)).unwrap()).collect::<Vec<_>>());
    // The hook lives as long as the pool: its call is made within the sweep below.
    let result = std::sync::Arc::new(std::sync::Mutex::new(None));
    let its = result.clone();
    let this: &Call<'_> = &|pin| {
        drop(pool.try_map(pin, high(0)));
        pool.try_map(pin, high(9)).err()
    };
    // SAFETY: the reference is used in the sweep below, and not kept.
    let this: &'static Call<'static> = unsafe { std::mem::transmute(this) };
    let this = Sendable(this);
    tlbs.after_next(is_flush, move |pin| {
        let Sendable(call) = &this;
        *its.lock().unwrap() = Some(call(pin));
    });
    pool.flush_unused(&pin).unwrap();
    let inner = result.lock().unwrap().take().expect("the hook was called");
    assert_eq!(inner, Some(PoolError::Refused(ptarmigan::tlb::TlbRefusal::Busy(pin.cpu()))));
    assert_eq!(pool.address_of(high(9)), None);
    drop(pool.try_map(&pin, high(9)).unwrap());
}

type Call<'a> = dyn Fn(&ptarmigan::cpu::Pinned<'_>) -> Option<PoolError> + 'a;

struct Sendable<T>(T);
// SAFETY: the test has one thread.
unsafe impl<T> Send for Sendable<T> {}

#[test]
fn stale_slots_are_flushed_exactly_and_once() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 256));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(1, 256), &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let live: Vec<_> = (0..256).map(|n| pool.try_map(&pin, high(n)).unwrap()).collect();
    for slot in 0..256 {
        read(&tlbs, 0, slots.page(slot), slots.frame(slot).unwrap());
    }
    let gone = 77;
    let stale = (0..256).find(|slot| slots.frame(*slot) == Some(high(gone))).unwrap();
    let mut live = live;
    drop(live.remove(gone as usize));
    assert_eq!(pool.flush_unused(&pin).unwrap(), SweepCounts { stale: 1, pinned: 255, free: 0 });
    assert_eq!(flushed(&tlbs), (1, 0));
    for slot in 0..256 {
        assert_eq!(knows(&tlbs, 0, slots.page(slot)), slot != stale, "slot {slot}");
    }
}

#[test]
fn colors_have_slots_of_their_own() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 64));
    let machine = machine(&host, &tlbs);
    let config = PoolConfig { colors: 4, color_of: |pfn| pfn.0 as usize, ..PoolConfig::new(1, 64) };
    let pool = pool(&host, &machine, config, &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    // All of one colour, so that only slots of the others are left.
    let held: Vec<_> = (0..16).map(|n| pool.try_map(&pin, high(4 * n + 2)).unwrap()).collect();
    assert_eq!(pool.try_map(&pin, high(402)).err(), Some(PoolError::Exhausted { slots: 16 }));
    let other = pool.try_map(&pin, high(403)).unwrap();
    for slot in 0..64 {
        if let Some(frame) = slots.frame(slot) {
            assert_eq!(frame.0 as usize % 4, slot % 4);
        }
    }
    drop((held, other));
    assert_eq!(pool.flush_unused(&pin).unwrap(), SweepCounts { stale: 17, pinned: 0, free: 47 });
}

#[test]
fn stale_slots_of_one_color_are_flushed_and_those_of_others_between_them_are_not() {
    // A chunk has 512 slots of one of two colours, every other one of 1,024.
    const N: usize = 2048;
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, N));
    let machine = machine(&host, &tlbs);
    let config = PoolConfig { colors: 2, color_of: |pfn| pfn.0 as usize, ..PoolConfig::new(1, N) };
    let pool = pool(&host, &machine, config, &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let mut held: Vec<_> =
        (0..N as u32).map(|n| (high(n), Some(pool.try_map(&pin, high(n)).unwrap()))).collect();
    for slot in 0..N {
        read(&tlbs, 0, slots.page(slot), slots.frame(slot).unwrap());
    }
    let stale = |pfn: Pfn| pfn.0 % 2 == 1 && !pfn.0.is_multiple_of(3);
    held.iter_mut().filter(|(pfn, _)| stale(*pfn)).for_each(|(_, page)| *page = None);
    let expected: Vec<bool> = (0..N).map(|slot| stale(slots.frame(slot).unwrap())).collect();
    let n = expected.iter().filter(|stale| **stale).count();
    let swept = SweepCounts { stale: n, pinned: N - n, free: 0 };
    assert_eq!(pool.flush_unused(&pin).unwrap(), swept);
    assert_eq!(flushed(&tlbs), (n, 0));
    for (slot, stale) in expected.iter().enumerate() {
        assert_eq!(knows(&tlbs, 0, slots.page(slot)), !stale, "slot {slot}");
    }
}

#[test]
fn shapes_that_do_not_work_are_refused() {
    let host = host(2);
    let tlbs = Tlbs::new();
    let machine = machine(&host, &tlbs);
    let new = |config: PoolConfig, n: usize| pool(&host, &machine, config, store(&host, n)).err();
    let config = PoolConfig::new(2, 64);
    assert_eq!(new(config, 0), Some(PoolSetupError::Slots { slots: 0, colors: 1 }));
    assert_eq!(
        new(PoolConfig { colors: 3, ..config }, 64),
        Some(PoolSetupError::Slots { slots: 64, colors: 3 })
    );
    assert_eq!(new(PoolConfig { colors: 0, ..config }, 64), Some(PoolSetupError::Colors(0)));
    assert_eq!(new(PoolConfig { batch: 0, ..config }, 64), Some(PoolSetupError::Batch(0)));
    assert_eq!(
        new(PoolConfig { cpus: 1, ..config }, 64),
        Some(PoolSetupError::TooFewCpus { cpus: 1, machine: 2 })
    );
    let other = crate::highmem::machine::host(2);
    let slots = store(&other, 64);
    let mut boot = host.boot(1 << 20).unwrap();
    // SAFETY: 1. and 2. the frames are not those of the machine: refused.
    let wrong =
        unsafe { Pool::new(&mut boot, config, machine.tlb(), other.frames(), low(&other), slots, &()) };
    assert!(matches!(wrong.err(), Some(PoolSetupError::WrongMachine(_))));
    let mut boot = host.boot(64).unwrap();
    // SAFETY: 1. slots of the host's memory. 2. new ones.
    let short = unsafe {
        Pool::new(&mut boot, config, machine.tlb(), host.frames(), low(&host), store(&host, 64), &())
    };
    assert!(matches!(short.err(), Some(PoolSetupError::Boot(_))));
}

#[test]
fn a_mixed_window_takes_slots_for_high_frames_only() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 2));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(1, 2), &slots).unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    // SAFETY: 1. the pool bypasses memory that the direct map reaches. 2. which is all low memory.
    let window = unsafe { MixedWindow::new(low(&host), pool.window(&pin)) };
    let at = ptarmigan::addr::PhysAddr((u64::from(HIGH) << FRAME_SHIFT) + 40);
    let (one, two) = (window.map(Pfn(5).addr()).unwrap(), window.map(at).unwrap());
    assert_eq!(one.base(), host.window().open(Pfn(5).addr()).base());
    assert_eq!(two.base(), host.window().open(at).base());
    assert_eq!((0..2).filter(|slot| pool.state(*slot) == 2).count(), 1);
    let _three = window.map(high(1).addr()).unwrap();
    assert_eq!(window.map(high(2).addr()).err(), Some(PoolError::Exhausted { slots: 2 }));
    assert_eq!(slots.page(0), BASE);
}
