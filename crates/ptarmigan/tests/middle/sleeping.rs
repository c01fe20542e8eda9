//! Callers that sleep for a slot, and windows on tables: a context, a waker or the code that knows
//! the own CPU unwinds at the k-th pass. No place in a queue is left, and no slot is lost.
use crate::{Point, SLOTS, color_of, fails, for_every_k_at, high, host, store, tlbs};
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::highmem::pool::{MaySleep, Pool, PoolConfig, Wake};
use ptarmigan::highmem::tables::{DEPTH, OwnCpu, TableWindow};
use ptarmigan::machine::Machine;
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::CpuSlot;
use ptarmigan_linux::LinuxPool;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn at(point: Point) {
    assert!(!fails(point), "code of the caller fails");
}

/// A context that may sleep; while it does, another caller gives a slot up.
struct RoughSleeper<'a> {
    cpu: &'a CpuSlot,
    gives_up: &'a mut dyn FnMut(),
}

impl MaySleep for RoughSleeper<'_> {
    fn pinned<R>(&mut self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        at(Point::Sleep);
        let result = f(&self.cpu.pin());
        at(Point::Sleep);
        result
    }
    fn task(&self) -> usize {
        at(Point::Sleep);
        7
    }
    fn sleep(&mut self, _: &dyn Fn() -> bool) -> bool {
        at(Point::Sleep);
        (self.gives_up)();
        at(Point::Sleep);
        true
    }
}

struct RoughWake;

impl Wake for RoughWake {
    fn wake(&self, task: usize) {
        assert_eq!(task, 7);
        at(Point::Wake);
    }
}

#[test]
fn a_pool_of_slots_keeps_no_place_for_a_caller_whose_sleep_or_waker_unwinds() {
    for point in [Point::Sleep, Point::Wake] {
        let passed = for_every_k_at(point, |attempt| {
            let (host, tlbs) = (host(), tlbs());
            let m = machine!(host, tlbs);
            let slots = store(&host, SLOTS);
            let config = PoolConfig { colors: 2, color_of, ..PoolConfig::new(1, SLOTS) };
            let mut boot = host.boot(1 << 17).unwrap();
            let (frames, low) = (host.frames(), host.low_window());
            // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
            let pool = unsafe { Pool::new(&mut boot, config, m.tlb(), frames, low, &slots, &RoughWake) };
            let pool = pool.unwrap();
            let cpu = host.slot(0).unwrap();
            let mut held: Vec<_> =
                (0..SLOTS as u32).map(|n| pool.try_map(&cpu.pin(), high(n)).unwrap()).collect();
            attempt(&mut || {
                let mut gives_up = || _ = held.pop();
                let mut here = RoughSleeper { cpu: &cpu, gives_up: &mut gives_up };
                drop(pool.map(&mut here, high(50)));
                drop(pool.map(&mut here, high(51)));
            });
            drop(held);
            // If anybody waited, newcomers would be refused.
            let all: Vec<_> = (60..60 + SLOTS as u32).map(|n| pool.try_map(&cpu.pin(), high(n))).collect();
            assert!(all.iter().all(Result::is_ok), "a place or a slot is lost");
            drop(all);
            assert_eq!(pool.flush_unused(&cpu.pin()).unwrap().pinned, 0);
        });
        assert!(passed > 0, "{point:?} is never passed");
    }
}

#[test]
fn the_pool_as_linux_has_it_keeps_no_place_for_a_caller_whose_sleep_or_waker_unwinds() {
    for point in [Point::Sleep, Point::Wake] {
        let passed = for_every_k_at(point, |attempt| {
            let (host, tlbs) = (host(), tlbs());
            let m = machine!(host, tlbs);
            let slots = store(&host, SLOTS);
            let mut boot = host.boot(1 << 16).unwrap();
            let (frames, low) = (host.frames(), host.low_window());
            // SAFETY: 1. slots of the host's memory, and the host's own map. 2. new ones.
            let pool = unsafe { LinuxPool::new(&mut boot, m.tlb(), frames, low, &slots) };
            let pool = pool.unwrap().woken_by(&RoughWake);
            let cpu = host.slot(0).unwrap();
            // SAFETY: 1. what it is called for is mapped.
            let unmap = |n| unsafe { pool.unmap(&cpu.pin(), high(n)) };
            (0..SLOTS as u32).for_each(|n| _ = pool.try_map(&cpu.pin(), high(n)).unwrap());
            let mut left = SLOTS as u32;
            attempt(&mut || {
                let mut gives_up = || {
                    left -= 1;
                    assert_eq!(unmap(left), Ok(true));
                };
                let mut here = RoughSleeper { cpu: &cpu, gives_up: &mut gives_up };
                for n in [50, 51] {
                    // A caller that unwinds with the address in its hands has the frame mapped.
                    if pool.map(&mut here, high(n)).is_ok() {
                        assert_eq!(unmap(n), Ok(true));
                    }
                }
            });
            (0..left).chain([50, 51]).for_each(|n| while unmap(n) == Ok(true) {});
            (60..60 + SLOTS as u32).for_each(|n| _ = pool.try_map(&cpu.pin(), high(n)).unwrap());
            (60..60 + SLOTS as u32).for_each(|n| assert_eq!(unmap(n), Ok(true)));
            pool.flush_unused(&cpu.pin()).unwrap();
        });
        assert!(passed > 0, "{point:?} is never passed");
    }
}

/// The own CPU, which is one.
struct RoughCpu;

// SAFETY: 1. there is one CPU, and one thread. 2. there is no MMU: nothing keeps a translation.
unsafe impl OwnCpu for RoughCpu {
    type Stay = ();
    fn stay(&self) -> ((), CpuId) {
        at(Point::Stay);
        ((), CpuId(0))
    }
    fn forget(&self, _: u64) {}
}

#[test]
fn windows_on_tables_lose_no_slot_when_the_code_that_knows_the_cpu_unwinds() {
    let passed = for_every_k_at(Point::Stay, |attempt| {
        let host = host();
        let slots = store(&host, DEPTH);
        let mut boot = host.boot(1 << 12).unwrap();
        // SAFETY: 1. new slots, of the host's memory. 2. these do not fail. 3. it is 0.
        let window = unsafe { TableWindow::new(&mut boot, 1, slots, RoughCpu) }.unwrap();
        attempt(&mut || {
            let one = window.open(high(1).addr());
            let two = window.open(high(2).addr());
            assert_ne!(one.base(), two.base());
            drop(one);
            drop(window.open(high(3).addr()));
        });
        let open: Vec<_> =
            (0..DEPTH as u32 - window.open_now()).map(|n| window.open(high(n).addr())).collect();
        assert_eq!(open.len(), DEPTH, "a slot is lost");
        drop(open);
        assert_eq!(window.open_now(), 0);
        // One more than there are is refused, and changes nothing.
        let all: Vec<_> = (0..DEPTH as u32).map(|n| window.open(high(n).addr())).collect();
        assert!(catch_unwind(AssertUnwindSafe(|| window.open(high(9).addr()))).is_err());
        drop(all);
        assert_eq!(window.open_now(), 0);
    });
    assert!(passed > 1, "it was passed {passed} times");
}
