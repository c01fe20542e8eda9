//! The flush, and the end of a gather.
use super::end::End;
use super::{Gather, Released, released, scrub_unhooked, settle};
use crate::cpu::CpuSet;
use crate::machine::Machine;
use crate::page::{FlushProof, Flushed, Unhooked};
use crate::parking::{DataChains, Waiting};
use crate::quicklist::Policy;
use crate::tlb::{Epoch, Mmu, Owed, Ticket, TlbRefusal};

impl<'a, M: Machine> Gather<'a, M> {
    /// Flushes the pages so far and gives them back; the operation goes on.
    pub(super) fn flush_between(&mut self) {
        let tables = self.flush_now(false, &mut None);
        self.give_back(tables);
    }

    /// Has every CPU forget the pages noted so far, before entries take the places of others
    /// ([`Format::needs_break`]).
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of another flush of this CPU. The gather is unchanged then.
    #[cold]
    pub(crate) fn flush_so_far(&mut self) -> Result<(), TlbRefusal> {
        self.on.tlb().may_flush(self.on.pin())?;
        self.flush_between();
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.has_changes()
            || !self.data.is_empty()
            || !self.tables.is_empty()
            || self.flags.reload_root
            || self.space.owes_flush()
    }

    /// Flushes the changes, once, on every CPU that may know them, and waits for all of them.
    pub fn flush(mut self) -> Released<'a, M> {
        let mut ticket = None;
        let tables = self.flush_now(false, &mut ticket);
        let data = core::mem::replace(&mut self.data, DataChains::new());
        Released { on: self.on, tables, data, ticket, ends: self.ends.is_told() }
    }

    /// Flushes, and puts the flush into `ticket`, which must be empty before. Returns the tables
    /// that may go back; the frames left in `data` may, too. Pages that would have to wait for lazy
    /// CPUs are left to them if it `may_park`, and are in neither.
    fn flush_now(&mut self, may_park: bool, ticket: &mut Option<Ticket>) -> Flushed {
        let on = self.on;
        // The noted pages stay until all CPUs have answered: if the policy or the flush unwinds,
        // the next flush makes up for it.
        self.flushing = true;
        let mut tables = core::mem::take(&mut self.tables);
        if !tables.is_empty() {
            if const { !<M::Shootdown as Mmu>::WALKS_TABLES }
                && on.policy().policy().takes_unhooked().is_some()
            {
                // The pages have been noted.
                scrub_unhooked(on, &tables);
            }
            // SAFETY: 1. the tables came from the machine's policy: trees take them there, and
            // others are promised to (`foreign_table`, 2.).
            unsafe { on.policy().unhooked(&mut tables) };
        }
        let is_flushed = match self.ends {
            End::SpaceFlushed(flushed) => {
                *ticket = flushed.copied();
                true
            }
            _ => false,
        };
        if !is_flushed && (self.has_work() || !tables.is_empty()) && !self.was_not_hashed() {
            let large = self.large;
            self.end_run();
            if self.largest > large {
                self.runs.mix();
            }
            self.flags.may_park = may_park;
            self.flags.may_defer &= may_park && self.can_be_deferred(&tables);
            let debt = self.space.debt();
            if debt.is_some() {
                self.note_everything();
                self.flags.may_defer = false;
            }
            // If pages were unlinked without an address, that is everything.
            let flushed = if large == 0 {
                on.tlb().flush(on.pin(), self.space, &self.runs, self.flags, ticket)
            } else {
                on.tlb().flush(on.pin(), self.space, &self.runs.coarser(large.into()), self.flags, ticket)
            };
            if flushed.is_err() {
                self.flushing = false;
                return self.refused();
            }
            // Until here another operation that finds the debt does not rely on this flush.
            if let Some(debt) = debt {
                self.space.settle_debt(debt);
            }
            self.scrub_stale();
        }
        self.flushing = false;
        self.nothing_stale();
        if let Some(ticket) = ticket
            && (const { <M::Shootdown as Mmu>::PARKS } && !ticket.waiting.is_empty()
                || const { <M::Shootdown as Mmu>::HAS_READERS }
                    && self.flags.tables_freed
                    && self.may_be_read)
        {
            return self.settle(tables, ticket, may_park);
        }
        // SAFETY: 1. If anything was unlinked, `Tlb::flush` has had every CPU that may know it
        // invalidate (contract of `Mmu`, points 1 and 3), lazy ones included as tables were freed
        // and the gather does not wait for lazy CPUs. CPUs that were not in the masks load the root
        // anew before they use the space, which drops old translations. At the end of a space the
        // flush came first: every CPU has left it for good.
        tables.flushed(unsafe { FlushProof::claim() })
    }

    /// Parks pages that lazy CPUs and readers may still know, or waits for these. Returns the
    /// tables that may go back at once, and leaves the data frames that may in `data`.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, tables: Unhooked, ticket: &Ticket, may_park: bool) -> Flushed {
        let on = self.on;
        let data = core::mem::replace(&mut self.data, DataChains::new());
        if self.may_be_read && on.tlb().cells().is_reading(on.cpu(), self.space.id(), None) {
            // This CPU reads the tables itself, and cannot wait for that.
            return Flushed::default();
        }
        let waiting = Waiting::new(tables, data, ticket);
        // Lazy CPUs too: one that runs in the space again by now would wait for nothing.
        let left_to = if self.flags.may_defer { waiting.lazy } else { CpuSet::default() };
        let (tables, data) = settle::settle(on, waiting, &left_to, may_park);
        self.data = data;
        tables
    }

    /// Gives back the pages of a flush.
    fn give_back(&mut self, tables: Flushed) {
        // Taken out first: if this unwinds, no page is given back twice.
        let data = core::mem::replace(&mut self.data, DataChains::new());
        released::give_back(self.on, tables, &data);
    }

    /// Gives up pages that cannot be flushed now: the gather was opened before a flush of this CPU,
    /// and ends in the middle of it. Pages that TLBs may know are never handed out again, they are
    /// leaked on purpose; and the next flush of the space is one of everything.
    #[cold]
    fn refused(&mut self) -> Flushed {
        self.space.owe_flush();
        self.nothing_stale();
        self.data = DataChains::new();
        Flushed::default()
    }

    /// Flushes and gives everything back, or parks it until lazy CPUs have let go of the space. So
    /// does the end of its scope, which does not move it.
    #[inline]
    pub fn finish(self) {
        drop(self);
    }

    /// As [`finish`](Self::finish), but the flush may be left to the other CPUs that run in the
    /// space: until they come to it, programs may use the pages on them as before. `note` is told
    /// the CPUs that may still know the pages at some moment, and the moment. Until they are
    /// [clean](crate::tlb::Tlb::are_clean), no other page may be mapped at the addresses.
    ///
    /// All stale pages that an entry showed wait in the gather: frames that it does not hold may be
    /// used again at once.
    #[cold]
    #[inline(never)]
    pub(crate) fn finish_later(&mut self, note: impl FnOnce(&CpuSet, Epoch)) {
        if self.flushing || self.is_unknown() || !self.has_work() {
            return;
        }
        self.flags.may_defer = true;
        let mut ticket = None;
        // If code of the machine unwinds after pages were parked, nobody would know the addresses.
        let owed = Owed::of(self.space);
        Repeat(self).0.flush_rest_into(&mut ticket);
        core::mem::forget(owed);
        if let Some(Ticket { waiting, .. }) = &ticket
            && !waiting.is_empty()
        {
            note(waiting, self.on.tlb().readers_present());
        }
    }

    /// Returns whether the flush may be left to others: there are pages to be parked, as an empty
    /// chain would not count against the bound of parked frames, and the policy gets no table
    /// before the flush.
    fn can_be_deferred(&self, tables: &Unhooked) -> bool {
        !(tables.is_empty() && self.data.is_empty()) && self.on.policy().policy().takes_unhooked().is_none()
    }

    /// Gives everything back at the end of a space, of a gather that [is
    /// unknown](Self::is_unknown).
    #[inline(never)]
    fn give_unknown(&mut self) {
        let tables = core::mem::take(&mut self.tables);
        // SAFETY: 1. every CPU has left the space for good, or none ever loaded it (`is_unknown`).
        self.give_back(tables.flushed(unsafe { FlushProof::claim() }));
        self.on.policy().gather_end();
        if settle::may_ever_park(self.on) {
            self.on.collect();
        }
    }

    /// Flushes and gives back or parks the rest. A call, so that the ticket is not on the stack
    /// while tables are gone through.
    #[inline(never)]
    fn flush_rest(&mut self) {
        self.flush_rest_into(&mut None);
    }

    #[inline]
    fn flush_rest_into(&mut self, ticket: &mut Option<Ticket>) {
        let may_park = settle::may_ever_park(self.on);
        let tables = self.flush_now(may_park, ticket);
        self.give_back(tables);
        if self.ends.is_told() && (ticket.is_some() || matches!(self.ends, End::SpaceFlushed(_))) {
            self.on.policy().gather_end();
        }
        if may_park {
            self.on.collect();
        }
    }
}

/// Leaves a flush that unwinds to the next one of the space, which is of everything then: the
/// entries have changed already, so a caller that tries again would find no work.
struct Repeat<'g, 'a, M: Machine>(&'g mut Gather<'a, M>);

impl<M: Machine> Drop for Repeat<'_, '_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.flushing {
            // It has unwound.
            let _ = self.0.refused();
        }
    }
}

impl<M: Machine> Drop for Gather<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.flushing {
            let _ = self.refused();
        } else if cfg!(not(feature = "small")) && self.is_unknown() {
            self.give_unknown();
        } else if self.has_work() || matches!(self.ends, End::SpaceFlushed(_)) {
            Repeat(self).0.flush_rest();
        }
    }
}
