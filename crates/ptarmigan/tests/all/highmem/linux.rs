//! The pool as Linux has it.
use crate::highmem::machine::{
    Failing, HIGH, Tlbs, Wires, flushed, host, is_flush, low, machine, read, store,
};
use fastrand::Rng;
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::Pinned;
use ptarmigan::highmem::pool::{PoolError, SweepCounts};
use ptarmigan::highmem::{SlotError, Slots};
use ptarmigan::machine::Machine;
use ptarmigan::tlb::TlbRefusal;
use ptarmigan_hosted::{Sleeper, StoreSlots};
use ptarmigan_linux::{FlushRule, LinuxPool};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn high(n: u32) -> Pfn {
    Pfn(HIGH + n)
}

#[test]
fn each_round_sweeps_all_slots_with_one_flush_of_the_window() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 16));
    let machine = machine(&host, &tlbs);
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory. 2. new ones.
    let pool =
        unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let pinned = pool.try_map(&pin, high(500)).unwrap();
    for n in 0..200 {
        let before = flushed(&tlbs).0;
        let base = pool.try_map(&pin, high(n)).unwrap();
        assert_ne!(base, pinned);
        // SAFETY: 1. mapped just now.
        assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
        let pages = flushed(&tlbs).0 - before;
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
    let (tlbs, slots) = (Tlbs::new(), store(&host, 24));
    let machine = machine(&host, &tlbs);
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory. 2. new ones.
    let pool =
        unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let mut rng = Rng::with_seed(3);
    let mut users: HashMap<u32, u32> = HashMap::new();
    for _ in 0..6000 {
        let n = rng.u32(..60);
        let its = users.entry(n).or_default();
        if rng.bool() {
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
                    read(&tlbs, 0, slots.page(slot), frame);
                }
            }
        }
    }
}

/// A model of Linux's rules: states by slot, the frame of each, and where the last search ended.
struct Model {
    rule: FlushRule,
    states: Vec<u32>,
    frames: Vec<Option<u32>>,
    last: usize,
    flushes: usize,
}

impl Model {
    /// The slot that a frame is mapped in; `None` if the search ends without one.
    fn map(&mut self, n: u32) -> Option<usize> {
        let len = self.states.len();
        let mut slot = self.frames.iter().position(|frame| *frame == Some(n));
        let mut left = len;
        while slot.is_none() {
            self.last = (self.last + 1) % len;
            if self.last == 0 {
                self.sweep();
                left = len;
            }
            if self.states[self.last] == 0 {
                slot = Some(self.last);
                (self.states[self.last], self.frames[self.last]) = (1, Some(n));
            } else {
                left -= 1;
                if left == 0 {
                    return None;
                }
            }
        }
        self.states[slot?] += 1;
        slot
    }

    fn sweep(&mut self) {
        let mut stale = false;
        for (state, frame) in self.states.iter_mut().zip(&mut self.frames) {
            if *state == 1 {
                (*state, *frame, stale) = (0, None, true);
            }
        }
        self.flushes += usize::from(stale || self.rule == FlushRule::EveryRound);
    }
}

fn compare(len: usize, seed: u64, steps: usize, rule: FlushRule) {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, len));
    let machine = machine(&host, &tlbs);
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory. 2. new ones.
    let pool =
        unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
    let pool = pool.with_rule(rule);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let mut rng = Rng::with_seed(seed);
    let mut model = Model { rule, states: vec![0; len], frames: vec![None; len], last: 0, flushes: 0 };
    for step in 0..steps {
        let n = rng.u64(..2 * len as u64) as u32;
        let slot = model.frames.iter().position(|frame| *frame == Some(n));
        // A test of a million steps has time for the calls of one of them.
        tlbs.take_calls();
        let flushes = model.flushes;
        match (rng.u64(..64), slot) {
            (0, _) => {
                pool.flush_unused(&pin).unwrap();
                model.sweep();
            }
            (1..32, _) => match (pool.try_map(&pin, high(n)), model.map(n)) {
                (Ok(_), Some(slot)) => assert_eq!(slots.frame(slot), Some(high(n)), "slot {slot} at {step}"),
                (Err(PoolError::Exhausted { slots }), None) => assert_eq!(slots, len),
                (got, wanted) => panic!("{got:?} is not {wanted:?} at step {step}"),
            },
            (_, Some(slot)) if model.states[slot] > 1 => {
                model.states[slot] -= 1;
                // SAFETY: 1. it has a user.
                assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
            }
            _ => {}
        }
        let flushed = flushed(&tlbs).0;
        assert_eq!(flushed, (model.flushes - flushes) * len, "one flush of the window at step {step}");
        for slot in 0..len {
            assert_eq!(pool.state(slot), model.states[slot], "slot {slot} at step {step}");
            assert_eq!(slots.frame(slot), model.frames[slot].map(high), "slot {slot} at step {step}");
        }
    }
}

