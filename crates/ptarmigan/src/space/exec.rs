//! What `execve` does to a space besides `mmap`: arguments on a temporary stack, which then moves.
use super::area::{Area, AreaFlags};
use super::{Access, AreaError, Space, SpaceMachine};
use crate::addr::{VirtAddr, VirtRange};
use crate::cpu::Pinned;
use crate::format::Format;
use crate::table::{Free, parts};
use crate::tlb::Gather;

impl<F: Format> Space<F> {
    /// The space of a program that is being loaded: empty but for a stack that ends at `stack_end` with
    /// `arg_pages` pages of arguments written to it. The old space is still there; the caller ends it afterwards.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; nothing is left of it then.
    pub fn exec<M: SpaceMachine>(
        m: &M,
        pin: &Pinned<'_>,
        stack_end: VirtAddr,
        arg_pages: u64,
    ) -> Result<Self, AreaError> {
        let mut space = Space::new(m, pin)?;
        if let Err(e) = space.write_arguments(m, pin, stack_end.0, arg_pages.max(1)) {
            space.end(m, pin);
            return Err(e);
        }
        Ok(space)
    }

    fn write_arguments<M: SpaceMachine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        end: u64,
        pages: u64,
    ) -> Result<(), AreaError> {
        let start = end.saturating_sub(pages << F::PAGE_SHIFT);
        let range = Self::pages(VirtRange { start, end })?;
        let flags = AreaFlags::READ.with(AreaFlags::WRITE).with(AreaFlags::GROWS_DOWN);
        self.areas.insert(m, pin, Area::new(range, flags, 0))?;
        self.populate(m, pin, range, Access::Write)
    }

    /// Moves the temporary stack down to its final place `range` (its top pages the arguments), and lets it have
    /// that size. Tables that only the temporary place needed go at once.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the stack is where it was then.
    pub fn move_stack<M: SpaceMachine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        range: VirtRange,
        flags: AreaFlags,
    ) -> Result<(), AreaError> {
        let range = Self::pages(range)?;
        let Some(stack) = self.areas.last_before(m, u64::MAX) else {
            return self.mmap(m, pin, range, flags.with(AreaFlags::GROWS_DOWN), 0);
        };
        let old = stack.range();
        if self.areas.last_before(m, old.start).is_some_and(|below| below.end > range.start) {
            return Err(AreaError::Overlap(range));
        }
        let flags = flags.with(AreaFlags::GROWS_DOWN).with(stack.flags.without(AreaFlags::PERMISSIONS));
        let new = Area::new(range, flags, 0);
        if old.end == range.end {
            self.areas.replace(m, old.start, new);
            return Ok(());
        }
        let target = VirtRange { start: range.end - old.len().min(range.len()), end: range.end };
        self.areas.insert(m, pin, new)?;
        let mut gather = Gather::new(parts(m, pin), self.tlb.get(), F::PAGE_SHIFT);
        let from = VirtRange { start: old.end - target.len(), end: old.end };
        if let Err(e) = self.tree.move_range(m, pin, from, target.start, &mut gather) {
            gather.finish();
            self.munmap(m, pin, range)?;
            return Err(e.into());
        }
        self.areas.remove_range(m, pin, old, |_| {})?;
        let free = Free::Span {
            floor: self.areas.last_before(m, old.start).map_or(0, |a| a.end),
            ceiling: self.areas.at_or_after(m, old.end).map_or(F::USER_END, |a| a.start),
        };
        self.tree.unmap_with(m, old, free, &mut gather, |gather, _, raw| {
            super::release::<F, M>(gather, raw);
        });
        gather.finish();
        Ok(())
    }
}
