//! The reader-writer lock of a shared space.
//!
//! ```text
//!  reader, each fault                       writer, mmap and munmap
//!  cell of this CPU: reads the space ─┐ ┌─ writer = CPU + 1
//!                                      ╳
//!  look at the writer <───────────────┘ └─> look at the cells of all CPUs that ever read
//!  writer: leave the cell, wait             a reader: wait until it has ended
//! ```
//!
//! # Why
//!
//! Readers are faults: many, short, on all CPUs at once. A count of readers would be one line that
//! every fault on every CPU writes, so a reader must write no line that another CPU writes: it
//! notes in its own CPU's [cell](crate::tlb::Readers) that it reads this space, and looks at the
//! writer's flag. A writer sets the flag and waits until no cell says so any more. Each does its
//! store first and its load then, in one total order: one of them sees the other. The price is the
//! writer's: it looks at a cell for each CPU that has ever read.
use super::fault::FaultError;
use crate::cpu::{CpuId, CpuMask, Pinned, WrongMachine};
use crate::error::error;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::tlb::{Reading, Shootdown, SpaceId, Tlb};
use core::fmt;

/// Why a shared space could not be taken exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// The space is of another machine.
    WrongMachine(WrongMachine),
    /// This CPU is in the middle of a fault or another read of tables, of whatever space: it would
    /// wait for itself, or for a CPU that waits for it. Code that is called back by a fault, and
    /// interrupt handlers, cannot take a space.
    Reading(CpuId),
    /// This CPU has the space for itself already: it would wait for itself.
    Writing(CpuId),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::WrongMachine(e) => e.fmt(f),
            LockError::Reading(cpu) => {
                write!(
                    f,
                    "CPU {} is in the middle of reading tables; take the space when the read is over",
                    cpu.0
                )
            }
            LockError::Writing(cpu) => write!(f, "CPU {} has the space for itself already", cpu.0),
        }
    }
}

error!(LockError: WrongMachine => WrongMachine);

pub(super) struct SpaceLock {
    /// The CPU of the writer and 1, or [`FREE`].
    writer: AtomicU32,
    /// CPUs that have ever read: whose cells a writer looks at.
    readers: CpuMask,
}

/// Value of `writer` in an unlocked space.
const FREE: u32 = 0;

/// Exclusive use; ends when dropped.
pub(super) struct Writing<'a> {
    lock: &'a SpaceLock,
}

impl SpaceLock {
    pub fn new() -> Self {
        SpaceLock { writer: AtomicU32::new(FREE), readers: CpuMask::default() }
    }

    /// Waits until no writer is at work, and keeps writers out.
    ///
    /// # Errors
    ///
    /// [`FaultError`] for a pin of another machine, and if this CPU is the writer.
    #[inline]
    pub fn read<'a, S: Shootdown>(
        &self,
        tlb: &'a Tlb<S>,
        pin: &'a Pinned<'_>,
        space: SpaceId,
    ) -> Result<Reading<'a>, FaultError> {
        if !self.readers.has(pin.cpu()) {
            self.readers.set(pin.cpu());
        }
        loop {
            let reading = tlb.readers().enter(pin, space)?;
            if self.writer.load(Ordering::SeqCst) == FREE {
                return Ok(reading);
            }
            drop(reading);
            self.wait_for_writer(tlb, pin).map_err(FaultError::Locked)?;
        }
    }

    /// Waits for the writer, unless that is this CPU.
    #[cold]
    fn wait_for_writer<S: Shootdown>(&self, tlb: &Tlb<S>, pin: &Pinned<'_>) -> Result<(), CpuId> {
        if self.writer.load(Ordering::Relaxed) == Self::writer_on(pin) {
            return Err(pin.cpu());
        }
        tlb.wait_until(pin, || self.writer.load(Ordering::Relaxed) == FREE);
        Ok(())
    }

    fn writer_on(pin: &Pinned<'_>) -> u32 {
        u32::from(pin.cpu().0) + 1
    }

    /// Waits until nobody else is at work.
    ///
    /// # Errors
    ///
    /// [`LockError::Reading`] and [`LockError::Writing`] if this CPU is.
    pub fn write<S: Shootdown>(
        &self,
        tlb: &Tlb<S>,
        pin: &Pinned<'_>,
        space: SpaceId,
    ) -> Result<Writing<'_>, LockError> {
        if tlb.readers().reads_any(pin.cpu()) {
            return Err(LockError::Reading(pin.cpu()));
        }
        let me = Self::writer_on(pin);
        while self.writer.compare_exchange(FREE, me, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            self.wait_for_writer(tlb, pin).map_err(LockError::Writing)?;
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
        self.lock.writer.store(FREE, Ordering::SeqCst);
    }
}
