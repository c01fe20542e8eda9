//! The kernel's half, which all CPUs share whatever space they have loaded.
use super::error::TlbRefusal;
use super::hardware::Shootdown;
use super::request::{NewEntry, Request};
use super::runs::Runs;
use super::scope::Scope;
use super::state::Tlb;
use crate::cpu::{CpuId, CpuSet, Pinned};

impl<S: Shootdown> Tlb<S> {
    /// Has all CPUs forget `stale` pages of the kernel's half, idle and lazy CPUs too: by
    /// broadcast, or by asking each. The [cost model](super::TlbConfig::costs) decides how; nothing
    /// stale is nothing to do.
    ///
    /// To be called after the entries have been changed, and before what they mapped, or the tables
    /// they were in, is used for anything else.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] for a pin of another machine, and in the middle of a switch or another flush;
    /// nothing has been forgotten then.
    pub fn flush_kernel(&self, pin: &Pinned<'_>, stale: &Runs) -> Result<(), TlbRefusal> {
        self.flush_kernel_hashed(pin, stale, 0)
    }

    /// As [`flush_kernel`](Self::flush_kernel); `hashed` of the stale pages were put into the hash
    /// table, where there is one.
    pub(crate) fn flush_kernel_hashed(
        &self,
        pin: &Pinned<'_>,
        stale: &Runs,
        hashed: u32,
    ) -> Result<(), TlbRefusal> {
        self.accept(pin)?;
        if stale.is_empty() {
            return Ok(());
        }
        let loaded = self.own(pin)?;
        let mut scope = Scope::Full;
        self.plan_into(pin, stale, hashed, &mut scope);
        self.tally(pin).kernel.add(1);
        if S::BROADCASTS {
            self.hardware.invalidate_kernel(pin, &scope);
            drop(loaded);
            self.serve(pin);
            return Ok(());
        }
        let all = (0..self.config.cpus).fold(CpuSet::default(), |all, cpu| all.with(CpuId(cpu as u16)));
        // SAFETY: 1. it points to nothing.
        unsafe { self.shoot(pin, loaded, &all, &Request::Kernel(scope)) }
    }

    /// Plans a flush into `scope`, which is [`Scope::Full`], and counts the stale pages that were
    /// put into the hash table. The machine takes these out one by one, by whatever plan covers
    /// them; the others cost it a search each.
    #[inline(always)]
    pub(super) fn plan_into(&self, pin: &Pinned<'_>, stale: &Runs, hashed: u32, scope: &mut Scope) {
        if const { !S::WALKS_TABLES } {
            self.tally(pin).hashed.add(hashed as usize);
        }
        self.config.costs.plan_into(stale, scope);
    }

    /// Returns whether this CPU could flush now: what is refused in the middle of a switch or of
    /// another flush is refused until the interrupted code has finished it.
    ///
    /// # Errors
    ///
    /// As for [`flush_kernel`](Self::flush_kernel).
    pub(crate) fn may_flush(&self, pin: &Pinned<'_>) -> Result<(), TlbRefusal> {
        self.accept(pin)?;
        self.own(pin)?;
        // Its flush waits for answers, and lets the CPU serve others meanwhile.
        if self.mailboxes.is_asking(pin.cpu()) {
            return Err(TlbRefusal::Busy(pin.cpu()));
        }
        Ok(())
    }

    /// Tells the machine that an entry has become valid that was not, if it
    /// [needs](super::Mmu::NEEDS_ENTRY_VALID) to be told. Called once the entry can be walked to.
    #[inline(always)]
    pub fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        if S::NEEDS_ENTRY_VALID {
            self.hardware.entry_became_valid(pin, entry);
        }
    }
}
