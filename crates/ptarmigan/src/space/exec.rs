//! What `execve` does to a space besides `mmap`: arguments on a temporary stack, which then moves.
use super::SpaceMachine;
use super::area::{Area, AreaFlags};
use super::areas::AreaError;
use super::state::{Space, SpaceMut, State, release};
use crate::addr::{VirtAddr, VirtRange};
use crate::format::{Access, Format};
use crate::machine::On;
use crate::table::Free;

impl<F: Format> Space<F> {
    /// The space of a program that is being loaded: empty but for a stack that ends at `stack_end`
    /// with `arg_pages` pages of arguments written to it. The old space is still there; the caller
    /// ends it afterwards.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; nothing is left of it then.
    pub fn exec<M: SpaceMachine>(
        on: On<'_, M>,
        stack_end: VirtAddr,
        arg_pages: u64,
    ) -> Result<Self, AreaError> {
        let mut space = Space::new(on)?;
        let mut edit = SpaceMut { on, state: &mut space.state, tlb: &space.tlb };
        match edit.write_arguments(stack_end.0, arg_pages.max(1)) {
            Ok(()) => Ok(space),
            Err(e) => {
                space.end_checked(on);
                Err(e)
            }
        }
    }
}

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    fn write_arguments(&mut self, end: u64, pages: u64) -> Result<(), AreaError> {
        let bytes = pages.saturating_mul(1 << F::PAGE_SHIFT);
        let range = State::<F>::pages(VirtRange { start: end.saturating_sub(bytes), end })?;
        let flags = AreaFlags::READ.with(AreaFlags::WRITE).with(AreaFlags::GROWS_DOWN);
        self.state.areas.insert(self.on, Area::new(range, flags, 0))?;
        self.populate(range, Access::Write)
    }

    /// Moves the temporary stack down to its final place `range` (its top pages the arguments), and
    /// lets it have that size. Tables that only the temporary place needed go at once.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the stack is where it was then.
    pub fn move_stack(&mut self, range: VirtRange, flags: AreaFlags) -> Result<(), AreaError> {
        let on = self.on;
        let range = State::<F>::pages(range)?;
        let Some(stack) = self.state.areas.last_before(on, u64::MAX) else {
            return self.mmap(range, flags.with(AreaFlags::GROWS_DOWN), 0);
        };
        let old = stack.range();
        if self.state.areas.last_before(on, old.start).is_some_and(|below| below.end > range.start) {
            return Err(AreaError::Overlap(range));
        }
        let flags = flags.with(AreaFlags::GROWS_DOWN).with(stack.flags.without(AreaFlags::PERMISSIONS));
        let new = Area::new(range, flags, 0);
        if old.end == range.end {
            self.state.areas.replace(on, old.start, new);
            return Ok(());
        }
        let target = VirtRange { start: range.end - old.len().min(range.len()), end: range.end };
        self.state.areas.insert(on, new)?;
        let mut gather = self.gather();
        let from = VirtRange { start: old.end - target.len(), end: old.end };
        if let Err(e) = self.state.tables.relocate(from, target.start, &mut gather) {
            gather.finish();
            self.munmap(range)?;
            return Err(e.into());
        }
        self.state.areas.remove_range(on, old, |_| {})?;
        let free = Free::Span {
            floor: self.state.areas.last_before(on, old.start).map_or(0, |a| a.end),
            ceiling: self.state.areas.at_or_after(on, old.end).map_or(F::USER_END, |a| a.start),
        };
        self.state.tables.unmap(old, free, &mut gather, |gather, _, raw| release::<F, M>(gather, raw));
        gather.finish();
        Ok(())
    }
}
