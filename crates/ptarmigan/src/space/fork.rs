//! Fork: a copy of a space whose private pages are shared until one side writes.
use super::area::{Area, AreaFlags};
use super::home::Home;
use super::{AreaError, Space, SpaceMachine};
use crate::addr::VirtRange;
use crate::cpu::Pinned;
use crate::format::Format;
use crate::frames::{AllocFlags, DataFrames};
use crate::table::{Tree, parts};
use crate::tlb::Gather;

impl<F: Format> Space<F> {
    /// A copy of the space. Tables are copied for areas that hold private pages (or are the kernel's own); the rest
    /// is filled again by faults, as Linux does it. Writable private pages are write-protected on both sides.
    ///
    /// # Errors
    ///
    /// [`AreaError::NoFrame`]; there is no copy then, and this space is as it was but for pages that will fault
    /// once more when written.
    pub fn fork<M: SpaceMachine>(&mut self, m: &M, pin: &Pinned<'_>) -> Result<Space<F>, AreaError> {
        let areas = self.areas.copy(m, pin)?;
        let tree = match Tree::new(m, pin, AllocFlags::NORMAL) {
            Ok(tree) => tree,
            Err(e) => {
                let mut areas = areas;
                areas.clear(m);
                return Err(e.into());
            }
        };
        let mut child = Space {
            tree,
            tlb: Home::new(m.tlb().new_space()),
            areas,
            recent: Default::default(),
            heap: self.heap,
            stack_limit: self.stack_limit,
        };
        let mut result = Ok(());
        let mut left_out = false;
        let mut gather = Gather::new(parts(m, pin), self.tlb.get(), F::PAGE_SHIFT);
        let all = VirtRange { start: 0, end: F::USER_END };
        let tree = &mut self.tree;
        self.areas.each(m, all, |area| {
            left_out |= area.flags.has(AreaFlags::NO_FORK);
            if result.is_err() || !area.is_copied() || area.flags.has(AreaFlags::NO_FORK) {
                return;
            }
            let shared = area.flags.has(AreaFlags::SHARED);
            result = tree.copy_with(m, pin, &mut child.tree, area.range(), &mut gather, |_, raw| {
                if !F::is_special(raw) {
                    DataFrames::share(m.frames(), F::frame(raw));
                }
                let copy = if shared { raw } else { F::write_protected(raw) };
                (copy, copy)
            });
        });
        gather.finish();
        if let Err(e) = result {
            child.end(m, pin);
            return Err(e.into());
        }
        if left_out && let Err(e) = child.drop_not_forked(m, pin) {
            child.end(m, pin);
            return Err(e);
        }
        Ok(child)
    }

    /// Takes areas that fork does not pass on out of a fresh copy.
    fn drop_not_forked<M: SpaceMachine>(&mut self, m: &M, pin: &Pinned<'_>) -> Result<(), AreaError> {
        let mut at = 0;
        while let Some(area) = self.areas.at_or_after(m, at) {
            let Area { end, flags, .. } = area;
            if flags.has(AreaFlags::NO_FORK) {
                self.areas.remove_range(m, pin, area.range(), |_| {})?;
            }
            at = end;
        }
        Ok(())
    }
}
