//! Decides when other CPUs forget pages that a program unmaps, and keeps the addresses free until
//! they have.
//!
//! # Deferred unmapping
//!
//! `munmap` of private anonymous memory need not interrupt the other CPUs that run in the space.
//! Its frames and tables are parked, and each of these CPUs forgets everything when it comes to it
//! ([`Tlb::catch_up`](crate::tlb::Tlb::catch_up)), at its next tick at the latest.
//!
//! 1. *No frame is used again before* all of these CPUs have forgotten it: it is parked, and counts
//!    against the bound of [`TlbConfig::park`](crate::tlb::TlbConfig::park). Beyond the bound, and
//!    for lack of memory, they are interrupted after all. References of frames are dropped then
//!    too, so that copy-on-write takes no frame for its own that another CPU may still write to.
//! 2. *No other page is mapped at the addresses before that*: [`Left`] has them, and a call that
//!    makes an area there interrupts the CPUs first. [`find_gap`](super::SpaceMut::find_gap) looks
//!    elsewhere.
//! 3. *All else is flushed at once.* Calls that take permissions away (`mprotect`, copy-on-write,
//!    fork) and calls after which the addresses show something else (`mmap` over an area, `mremap`,
//!    `madvise`) are not deferred: a program sees the difference, on another CPU, without a fault.
//!    Nor are shared pages, and those of objects, whose frames the space does not hold.
//!
//! The difference that a program can see: a thread on another CPU that uses memory which was
//! unmapped gets no signal until that CPU has caught up. It reads and writes what was there, which
//! no one else sees. POSIX wants a signal, so that this is an option, and off at first.
use crate::addr::VirtRange;
use crate::cpu::CpuSet;
use crate::machine::{Machine, On};
use crate::tlb::{Epoch, TlbRefusal};

/// When other CPUs forget pages of private anonymous memory that
/// [`munmap`](super::SpaceMut::munmap) takes away.
///
/// [`Deferred`](Self::Deferred) has an effect where CPUs are interrupted to forget something, and
/// frames may be parked ([`TlbConfig::park`](crate::tlb::TlbConfig::park)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmapping {
    /// As Linux: before the call returns.
    #[default]
    AtOnce,
    /// At their next [catch-up](crate::tlb::Tlb::catch_up). Until then, threads on these CPUs get
    /// no fault where the memory was.
    Deferred,
}

/// Addresses that other CPUs may still know pages of, although no area lies there.
pub(super) struct Left {
    range: VirtRange,
    cpus: CpuSet,
    /// The pages were unlinked before it; `None` if there are none.
    epoch: Option<Epoch>,
}

impl Left {
    /// None.
    pub fn none() -> Self {
        Left { range: VirtRange::fixed::<0, 0>(), cpus: CpuSet::default(), epoch: None }
    }

    /// Returns the addresses, if some CPU has not forgotten its pages yet.
    #[inline]
    pub fn range<M: Machine>(&self, on: On<'_, M>) -> Option<VirtRange> {
        self.epoch.and_then(|epoch| self.range_since(on, epoch))
    }

    #[cold]
    fn range_since<M: Machine>(&self, on: On<'_, M>, epoch: Epoch) -> Option<VirtRange> {
        (!on.tlb().are_clean(&self.cpus, epoch)).then_some(self.range)
    }

    /// Has all CPUs forget pages that were in `range`, before an area is made there.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of a switch or a flush of this CPU.
    #[inline]
    pub fn settle<M: Machine>(&mut self, on: On<'_, M>, range: VirtRange) -> Result<(), TlbRefusal> {
        match self.range(on) {
            Some(left) if left.start < range.end && range.start < left.end => self.settle_now(on),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_now<M: Machine>(&mut self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        let Left { cpus, epoch: Some(epoch), .. } = *self else { return Ok(()) };
        on.tlb().force(on.pin(), &on.tlb().not_clean(&cpus, epoch))?;
        *self = Left::none();
        on.collect();
        Ok(())
    }

    /// Adds addresses, which `cpus` may know until they are clean at `epoch`.
    pub fn add<M: Machine>(&mut self, on: On<'_, M>, range: VirtRange, cpus: &CpuSet, epoch: Epoch) {
        *self = match self.range(on) {
            None => Left { range, cpus: *cpus, epoch: Some(epoch) },
            Some(old) => {
                let range = VirtRange::ordered(old.start.min(range.start), old.end.max(range.end));
                Left { range, cpus: self.cpus.or(cpus), epoch: Some(epoch) }
            }
        };
    }
}
