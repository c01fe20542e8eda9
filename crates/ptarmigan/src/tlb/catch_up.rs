//! Leaves flushes to the CPUs that they concern, which make up for them when they come to it.
//!
//! # Protocol
//!
//! 1. A flush raises the generation, and names the active CPUs that it has not asked
//!    ([`Ticket::waiting`](super::Ticket::waiting)).
//! 2. The pages that it has unlinked get an epoch, and are parked. *Then* these CPUs are
//!    [told](Tlb::leave_to), by a flag of each.
//! 3. A CPU that finds its flag set takes it back, *then* reads the epoch, *then* forgets
//!    everything it knows of user space, and notes that it has been clean at this epoch. The epoch
//!    is that of step 2 or a later one, as the flag was set after it.
//! 4. The pages are used again when each of the CPUs has been clean at their epoch.
//!
//! Any other flush of the space that asks such a CPU finds it two generations behind, so that it
//! forgets the whole space. A CPU that loads another root, or the same one anew, has forgotten
//! everything as well.
//!
//! ```text
//!  flush                              CPU 1, at its next tick
//!  raise the generation
//!  park the pages at epoch 8
//!  leave_to(1): owes = true  ──────>  settles: owes = false
//!  (returns, has not waited)          now = 8
//!                                     forget user space
//!  pages may go              <──────  cleaned(8)
//! ```
//!
//! # Why
//!
//! An interrupt costs the other CPU some thousands of cycles, and the flush waits for the slowest
//! one. A program that unmaps often pays that at each call, although it never uses the addresses
//! again. One flag stands for any number of flushes, so that a CPU makes up for all of them at
//! once. The price is memory: unlinked pages must be parked until the last tick.
use super::error::TlbRefusal;
use super::hardware::Shootdown;
use super::readers::Epoch;
use super::request::Invalidation;
use super::scope::Scope;
use super::shootdown::can_defer;
use super::space::SpaceTlb;
use super::state::Tlb;
use crate::cpu::{CpuId, CpuSet, Pinned};

impl<S: Shootdown> Tlb<S> {
    /// Tells `cpus` that a flush is left to them, whose pages have got their epoch.
    pub(crate) fn leave_to(&self, pin: &Pinned<'_>, cpus: &CpuSet) {
        self.tally(pin).deferred.add(cpus.len());
        for cpu in cpus.iter() {
            self.mailboxes.leave_to(cpu);
        }
    }

    /// Makes up for the flushes that other CPUs have left to this one; costs a load if there are
    /// none. A kernel calls it at each tick of its timer on each CPU, idle ones included, with the
    /// space that the CPU runs in: pages wait for it no longer than that. Without the space, the
    /// CPU forgets as much, and the next flush that it is asked for is one of everything.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] for a pin or a space of another machine, and in the middle of a switch or a
    /// flush of this CPU; it owes the flushes still.
    #[inline]
    pub fn catch_up(&self, pin: &Pinned<'_>, space: Option<&SpaceTlb>) -> Result<(), TlbRefusal> {
        if const { can_defer::<S>() } && self.mailboxes.owes(pin.cpu()) {
            self.accept(pin)?;
            return self.make_up(pin, space);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn make_up(&self, pin: &Pinned<'_>, space: Option<&SpaceTlb>) -> Result<(), TlbRefusal> {
        if let Some(space) = space {
            self.machine.accept(space.machine())?;
        }
        let mut loaded = self.own(pin)?;
        let undone = Undone { tlb: self, cpu: pin.cpu() };
        self.mailboxes.settles(pin.cpu());
        let now = self.readers.now();
        match loaded.space {
            None => self.readers.cleaned(pin.cpu(), now),
            Some(id) if loaded.lazy => self.unload(pin, &mut loaded, id),
            Some(id) => {
                let space = space.filter(|space| space.id() == id);
                // Read before anything is forgotten: later changes are not covered.
                let reached = space.map(SpaceTlb::generation);
                if reached != Some(loaded.generation) {
                    let (asid, scope) = (loaded.asid, Scope::Full);
                    let what = Invalidation { space: id, asid, scope, tables_freed: true, reload_root: true };
                    self.hardware.invalidate(pin, &what);
                    self.tally(pin).caught_up.add(1);
                    loaded.generation = reached.unwrap_or(loaded.generation);
                }
                self.readers.cleaned(pin.cpu(), now);
            }
        }
        core::mem::forget(undone);
        self.leave(pin, loaded);
        Ok(())
    }

    /// Returns the present epoch.
    pub(crate) fn readers_present(&self) -> Epoch {
        self.readers.present()
    }

    /// Returns whether all of `cpus` have forgotten what they knew at `epoch`.
    pub(crate) fn are_clean(&self, cpus: &CpuSet, epoch: Epoch) -> bool {
        self.not_clean(cpus, epoch).is_empty()
    }
}

/// A CPU that makes up for flushes that were left to it. Dropping it, while unwinding, leaves them
/// to it again.
struct Undone<'t, S: Shootdown> {
    tlb: &'t Tlb<S>,
    cpu: CpuId,
}

impl<S: Shootdown> Drop for Undone<'_, S> {
    #[cold]
    fn drop(&mut self) {
        self.tlb.mailboxes.leave_to(self.cpu);
    }
}
