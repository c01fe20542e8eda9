//! Flushes the kernel's half, which all CPUs share whatever space they have loaded.
use super::error::TlbRefusal;
use super::hardware::Shootdown;
use super::plan::{Facts, Plan, SlotSet};
use super::request::{NewEntry, Request};
use super::runs::Runs;
use super::scope::Scope;
use super::space::SpaceTlb;
use super::state::Tlb;
use crate::cpu::{CpuId, CpuSet, Pinned};
use core::ptr::NonNull;

impl<S: Shootdown> Tlb<S> {
    /// Has all CPUs forget `stale` pages of the kernel's half, idle and lazy CPUs too: by
    /// broadcast, or by asking each. The [cost model](super::TlbConfig::costs) decides how; an
    /// empty set needs no flush. A set in which pages have several sizes says so
    /// ([`Runs::mix`]).
    ///
    /// The caller must call this after it has changed the entries, and before it reuses the memory
    /// that they mapped. If tables go as well, see
    /// [`flush_kernel_tables`](Self::flush_kernel_tables).
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] for a pin of another machine, and in the middle of a switch or another flush;
    /// no translation has been forgotten then.
    pub fn flush_kernel(&self, pin: &Pinned<'_>, stale: &Runs) -> Result<(), TlbRefusal> {
        self.flush_kernel_with(pin, stale, &Facts::UNKNOWN)
    }

    /// As [`flush_kernel`](Self::flush_kernel), with further facts about the pages. How many CPUs
    /// are asked is known here: the fact of the caller is not looked at.
    ///
    /// # Errors
    ///
    /// As for [`flush_kernel`](Self::flush_kernel).
    pub fn flush_kernel_with(&self, pin: &Pinned<'_>, stale: &Runs, facts: &Facts) -> Result<(), TlbRefusal> {
        self.flush_kernel_all(pin, stale, facts, false)
    }

    /// Has all CPUs forget `stale` pages of the kernel's half, and links of tables of it that have
    /// been cut. `stale` has an address of each of these tables. Unless invalidations by address
    /// drop links ([`Structures::Tagged`](super::Structures::Tagged)), everything goes that CPUs
    /// know of the kernel's half: under other numbers than the current one, they may know the links
    /// too.
    ///
    /// To be called after the links have been cut, and before the tables are used for anything
    /// else.
    ///
    /// # Errors
    ///
    /// As for [`flush_kernel`](Self::flush_kernel).
    pub fn flush_kernel_tables(&self, pin: &Pinned<'_>, stale: &Runs) -> Result<(), TlbRefusal> {
        // An address of a table is no page.
        let mut stale = *stale;
        stale.mix();
        self.flush_kernel_all(pin, &stale, &Facts::UNKNOWN, true)
    }

    fn flush_kernel_all(
        &self,
        pin: &Pinned<'_>,
        stale: &Runs,
        facts: &Facts,
        tables_freed: bool,
    ) -> Result<(), TlbRefusal> {
        self.accept(pin)?;
        if stale.is_empty() {
            return Ok(());
        }
        let loaded = self.own(pin)?;
        let facts = Facts { asked: self.asked_by_kernel(), ..*facts };
        let scope = if tables_freed && S::WALKS_TABLES && !S::STRUCTURES.is_tagged() {
            Scope::Full
        } else {
            self.config.costs.plan_with(stale, &facts)
        };
        self.tally_hashed(pin, &facts);
        self.tally(pin).count_kernel(match scope {
            Scope::Page { .. } => Plan::Pages,
            Scope::Range { .. } => Plan::Window,
            Scope::Runs(_) => Plan::Runs,
            Scope::Full => Plan::Full,
        });
        if S::BROADCASTS {
            self.hardware.invalidate_kernel(pin, &scope);
            self.leave(pin, loaded);
            return Ok(());
        }
        // SAFETY: 1. it holds no pointer.
        unsafe { self.shoot(pin, loaded, &self.all_cpus(), &Request::Kernel(scope)) }
    }

    /// Has all CPUs forget `stale` slots of a window in the kernel's half, as
    /// [`flush_kernel_with`](Self::flush_kernel_with) does with pages: exactly these, if the
    /// [cost model](super::TlbConfig::costs) does not find that more is cheaper (REQ-24). Other
    /// CPUs are asked once, in how many [scopes](SlotSet::each_scope) it may be.
    ///
    /// # Errors
    ///
    /// As for [`flush_kernel`](Self::flush_kernel).
    pub fn flush_kernel_slots(
        &self,
        pin: &Pinned<'_>,
        stale: &SlotSet,
        facts: &Facts,
    ) -> Result<(), TlbRefusal> {
        const { assert!(S::HAS_SLOTS, "the machine says that it has no slots") };
        self.accept(pin)?;
        if stale.is_empty() {
            return Ok(());
        }
        let loaded = self.own(pin)?;
        let facts = Facts { asked: self.asked_by_kernel(), ..*facts };
        let plan = match self.config.slots {
            Some(plan) if !stale.is_everything() => plan,
            _ => self.config.costs.plan_slots(stale, &facts),
        };
        self.tally_hashed(pin, &facts);
        self.tally(pin).count_kernel(plan);
        if S::BROADCASTS {
            self.forget_slots(pin, stale, plan);
            self.leave(pin, loaded);
            return Ok(());
        }
        let request = Request::KernelSlots { slots: NonNull::from(stale), plan };
        // SAFETY: 1. `stale` is borrowed for longer than this call.
        unsafe { self.shoot(pin, loaded, &self.all_cpus(), &request) }
    }

    /// Does this CPU's part of a plan, or everybody's if the machine broadcasts. Kept apart: a
    /// flush of a space needs no stack for it.
    #[cold]
    #[inline(never)]
    pub(super) fn forget_slots(&self, pin: &Pinned<'_>, slots: &SlotSet, plan: Plan) {
        slots.each_scope(plan, |scope| self.hardware.invalidate_kernel(pin, scope));
    }

    /// The CPUs that one is to ask, all but itself.
    fn asked_by_kernel(&self) -> u64 {
        if S::BROADCASTS { 0 } else { self.config.cpus.saturating_sub(1) as u64 }
    }

    fn all_cpus(&self) -> CpuSet {
        (0..self.config.cpus).fold(CpuSet::default(), |all, cpu| all.with(CpuId(cpu as u16)))
    }

    /// Has this CPU forget `stale` pages of the kernel's half that no other CPU has used. An empty
    /// set needs no flush.
    ///
    /// # Errors
    ///
    /// As for [`flush_kernel`](Self::flush_kernel).
    pub(crate) fn flush_own_kernel(&self, pin: &Pinned<'_>, stale: &Runs) -> Result<(), TlbRefusal> {
        if stale.is_empty() {
            return Ok(());
        }
        self.accept(pin)?;
        let loaded = self.own(pin)?;
        self.hardware.invalidate_kernel(pin, &self.config.costs.plan(stale));
        drop(loaded);
        // Requests that came in meanwhile were left to this call.
        self.serve(pin);
        Ok(())
    }

    /// As [`flush_own_kernel`](Self::flush_own_kernel), of one page of 2^`shift` bytes.
    ///
    /// # Errors
    ///
    /// As for [`flush_kernel`](Self::flush_kernel).
    #[inline]
    pub(crate) fn flush_own_page(&self, pin: &Pinned<'_>, page: u64, shift: u32) -> Result<(), TlbRefusal> {
        self.accept(pin)?;
        let loaded = self.own(pin)?;
        self.hardware.invalidate_kernel(pin, &self.config.costs.plan_page(page, shift));
        drop(loaded);
        // Requests that came in meanwhile were left to this call.
        self.serve(pin);
        Ok(())
    }

    /// Plans a flush into `scope`, which is [`Scope::Full`], and counts the stale pages that were
    /// put into the hash table. The machine takes these out one by one, by whatever plan covers
    /// them; the others cost it a search each.
    #[inline]
    pub(super) fn plan_into(&self, pin: &Pinned<'_>, stale: &Runs, scope: &mut Scope) {
        if const { S::WALKS_TABLES } {
            self.config.costs.plan_into(stale, &Facts::UNKNOWN, scope);
        } else {
            let facts = Facts { hashed: Some(stale.hashed() as u64), ..Facts::UNKNOWN };
            self.tally_hashed(pin, &facts);
            self.config.costs.plan_into(stale, &facts, scope);
        }
    }

    #[inline]
    fn tally_hashed(&self, pin: &Pinned<'_>, facts: &Facts) {
        if const { !S::WALKS_TABLES } {
            self.tally(pin).hashed.add(facts.hashed.unwrap_or(0) as usize);
        }
    }

    /// Returns whether this CPU could flush now: a call that is refused in the middle of a switch
    /// or of another flush is refused until the interrupted code has finished it.
    ///
    /// # Errors
    ///
    /// As for [`flush_kernel`](Self::flush_kernel).
    pub fn may_flush(&self, pin: &Pinned<'_>) -> Result<(), TlbRefusal> {
        self.accept(pin)?;
        self.own(pin)?;
        self.may_ask(pin)
    }

    /// Refuses a CPU that waits for answers: its flush lets it serve others meanwhile.
    #[inline]
    pub(super) fn may_ask(&self, pin: &Pinned<'_>) -> Result<(), TlbRefusal> {
        if self.mailboxes.is_asking(pin.cpu()) { Err(TlbRefusal::Busy(pin.cpu())) } else { Ok(()) }
    }

    /// Tells the machine of entries that have become valid or allow more than they did, if it
    /// [needs](super::Mmu::NEEDS_ENTRY_VALID) to be told. Called once they can be walked to.
    ///
    /// # Safety
    ///
    /// 1. `pin` must be of the machine whose TLBs these are.
    /// 2. The entries must be there, as `entry` says, and map what they map by leave of their
    ///    owner.
    #[inline]
    pub unsafe fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        if S::NEEDS_ENTRY_VALID {
            self.hardware.entry_became_valid(pin, entry);
        }
    }

    /// Returns the number under which this CPU tags its translations of `space`: 0 without numbers.
    /// `None` if it does not have the space loaded, or is in the middle of a switch. Numbers that
    /// all CPUs share are the space's, loaded or not; `None` if it never had one.
    pub(crate) fn number_here(&self, pin: &Pinned<'_>, space: &SpaceTlb) -> Option<u16> {
        if S::BROADCASTS && S::HAS_ASIDS && self.config.asids != 0 {
            return Some(space.asid.number()).filter(|number| *number != 0);
        }
        let loaded = self.loaded.enter(pin)?;
        (loaded.space == Some(space.id())).then_some(loaded.asid)
    }
}
