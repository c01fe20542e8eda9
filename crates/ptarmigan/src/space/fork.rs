//! Fork: a copy of a space whose private pages are shared until one side writes.
use super::SpaceMachine;
use super::area::{Area, AreaFlags};
use super::areas::AreaError;
use super::state::{Space, SpaceMut, State};
use crate::format::Format;
use crate::frames::{AllocFlags, DataFrames, Frames};
use crate::page::Level;
use crate::table::Tables;

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    /// Makes a copy of the space. Tables are copied for areas that hold private pages (or are the
    /// kernel's own); the rest is filled again by faults, as Linux does it. Writable private pages
    /// are write-protected on both sides.
    ///
    /// # Errors
    ///
    /// [`AreaError::NoFrame`] and [`AreaError::Refused`]; there is no copy then, and this space is
    /// as it was but for pages that will fault once more when written.
    pub fn fork(&mut self) -> Result<Space<F>, AreaError> {
        let on = self.on;
        self.may_flush()?;
        let mut areas = self.state.areas.copy(on)?;
        let tables = match Tables::new(on, AllocFlags::NORMAL) {
            Ok(tables) => tables,
            Err(e) => {
                areas.clear(on);
                return Err(e.into());
            }
        };
        let State { heap, stack_limit, tag, .. } = *self.state;
        let state = State { tables, areas, recent: Default::default(), heap, stack_limit, tag };
        let mut child = Space { state, tlb: on.tlb().new_space() };
        let mut result = Ok(());
        let mut left_out = false;
        {
            let mut gather = self.gather();
            let State { tables, areas, .. } = &mut *self.state;
            areas.each(on, Tables::<F>::USER, |area| {
                left_out |= area.flags.has(AreaFlags::NO_FORK);
                if result.is_err() || !area.is_copied() || area.flags.has(AreaFlags::NO_FORK) {
                    return;
                }
                let shared = area.flags.has(AreaFlags::SHARED);
                let share = |frames: &Frames, raw| {
                    if !F::is_special(Level::PTE, raw) {
                        // SAFETY: 1. the entry holds a reference to the frame, and stays: the caller
                        // has the space for itself. The new reference belongs to the copy of the entry.
                        unsafe { DataFrames::share_raw(frames, F::frame(Level::PTE, raw)) };
                    }
                };
                result = tables.copy(&mut child.state.tables, area.range(), &mut gather, !shared, share);
            });
        }
        let done = match result {
            Err(e) => Err(e.into()),
            Ok(()) if left_out => SpaceMut { on, state: &mut child.state, tlb: &child.tlb }.drop_not_forked(),
            Ok(()) => Ok(()),
        };
        match done {
            Ok(()) => Ok(child),
            Err(e) => {
                child.end_checked(on);
                Err(e)
            }
        }
    }

    /// Takes areas that fork does not pass on out of a fresh copy.
    fn drop_not_forked(&mut self) -> Result<(), AreaError> {
        let mut at = 0;
        while let Some(area) = self.state.areas.at_or_after(self.on, at) {
            let Area { end, flags, .. } = area;
            if flags.has(AreaFlags::NO_FORK) {
                self.state.areas.remove_range(self.on, area.range(), |_| {})?;
            }
            at = end;
        }
        Ok(())
    }
}
