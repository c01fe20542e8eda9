//! Lets threads sleep until a slot is free.
use crate::slots::CpuSlot;
use ptarmigan::cpu::Pinned;
use ptarmigan::highmem::pool::MaySleep;
use ptarmigan::tlb::{Shootdown, Tlb};
use std::time::{Duration, Instant};

/// A thread that may sleep until a moment. It looks now and then, so it need not be woken, and
/// serves requests to its CPU meanwhile, as it is that CPU.
pub struct Sleeper<'a, S: Shootdown> {
    slot: &'a mut CpuSlot,
    tlb: &'a Tlb<S>,
    until: Instant,
}

impl<'a, S: Shootdown> Sleeper<'a, S> {
    /// Makes the context of the thread that owns `slot`, which waits for `patience` at most.
    pub fn new(slot: &'a mut CpuSlot, tlb: &'a Tlb<S>, patience: Duration) -> Self {
        Sleeper { slot, tlb, until: Instant::now() + patience }
    }

    /// Returns the proof of being on the CPU. While it is there, the thread cannot sleep.
    pub fn pin(&self) -> Pinned<'_> {
        self.slot.pin()
    }
}

impl<S: Shootdown> MaySleep for Sleeper<'_, S> {
    fn pinned<R>(&mut self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        f(&self.slot.pin())
    }

    fn task(&self) -> usize {
        usize::from(self.slot.cpu().0)
    }

    fn sleep(&mut self, is_woken: &dyn Fn() -> bool) -> bool {
        while !is_woken() {
            if Instant::now() >= self.until {
                return false;
            }
            self.tlb.serve(&self.slot.pin());
            std::thread::sleep(Duration::from_micros(20));
        }
        true
    }
}
