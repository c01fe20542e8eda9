//! The limit of private memory that a program may write (`RLIMIT_DATA`).

use ptarmigan::addr::{FRAME_SIZE, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::space::{Area, AreaFlags};

use super::Sys;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::limits::INFINITY;

/// Whether an area that has these flags counts: it is private, can be written, and is no stack.
fn counts(flags: AreaFlags) -> bool {
    flags.has(AreaFlags::WRITE) && !flags.has(AreaFlags::SHARED) && !flags.has(AreaFlags::GROWS_DOWN)
}

fn pages(range: VirtRange) -> u64 {
    range.len() / FRAME_SIZE as u64
}

impl<A: Arch> Sys<'_, A> {
    /// Checks that a range may be mapped, or moved to, with these flags.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`] if the process would have more such memory than it may.
    #[inline]
    pub(super) fn may_map(&mut self, range: VirtRange, flags: AreaFlags) -> Result<(), Errno> {
        if !counts(flags) || self.process().limits.data.soft == INFINITY {
            return Ok(());
        }
        // Pages in the range are replaced.
        let size = |area: &Area| match counts(area.flags) {
            true => pages(area.range()) - pages(area.range().and(range)),
            false => 0,
        };
        self.may_have(size, pages(range))
    }

    /// Checks that the areas in a range may get these permissions.
    ///
    /// # Errors
    ///
    /// As [`may_map`](Self::may_map).
    #[inline]
    pub(super) fn may_protect(&mut self, range: VirtRange, permissions: AreaFlags) -> Result<(), Errno> {
        if !permissions.has(AreaFlags::WRITE) || self.process().limits.data.soft == INFINITY {
            return Ok(());
        }
        let size = |area: &Area| {
            let part = area.range().and(range);
            let would = counts(area.flags.with(AreaFlags::WRITE)) && !part.is_empty();
            match (counts(area.flags), would) {
                (true, _) => pages(area.range()),
                (false, true) => pages(part),
                _ => 0,
            }
        };
        self.may_have(size, 0)
    }

    /// Checks that the sizes of all areas, as `size` has them, and `more` pages are within the
    /// limit.
    #[cold]
    fn may_have(&mut self, size: impl Fn(&Area) -> u64, more: u64) -> Result<(), Errno> {
        let (on, most) = (self.on(), self.process().limits.data.soft / FRAME_SIZE as u64);
        self.space().edit(on, |edit| {
            let (mut sum, all) = (more, VirtRange::up_to(A::Format::USER_END));
            // The space is of the one machine that there is.
            let _ = edit.areas().each(on, all, |area| sum = sum.saturating_add(size(area)));
            Errno::ENOMEM.when(sum > most)
        })?
    }
}
