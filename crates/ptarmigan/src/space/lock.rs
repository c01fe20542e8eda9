//! The reader-writer lock of a shared space.
//!
//! Readers are faults: many, short, on all CPUs at once. So a reader writes nothing that another
//! CPU writes: it notes in its own CPU's [cell](crate::tlb::Readers) that it reads this space, and
//! looks at the writer's flag. A writer sets the flag and waits until no cell says so any more.
//! Each does its store first and its load then, in one total order: one of them sees the other.
use crate::cpu::{CpuId, CpuMask, Pinned, WrongMachine};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::tlb::{Reading, Shootdown, SpaceId, Tlb, TlbRefusal};
use core::fmt;

/// Why a shared space could not be taken exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// The space is of another machine.
    WrongMachine(WrongMachine),
    /// This CPU is in the middle of a fault or another read of the space: it would wait for itself.
    /// Code that is called back by a fault, and interrupt handlers, cannot take the space that they
    /// have interrupted.
    Reading(CpuId),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::WrongMachine(e) => e.fmt(f),
            LockError::Reading(cpu) => {
                write!(
                    f,
                    "CPU {} is in the middle of reading the space; take it when the read is over",
                    cpu.0
                )
            }
        }
    }
}

impl core::error::Error for LockError {}

impl From<WrongMachine> for LockError {
    fn from(e: WrongMachine) -> Self {
        LockError::WrongMachine(e)
    }
}

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
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] for a pin of another machine.
    #[inline(always)]
    pub fn read<'a, S: Shootdown>(
        &self,
        tlb: &'a Tlb<S>,
        pin: &'a Pinned<'_>,
        space: SpaceId,
    ) -> Result<Reading<'a>, TlbRefusal> {
        if !self.readers.has(pin.cpu()) {
            self.readers.set(pin.cpu());
        }
        loop {
            let reading = tlb.readers().enter(pin, space)?;
            if !self.writer.load(Ordering::SeqCst) {
                return Ok(reading);
            }
            drop(reading);
            self.wait_for_writer(tlb, pin);
        }
    }

    #[cold]
    fn wait_for_writer<S: Shootdown>(&self, tlb: &Tlb<S>, pin: &Pinned<'_>) {
        tlb.wait_until(pin, || !self.writer.load(Ordering::Relaxed));
    }

    /// Waits until nobody else is at work.
    ///
    /// # Errors
    ///
    /// [`LockError::Reading`] if this CPU is.
    pub fn write<S: Shootdown>(
        &self,
        tlb: &Tlb<S>,
        pin: &Pinned<'_>,
        space: SpaceId,
    ) -> Result<Writing<'_>, LockError> {
        if tlb.readers().is_reading(pin.cpu(), space, None) {
            return Err(LockError::Reading(pin.cpu()));
        }
        while self.writer.swap(true, Ordering::SeqCst) {
            self.wait_for_writer(tlb, pin);
        }
        // From here on the lock is given back also if a wait panics.
        let writing = Writing { lock: self };
        for cpu in self.readers.snapshot().except(pin.cpu()).iter() {
            tlb.wait_until(pin, || !tlb.readers().is_reading(cpu, space, None));
        }
        Ok(writing)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.lock.writer.store(false, Ordering::SeqCst);
    }
}