#[test]
fn the_pool_does_what_the_rules_say() {
    for (len, seed) in [(2, 1), (3, 2), (16, 3), (64, 4)] {
        for rule in [FlushRule::Stale, FlushRule::EveryRound] {
            compare(len, seed, 5_000, rule);
        }
    }
}

#[test]
#[ignore = "a million operations: cargo xtask ci history"]
fn the_pool_does_what_the_rules_say_a_million_times() {
    for (len, seed) in [(2, 1), (3, 2), (16, 3), (64, 4)] {
        for rule in [FlushRule::Stale, FlushRule::EveryRound] {
            compare(len, seed, 125_000, rule);
        }
    }
}

/// A machine with one CPU, a pool of 4 slots that may fail, and whatever `f` does with them.
fn with_pool<R>(
    f: impl FnOnce(&LinuxPool<'_, Wires<'_>, &Failing<StoreSlots>>, &Failing<StoreSlots>, &Tlbs, &Pinned<'_>) -> R,
) -> R {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), Failing::new(store(&host, 4)));
    let machine = machine(&host, &tlbs);
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory. 2. new ones.
    let pool =
        unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
    let cpus = host.slots();
    f(&pool, &slots, &tlbs, &cpus[0].pin())
}

/// Maps frames from `first` on in all slots, has the CPU know them, and unmaps them.
fn used(
    pool: &LinuxPool<'_, Wires<'_>, &Failing<StoreSlots>>,
    slots: &Failing<StoreSlots>,
    tlbs: &Tlbs,
    pin: &Pinned<'_>,
    first: u32,
) {
    for n in first..first + 4 {
        pool.try_map(pin, high(n)).unwrap();
        read_all(slots, tlbs);
    }
    for n in first..first + 4 {
        // SAFETY: 1. mapped above.
        assert_eq!(unsafe { pool.unmap(pin, high(n)) }, Ok(true));
    }
}

/// The CPU reads in every slot; panics where it knows an old frame.
fn read_all(slots: &Failing<StoreSlots>, tlbs: &Tlbs) {
    for slot in 0..4 {
        if let Some(frame) = slots.slots.frame(slot) {
            read(tlbs, 0, slots.page(slot), frame);
        }
    }
}

#[test]
fn a_sweep_goes_on_after_a_slot_that_cannot_be_emptied() {
    for k in 1..=4 {
        with_pool(|pool, slots, tlbs, pin| {
            used(pool, slots, tlbs, pin, 0);
            slots.remove.store(k, Ordering::Relaxed);
            let failed = SlotError { index: k - 1, code: 12 };
            assert_eq!(pool.flush_unused(pin), Err(PoolError::Slot(failed)));
            let states: Vec<_> = (0..4).map(|slot| pool.state(slot)).collect();
            assert_eq!(states.iter().sum::<u32>(), 1, "{states:?}");
            assert!((0..4).all(|slot| (pool.state(slot) == 1) == (slot == k - 1)), "{states:?}");
            // The other slots serve at once.
            let flushes = pool.counts().sweeps;
            for n in 10..13 {
                pool.try_map(pin, high(n)).unwrap();
                read_all(slots, tlbs);
                // SAFETY: 1. mapped just now.
                assert_eq!(unsafe { pool.unmap(pin, high(n)) }, Ok(true));
            }
            assert!(pool.counts().sweeps <= flushes + 1);
            used(pool, slots, tlbs, pin, 20);
            pool.flush_unused(pin).unwrap();
            assert!((0..4).all(|slot| pool.state(slot) == 0));
        });
    }
}

