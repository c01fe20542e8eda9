//! Prepares a space for `execve`, beside `mmap`: arguments on a temporary stack, which then moves.
use super::SpaceMachine;
use super::area::{Area, AreaFlags};
use super::areas::AreaError;
use super::state::{Space, SpaceMut, State, Unfinished, release};
use crate::addr::{VirtAddr, VirtRange};
use crate::format::{Access, Format};
use crate::gather::Gather;
use crate::machine::On;

impl<F: Format> Space<F> {
    /// The space of a program that is being loaded: empty but for a stack that ends at `stack_end`
    /// with `arg_pages` pages of arguments written to it. The old space is still there; the caller
    /// ends it afterwards.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; it has been removed then.
    pub fn exec<M: SpaceMachine>(
        on: On<'_, M>,
        stack_end: VirtAddr,
        arg_pages: u64,
    ) -> Result<Self, AreaError> {
        // On failure the space ends, which takes a flush.
        on.tlb().may_flush(on.pin())?;
        let mut space = Unfinished::new(on, Space::new(on)?);
        space.edit().write_arguments(stack_end.0, arg_pages.max(1))?;
        Ok(space.finish())
    }
}

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    fn write_arguments(&mut self, end: u64, pages: u64) -> Result<(), AreaError> {
        let bytes = pages.saturating_mul(1 << F::PAGE_SHIFT);
        let range = State::<F>::pages(VirtRange::ordered(end.saturating_sub(bytes), end))?;
        let flags = AreaFlags::READ.with(AreaFlags::WRITE).with(AreaFlags::GROWS_DOWN);
        self.state.areas.insert(self.on, Area::new(range, flags, 0))?;
        self.populate(range, Access::Write)
    }

    /// Moves the temporary stack down to its final place `range` (its top pages the arguments), and
    /// lets it have that size and the permissions in `flags`, whose other bits are ignored. Pages
    /// that the final place has no room for go, and tables that only the temporary place needed.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the stack is where it was then.
    pub fn move_stack(&mut self, range: VirtRange, flags: AreaFlags) -> Result<(), AreaError> {
        let on = self.on;
        let range = State::<F>::pages(range)?;
        let permissions = AreaFlags(flags.0 & AreaFlags::PERMISSIONS.0);
        let Some(stack) = self.state.areas.last_before(on, u64::MAX) else {
            return self.mmap(range, permissions.with(AreaFlags::GROWS_DOWN), 0);
        };
        if stack.flags.has(AreaFlags::PHYSICAL) {
            return Err(AreaError::Physical(range));
        }
        let old = stack.range();
        let in_place = old.end == range.end;
        if self.state.areas.last_before(on, old.start).is_some_and(|below| below.end > range.start)
            || (!in_place && !old.and(range).is_empty())
        {
            return Err(AreaError::Overlap(range));
        }
        self.may_flush()?;
        self.settle(range)?;
        let had = AreaFlags(stack.flags.0 & AreaFlags::PERMISSIONS.0);
        let flags = stack.flags.without(had).with(permissions).with(AreaFlags::GROWS_DOWN);
        // The object of the area, if it has one, moves with its end.
        let offset = stack.offset_at(old.end.wrapping_sub(range.len()));
        let offset = if stack.object == 0 { stack.offset } else { offset };
        let new = Area { start: range.start, end: range.end, offset, flags, ..stack };
        let mut gather = self.gather();
        if !in_place {
            let len = old.len().min(range.len());
            let from = VirtRange::ordered(old.end - len, old.end);
            if let Err(e) = self.state.tables.relocate(from, range.end - len, &mut gather) {
                // The pages at the new place have no area.
                self.unmap_pages(range, &mut gather);
                return Err(e.into());
            }
        }
        // The one area becomes the other: no area lies between them, so the order stays.
        self.state.areas.replace(on, old.start, new);
        let gone = if in_place { VirtRange::ordered(old.start, range.start.max(old.start)) } else { old };
        self.unmap_pages(gone, &mut gather);
        if had != permissions {
            self.protect_pages(range, permissions, AreaFlags::PERMISSIONS, &mut gather);
        }
        Ok(())
    }

    /// Clears the entries in `range`, where no area lies, and frees the tables that no area around
    /// it needs.
    fn unmap_pages(&mut self, range: VirtRange, gather: &mut Gather<'_, M>) {
        let free = self.state.beside_areas(self.on, range);
        self.state
            .tables
            .unmap_sizes(range, free, gather, |gather, level, _, raw| release::<F, M>(gather, level, raw));
    }
}
