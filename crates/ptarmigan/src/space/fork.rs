//! Fork: a copy of a space whose private pages are shared until one side writes.
//!
//! # Protocol
//!
//! ```text
//!  parent   entry RW ── write-protected ──> entry RO ─┐         ┌─ write: last user, in place
//!                       one flush at the end          ├─ frame ─┤
//!  child                entry copied ─────> entry RO ─┘ refs: 2 └─ write: copied to a new frame
//! ```
//!
//! 1. The areas are copied first, as that can fail.
//! 2. For each area with private pages, its leaf entries are write-protected in the parent and
//!    copied to the child. Each copy takes a reference to its frame.
//! 3. One flush at the end takes write access from other CPUs that run in the parent.
//! 4. Areas that fork does not pass on are taken out of the child.
//!
//! # Why
//!
//! Copying entries now and pages later is cheaper, because most children call `execve`, and write
//! to few pages before. Pages of files are not copied: faults find them again, and their tables
//! would cost more than they save. The parent must be flushed before the call returns: otherwise
//! one of its threads could write to a page that the child already shares.
//!
//! If memory runs out, the child is ended as any space is. The parent keeps its write protection,
//! so that its next write to such a page faults once more and finds itself the only user.
use super::SpaceMachine;
use super::area::{Area, AreaFlags};
use super::areas::AreaError;
use super::state::{LooseAreas, Space, SpaceMut, State, Unfinished};
use super::unmapping::Left;
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
        let copied = LooseAreas { on, areas: self.state.areas.copy(on)? };
        let mut tables = Tables::new(on, AllocFlags::NORMAL)?;
        tables.count_large();
        let areas = copied.keep();
        let State { heap, stack_limit, tag, large, empty_tables, unmapping, .. } = *self.state;
        let (recent, left) = (Default::default(), Left::none());
        let state =
            State { tables, areas, recent, heap, stack_limit, tag, large, empty_tables, unmapping, left };
        let mut child = Unfinished::new(on, Space { state, tlb: on.tlb().new_space() });
        let mut result = Ok(());
        let mut left_out = false;
        {
            let copies = &mut child.edit().state.tables;
            let mut gather = self.gather();
            let State { tables, areas, .. } = &mut *self.state;
            areas.each(on, Tables::<F>::USER, |area| {
                left_out |= area.flags.has(AreaFlags::NO_FORK);
                if result.is_err() || !area.is_copied() || area.flags.has(AreaFlags::NO_FORK) {
                    return;
                }
                let shared = area.flags.has(AreaFlags::SHARED);
                let share = |frames: &Frames, level, raw| {
                    if F::is_special(level, raw) {
                        return;
                    }
                    if level > Level::PTE {
                        on.data().large(frames, F::frame(level, raw)).share();
                    } else {
                        // SAFETY: 1. the entry holds a reference to the frame, and stays: the
                        // caller has the space for itself. The new reference belongs to the copy of
                        // the entry.
                        unsafe { DataFrames::share_raw(frames, F::frame(Level::PTE, raw)) };
                    }
                };
                result = tables.copy(copies, area.range(), &mut gather, !shared, share);
            });
        }
        result?;
        if left_out {
            child.edit().drop_not_forked()?;
        }
        Ok(child.finish())
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
