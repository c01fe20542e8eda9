//! The reader-writer lock of a shared space.
//!
//! Readers are faults: many, short, on all CPUs at once. So a reader writes nothing that another CPU writes: it notes in
//! its own CPU's [cell](crate::tlb::Readers) that it reads this space, and looks at the writer's flag. A writer sets
//! the flag and waits until no cell says so any more. Each does its store first and its load then, in one total order:
//! one of them sees the other.
use crate::cpu::{CpuMask, Pinned};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tlb::{Reading, Shootdown, SpaceId, Tlb};

pub(super) struct SpaceLock {
    writer: AtomicBool,
    /// CPUs that have ever read: whose cells a writer looks at.
    readers: CpuMask,
}

/// Exclusive use; ends when dropped.
pub(super) struct Writing<'a> {
    lock: &'a SpaceLock,
}

impl SpaceLock {
    pub fn new() -> Self {
        SpaceLock { writer: AtomicBool::new(false), readers: CpuMask::new() }
    }

    /// Waits until no writer is at work, and keeps writers out.
    #[inline(always)]
    pub fn read<'a, S: Shootdown>(
        &self,
        tlb: &'a Tlb<S>,
        pin: &'a Pinned<'_>,
        space: SpaceId,
    ) -> Reading<'a> {
        if !self.readers.has(pin.cpu()) {
            self.readers.set(pin.cpu());
        }
        loop {
            let reading = tlb.readers().enter(pin, space).unwrap_or_else(|refused| panic!("{refused}"));
            if !self.writer.load(Ordering::SeqCst) {
                return reading;
            }
            drop(reading);
            self.wait_for_writer(tlb, pin);
        }
    }

    #[cold]
    fn wait_for_writer<S: Shootdown>(&self, tlb: &Tlb<S>, pin: &Pinned<'_>) {
        let mut turn = 0u32;
        while self.writer.load(Ordering::Relaxed) {
            turn = turn.wrapping_add(1);
            tlb.pause(pin, turn);
        }
    }

    /// Waits until nobody else is at work.
    pub fn write<S: Shootdown>(&self, tlb: &Tlb<S>, pin: &Pinned<'_>, space: SpaceId) -> Writing<'_> {
        while self.writer.swap(true, Ordering::SeqCst) {
            self.wait_for_writer(tlb, pin);
        }
        for cpu in self.readers.snapshot().except(pin.cpu()).iter() {
            let mut turn = 0u32;
            while tlb.readers().is_reading(cpu, space, None) {
                turn = turn.wrapping_add(1);
                tlb.pause(pin, turn);
            }
        }
        Writing { lock: self }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.lock.writer.store(false, Ordering::SeqCst);
    }
}
