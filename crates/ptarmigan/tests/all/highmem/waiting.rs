//! Callers that sleep, and several CPUs at once.
use crate::highmem::machine::{HIGH, Tlbs, host, machine, pool, store};
use fastrand::Rng;
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::Pinned;
use ptarmigan::highmem::pool::{MaySleep, PoolConfig, PoolError};
use ptarmigan::machine::Machine;
use ptarmigan::window::WindowGuard;
use ptarmigan_hosted::Sleeper;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn high(n: u32) -> Pfn {
    Pfn(HIGH + n)
}

const LONG: Duration = Duration::from_secs(60);

/// A sleeper that says when it sleeps.
struct Telling<'a, C>(C, &'a AtomicUsize);

impl<C: MaySleep> MaySleep for Telling<'_, C> {
    fn pinned<R>(&mut self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        self.0.pinned(f)
    }
    fn task(&self) -> usize {
        self.0.task()
    }
    fn sleep(&mut self, is_woken: &dyn Fn() -> bool) -> bool {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.sleep(is_woken)
    }
}

#[test]
fn who_waits_in_vain_gets_an_error_in_time_and_leaves_the_queue() {
    let host = host(1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 2));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(1, 2), &slots).unwrap();
    let mut cpu = host.slot(0).unwrap();
    let held = [0, 1].map(|n| pool.try_map(&cpu.pin(), high(n)).unwrap());
    let start = Instant::now();
    let patience = Duration::from_millis(30);
    let late = pool.map(&mut Sleeper::new(&mut cpu, machine.tlb(), patience), high(2));
    assert_eq!(late.err(), Some(PoolError::TimedOut { slots: 2 }));
    assert!(start.elapsed() >= patience);
    // A frame that is mapped needs neither slot nor patience.
    let mut here = Sleeper::new(&mut cpu, machine.tlb(), Duration::ZERO);
    drop(pool.map(&mut here, high(1)).unwrap());
    drop(held);
    // Nobody is in the queue any more, or a newcomer would be refused.
    drop(pool.try_map(&cpu.pin(), high(2)).unwrap());
    let mut here = Sleeper::new(&mut cpu, machine.tlb(), Duration::ZERO);
    drop(pool.map(&mut here, high(3)).unwrap());
}

#[test]
fn those_who_wait_are_served_in_order_and_before_newcomers() {
    const WAITERS: usize = 3;
    let host = host(WAITERS + 1);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 8));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(WAITERS + 1, 8), &slots).unwrap();
    let cpu = host.slot(0).unwrap();
    let mut held: Vec<_> = (0..8).map(|n| pool.try_map(&cpu.pin(), high(n)).unwrap()).collect();
    let (asleep, order) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for i in 1..=WAITERS {
            let (pool, host, machine, order, asleep) = (&pool, &host, &machine, &order, &asleep);
            s.spawn(move || {
                let mut cpu = host.slot(i).unwrap();
                let sleeper = Sleeper::new(&mut cpu, machine.tlb(), LONG);
                let mapped = pool.map(&mut Telling(sleeper, asleep), high(100 + i as u32)).unwrap();
                order.lock().unwrap().push(i);
                // Until the end: each needs a slot that somebody else gave up.
                std::mem::forget(mapped);
            });
            let start = Instant::now();
            while asleep.load(Ordering::SeqCst) < i {
                assert!(start.elapsed() < LONG, "{i} does not wait");
                machine.tlb().serve(&cpu.pin());
                std::thread::yield_now();
            }
        }
        assert_eq!(pool.try_map(&cpu.pin(), high(200)).err(), Some(PoolError::Exhausted { slots: 8 }));
        for i in 1..=WAITERS {
            drop(held.pop());
            let start = Instant::now();
            while order.lock().unwrap().len() < i {
                assert!(start.elapsed() < LONG, "nobody was woken");
                // A slot is free by now: it is not for those that come late.
                if let Ok(stolen) = pool.try_map(&cpu.pin(), high(200)) {
                    assert!(order.lock().unwrap().len() >= i, "a newcomer was served first");
                    drop(stolen);
                    break;
                }
                machine.tlb().serve(&cpu.pin());
                std::thread::yield_now();
            }
        }
        let start = Instant::now();
        while order.lock().unwrap().len() < WAITERS {
            assert!(start.elapsed() < LONG);
            machine.tlb().serve(&cpu.pin());
            std::thread::yield_now();
        }
    });
    assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn cpus_that_map_the_same_frames_never_see_a_slot_change() {
    const CPUS: usize = 3;
    const FRAMES: u32 = 24;
    let host = host(CPUS);
    let (tlbs, slots) = (Tlbs::new(), store(&host, 12));
    let machine = machine(&host, &tlbs);
    let pool = pool(&host, &machine, PoolConfig::new(CPUS, 12), &slots).unwrap();
    // Users of each frame, kept by themselves.
    let users: Vec<AtomicU32> = (0..FRAMES).map(|_| AtomicU32::new(0)).collect();
    let done = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for cpu in 0..CPUS {
            let (pool, host, machine, users, slots, done) = (&pool, &host, &machine, &users, &slots, &done);
            s.spawn(move || {
                let mut cpu = host.slot(cpu).unwrap();
                let mut rng = Rng::with_seed(7 + u64::from(cpu.cpu().0));
                for step in 0..3000 {
                    let n = rng.u32(..FRAMES);
                    let mapped = if step % 3 == 0 {
                        pool.map(&mut Sleeper::new(&mut cpu, machine.tlb(), LONG), high(n)).unwrap()
                    } else {
                        match pool.try_map(&cpu.pin(), high(n)) {
                            Ok(mapped) => mapped,
                            Err(PoolError::Exhausted { .. }) => continue,
                            Err(e) => panic!("{e}"),
                        }
                    };
                    users[n as usize].fetch_add(1, Ordering::SeqCst);
                    let slot = (0..12).filter(|slot| slots.frame(*slot) == Some(high(n))).count();
                    // One, and those of CPUs that lost a race and wait for a sweep.
                    assert!(slot >= 1, "the frame is shown nowhere");
                    assert_eq!(pool.address_of(high(n)), Some(mapped.base()));
                    machine.tlb().serve(&cpu.pin());
                    users[n as usize].fetch_sub(1, Ordering::SeqCst);
                }
                pool.idle(&cpu.pin());
                done.fetch_add(1, Ordering::SeqCst);
                while done.load(Ordering::SeqCst) < CPUS {
                    machine.tlb().serve(&cpu.pin());
                    std::thread::yield_now();
                }
            });
        }
    });
    let cpus = host.slots();
    let swept = pool.flush_unused(&cpus[0].pin()).unwrap();
    assert_eq!((swept.pinned, swept.slots()), (0, 12));
}