#[test]
fn a_map_says_which_slot_failed_if_it_finds_no_other() {
    with_pool(|pool, slots, tlbs, pin| {
        used(pool, slots, tlbs, pin, 0);
        for n in 0..3 {
            pool.try_map(pin, slots.slots.frame(n).unwrap()).unwrap();
        }
        slots.remove.store(1, Ordering::Relaxed);
        let failed = SlotError { index: 3, code: 12 };
        assert_eq!(pool.try_map(pin, high(50)), Err(PoolError::Slot(failed)));
        pool.try_map(pin, high(50)).unwrap();
        read_all(slots, tlbs);
        assert_eq!(pool.try_map(pin, high(51)), Err(PoolError::Exhausted { slots: 4 }));
    });
}

#[test]
fn slots_are_owed_until_a_flush_has_ended() {
    with_pool(|pool, slots, tlbs, pin| {
        for round in 0..3 {
            used(pool, slots, tlbs, pin, 10 * round);
            tlbs.before_next(is_flush, |_| panic!("the machine fails"));
            assert!(catch_unwind(AssertUnwindSafe(|| pool.flush_unused(pin))).is_err());
            // They show no frame, and are not usable.
            assert!((0..4).all(|slot| slots.slots.frame(slot).is_none() && pool.state(slot) == 1));
            let pages = flushed(tlbs).0;
            used(pool, slots, tlbs, pin, 10 * round + 5);
            assert_eq!(flushed(tlbs).0, pages + 4, "one flush of the window");
        }
    });
}

#[test]
fn in_the_middle_of_its_own_flush_a_cpu_is_refused_without_wait() {
    let results = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let its = results.clone();
    with_pool(|pool, slots, tlbs, pin| {
        used(pool, slots, tlbs, pin, 0);
        pool.try_map(pin, high(3)).unwrap();
        let call = |pin: &Pinned<'_>| {
            // SAFETY: 1. mapped above.
            let unmapped = unsafe { pool.unmap(pin, high(3)) };
            [pool.try_map(pin, high(9)).err(), unmapped.err(), pool.flush_unused(pin).err()]
        };
        let call: &dyn Fn(&Pinned<'_>) -> [Option<PoolError>; 3] = &call;
        // SAFETY: the reference is used in the sweep below, and not kept.
        let call: &'static dyn Fn(&Pinned<'_>) -> [Option<PoolError>; 3] =
            unsafe { std::mem::transmute(call) };
        let call = Sendable(call);
        tlbs.after_next(is_flush, move |pin| {
            let Sendable(call) = &call;
            its.lock().unwrap().push(call(pin));
        });
        pool.flush_unused(pin).unwrap();
        let busy = Some(PoolError::Refused(TlbRefusal::Busy(pin.cpu())));
        assert_eq!(*results.lock().unwrap(), [[busy; 3]]);
        // The refused calls had no effect. SAFETY: 1. mapped above.
        assert_eq!(unsafe { pool.unmap(pin, high(3)) }, Ok(true));
    });
}

struct Sendable<T>(T);
// SAFETY: the test has one thread.
unsafe impl<T> Send for Sendable<T> {}

#[test]
fn a_frame_has_no_more_users_than_can_be_counted() {
    with_pool(|pool, _, _, pin| {
        for _ in 0..u16::MAX - 1 {
            pool.try_map(pin, high(1)).unwrap();
        }
        assert_eq!(pool.try_map(pin, high(1)), Err(PoolError::TooManyUsers(high(1))));
        // SAFETY: 1. mapped above.
        assert_eq!(unsafe { pool.unmap(pin, high(1)) }, Ok(true));
        pool.try_map(pin, high(1)).unwrap();
    });
}

