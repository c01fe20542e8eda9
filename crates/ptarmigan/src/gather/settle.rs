//! Parking: a chain waits for CPUs which need not be disturbed, lazy ones, which drop their
//! translations by themselves when they run another space, CPUs to which the flush was left, and
//! readers that are done in a moment (REQ-33). Pages beyond the bound are flushed by force
//! (REQ-34).
//!
//! # Protocol
//!
//! ```text
//!  flush has ended ──> is_done? ── yes ──────────────────────────> pages go back
//!                         │ no
//!                         ├─ room in parking ──> parked ── done ──> pages go back, later
//!                         └─ no room ──> force lazy CPUs, wait ───> pages go back
//! ```
//!
//! A CPU that reads tables itself does not wait for readers, of whichever space: it parks pages
//! that they may have found, or leaks them on purpose.
//!
//! # Why
//!
//! A lazy CPU is idle, and an interrupt would wake it for a space that it may never run again. Its
//! pages cost memory until then, so the parked pages have a bound.
//!
//! A leak costs pages. The alternative is a deadlock: two CPUs that read each other's tables would
//! wait for each other for ever.
use super::released::give_back;
use crate::cpu::{CpuId, CpuSet, Pinned};
use crate::machine::{Machine, On};
use crate::page::{FlushProof, Flushed};
use crate::parking::{DataChains, Waiting};
use crate::tlb::{Mmu, Shootdown, Tlb};

/// Whether the machine parks chains at all.
#[inline(always)]
pub(super) fn may_ever_park<M: Machine>(on: On<'_, M>) -> bool {
    <M::Shootdown as Mmu>::PARKS && on.machine().parking().is_on()
}

/// Whether nobody that `waiting` waits for is left.
fn is_done<S: Shootdown>(tlb: &Tlb<S>, waiting: &Waiting) -> bool {
    waiting.epoch.is_none_or(|epoch| {
        tlb.not_clean(&waiting.lazy, epoch).is_empty()
            && !waiting.readers.iter().any(|cpu| tlb.cells().is_reading(cpu, waiting.space, Some(epoch)))
    })
}

/// Has lazy CPUs flushed or moved, and waits for readers.
fn wait<S: Shootdown>(tlb: &Tlb<S>, pin: &Pinned<'_>, waiting: Waiting) -> (Flushed, DataChains) {
    let Waiting { tables, data, space, lazy, readers, epoch, .. } = waiting;
    if let Some(epoch) = epoch {
        let lazy = tlb.not_clean(&lazy, epoch);
        if !lazy.is_empty() {
            tlb.count_forced(pin);
            if tlb.force(pin, &lazy).is_err() {
                // In the middle of another flush of this CPU: they let go by themselves.
                tlb.wait_until(pin, || tlb.not_clean(&lazy, epoch).is_empty());
            }
        }
        for cpu in readers.iter() {
            tlb.wait_until(pin, || !tlb.cells().is_reading(cpu, space, Some(epoch)));
        }
    }
    // SAFETY: 1. CPUs that had the space active were flushed by `Tlb::flush`; lazy ones, and those
    // that the flush was left to, have loaded another root or caught up since, or have just dropped
    // everything; readers that began before the tables were unlinked have ended.
    (tables.flushed(unsafe { FlushProof::claim() }), data)
}

/// Parks the waiting pages if it `may_park`, they can be parked and have to wait; else waits. Pages
/// for which this CPU cannot wait, as it reads tables itself, are parked in any case, or leaked.
/// `left_to` are the CPUs that the flush was left to: they are told if the pages are parked.
/// Returns the pages that are free at once.
#[cold]
pub(super) fn settle<M: Machine>(
    on: On<'_, M>,
    mut waiting: Waiting,
    left_to: &CpuSet,
    may_park: bool,
) -> (Flushed, DataChains) {
    let tlb = on.tlb();
    let epoch = tlb.cells().advance();
    waiting.epoch = Some(epoch);
    for cpu in (0..tlb.config().cpus).map(|cpu| CpuId(cpu as u16)) {
        if cpu != on.cpu() && tlb.cells().is_reading(cpu, waiting.space, Some(epoch)) {
            waiting.readers = waiting.readers.with(cpu);
        }
    }
    let must_not_wait = !waiting.readers.is_empty() && tlb.cells().reads_any(on.cpu());
    let may_park = may_park || (must_not_wait && may_ever_park(on));
    if <M::Shootdown as Mmu>::PARKS && may_park && !(waiting.lazy.is_empty() && waiting.readers.is_empty()) {
        match on.machine().parking().push(on.pin(), on.frames(), waiting) {
            None => {
                tlb.count_parked(on.pin());
                // After the epoch: whoever finds the flag has a later one.
                tlb.leave_to(on.pin(), left_to);
                return (Flushed::default(), DataChains::new());
            }
            Some(back) => waiting = back,
        }
    }
    if must_not_wait {
        return (Flushed::default(), DataChains::new());
    }
    wait(tlb, on.pin(), waiting)
}

impl<M: Machine> On<'_, M> {
    /// Gives back the chains that this CPU has parked and that wait for no CPU any more; returns
    /// how many frames.
    pub fn collect(self) -> u32 {
        self.unpark_if(false)
    }

    /// Gives back all chains that this CPU has parked, after interrupting the CPUs they wait for;
    /// returns how many frames. For lack of memory, and for a CPU that goes away. If this CPU reads
    /// tables itself, chains that wait for readers stay parked.
    pub fn unpark(self) -> u32 {
        self.unpark_if(true)
    }

    #[inline]
    fn unpark_if(self, force: bool) -> u32 {
        if !<M::Shootdown as Mmu>::PARKS || self.machine().parking().is_empty(self.pin()) {
            0
        } else {
            self.unpark_chains(force)
        }
    }

    /// Gives back chains that this CPU has parked. Apart from the check whether there are any:
    /// chains that are taken out lie on the stack.
    #[cold]
    #[inline(never)]
    fn unpark_chains(self, force: bool) -> u32 {
        let mut frames = 0;
        let tlb = self.tlb();
        // In the middle of a flush, as an interrupt handler may be, no CPU can be interrupted.
        let force = force && tlb.can_flush(self.pin());
        let reads = tlb.cells().reads_any(self.cpu());
        while let Some(waiting) = self.machine().parking().take(self.pin(), |waiting| {
            (force && (waiting.readers.is_empty() || !reads)) || is_done(tlb, waiting)
        }) {
            frames += waiting.frames;
            let (tables, data) = wait(tlb, self.pin(), waiting);
            give_back(self, tables, &data);
        }
        frames
    }

    /// Tells the policy that this CPU is idle, the moment for a bounded amount of trimming; and
    /// gives back the chains that this CPU has parked and that wait for no CPU any more. Makes up
    /// for flushes that were left to this CPU.
    pub fn idle(self) {
        // In the middle of a flush it makes up for them next time.
        let _ = self.tlb().catch_up(self.pin(), None);
        self.collect();
        self.policy().idle();
    }

    /// Gives back all that this CPU holds: parked chains, pages for tables, data frames. For a CPU
    /// that goes offline; for one that went without it, the code that took it down calls this with
    /// its pin.
    pub fn drain(self) {
        self.unpark();
        self.policy().drain();
        self.data().drain(self.frames(), self.pin());
    }
}
