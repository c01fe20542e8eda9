//! Flushes one page, as copy-on-write does for each page that it copies.
use super::error::TlbRefusal;
use super::hardware::Shootdown;
use super::id::Generation;
use super::request::Invalidation;
use super::runs::Runs;
use super::scope::Scope;
use super::shootdown::{FlushFlags, RECALL};
use super::space::{Owed, SpaceTlb};
use super::state::{Loaded, Tlb};
use crate::cpu::{Guard, Pinned};

impl<S: Shootdown> Tlb<S> {
    /// Changes the entry of the page of 2^`shift` bytes at `page` of `space` by `change`, and has
    /// every CPU that may know the page forget it, as [`flush`](Self::flush) does; no table has
    /// been freed. If this CPU alone runs in the space, which is the usual case, it goes without
    /// the lists, masks and tickets of a flush.
    ///
    /// False if the flush could not be: the space owes one then, and also if it unwinds.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of another flush of this CPU; the entry has not been changed
    /// then.
    #[inline]
    pub(crate) fn change_page(
        &self,
        pin: &Pinned<'_>,
        space: &SpaceTlb,
        page: u64,
        shift: u32,
        change: impl FnOnce(),
    ) -> Result<bool, TlbRefusal> {
        self.accept(pin)?;
        self.machine.accept(space.machine())?;
        self.may_ask(pin)?;
        let mut loaded = self.own(pin)?;
        let owed = Owed::of(space);
        change();
        // Then the CPUs, as in `flush`.
        let generation = space.raise();
        if const { !S::BROADCASTS && S::WALKS_TABLES }
            && loaded.space == Some(space.id())
            && !loaded.lazy
            && loaded.generation.next() == generation
            && generation.0 & RECALL != 0
            && self.config.costs.names_one_page()
            && !space.is_active_elsewhere(pin.cpu())
        {
            let what = Invalidation {
                space: space.id(),
                asid: loaded.asid,
                scope: Scope::Page { at: page, shift },
                tables_freed: false,
                reload_root: false,
            };
            let tally = self.tally(pin);
            tally.page.add(1);
            tally.pages.add(1);
            self.hardware.invalidate(pin, &what);
            loaded.generation = generation;
            self.leave(pin, loaded);
        } else {
            let flushed = self.flush_page_raised(pin, (space, generation), loaded, page, shift);
            debug_assert!(flushed.is_ok(), "asked above");
            if flushed.is_err() {
                return Ok(false);
            }
        }
        core::mem::forget(owed);
        Ok(true)
    }

    /// Flushes a page as any number of pages.
    #[cold]
    #[inline(never)]
    fn flush_page_raised(
        &self,
        pin: &Pinned<'_>,
        raised: (&SpaceTlb, Generation),
        loaded: Guard<'_, Loaded>,
        page: u64,
        shift: u32,
    ) -> Result<(), TlbRefusal> {
        let mut stale = Runs::new(shift);
        stale.insert(page, page.wrapping_add(1 << shift));
        self.flush_raised(pin, raised, loaded, &stale, FlushFlags::default(), &mut None)
    }
}