#[test]
fn linux_2_4_flushes_each_round_even_if_every_slot_has_a_user() {
    for (rule, more) in [(FlushRule::Stale, 0), (FlushRule::EveryRound, 2)] {
        let host = host(1);
        let (tlbs, slots) = (Tlbs::new(), store(&host, 8));
        let machine = machine(&host, &tlbs);
        let mut boot = host.boot(1 << 16).unwrap();
        // SAFETY: 1. slots of the host's memory. 2. new ones.
        let pool =
            unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
        let pool = pool.with_rule(rule);
        let cpus = host.slots();
        let pin = cpus[0].pin();
        for n in 0..8 {
            pool.try_map(&pin, high(n)).unwrap();
        }
        let before = flushed(&tlbs).0;
        // No slot is stale: all have users.
        assert_eq!(pool.try_map(&pin, high(9)), Err(PoolError::Exhausted { slots: 8 }));
        let rounds = (flushed(&tlbs).0 - before) / 8;
        assert!(if more == 0 { rounds == 0 } else { (1..=more).contains(&rounds) }, "{rule:?}: {rounds}");
        for n in 0..8 {
            // SAFETY: 1. mapped above.
            assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
        }
    }
}

#[test]
fn callers_of_the_linux_pool_sleep_until_a_slot_is_unused() {
    const WAITERS: usize = 3;
    let host = host(WAITERS + 1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 8));
    let machine = machine(&host, &tlbs);
    let mut boot = host.boot(1 << 16).unwrap();
    // SAFETY: 1. slots of the host's memory. 2. new ones.
    let pool =
        unsafe { LinuxPool::new(&mut boot, machine.tlb(), host.frames(), low(&host), &slots) }.unwrap();
    let mut cpu = host.slot(0).unwrap();
    for n in 0..8 {
        pool.try_map(&cpu.pin(), high(n)).unwrap();
    }
    let patience = Duration::from_millis(20);
    let late = pool.map(&mut Sleeper::new(&mut cpu, machine.tlb(), patience), high(50));
    assert_eq!(late, Err(PoolError::TimedOut { slots: 8 }));
    let (long, served) = (Duration::from_secs(60), AtomicU32::new(0));
    std::thread::scope(|s| {
        for i in 1..=WAITERS {
            let (pool, host, machine, served) = (&pool, &host, &machine, &served);
            s.spawn(move || {
                let mut cpu = host.slot(i).unwrap();
                let frame = high(100 + i as u32);
                let mut here = Sleeper::new(&mut cpu, machine.tlb(), long);
                pool.map(&mut here, frame).unwrap();
                served.fetch_add(1, Ordering::SeqCst);
                while served.load(Ordering::SeqCst) < WAITERS as u32 {
                    machine.tlb().serve(&here.pin());
                    std::thread::yield_now();
                }
                // SAFETY: 1. mapped above.
                assert_eq!(unsafe { pool.unmap(&here.pin(), frame) }, Ok(true));
            });
        }
        let pin = cpu.pin();
        for given in 0..WAITERS as u32 {
            assert!(served.load(Ordering::SeqCst) <= given, "no slot without one that is given up");
            // SAFETY: 1. mapped above.
            assert_eq!(unsafe { pool.unmap(&pin, high(given)) }, Ok(true));
            let start = Instant::now();
            while served.load(Ordering::SeqCst) <= given {
                assert!(start.elapsed() < long, "nobody was woken");
                machine.tlb().serve(&pin);
                std::thread::yield_now();
            }
        }
    });
    let pin = cpu.pin();
    for n in WAITERS as u32..8 {
        // SAFETY: 1. mapped above.
        assert_eq!(unsafe { pool.unmap(&pin, high(n)) }, Ok(true));
    }
    pool.flush_unused(&pin).unwrap();
    assert!((0..8).all(|slot| pool.state(slot) == 0 && slots.frame(slot).is_none()));
}
