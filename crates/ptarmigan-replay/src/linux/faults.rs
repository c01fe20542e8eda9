//! Performs the steps that Linux takes at a fault before it looks for a page.
use super::error::CallError;
use super::tags;
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::page::Level;
use ptarmigan::space::{Access, Area, AreaFlags, LargePages, SpaceMachine, SpaceMut};

/// Size of a huge page, in bytes: the range that a table of entries of 4 KiB maps.
const HUGE: u64 = 2 << 20;

/// A fault that Linux refused in an area that allows it: beyond the end of a file. The tables above
/// the leaves are made before Linux knows, and a write to a private area prepares for private
/// pages.
///
/// # Errors
/// [`CallError`] for lack of memory.
pub fn refused<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    va: VirtAddr,
    access: Access,
) -> Result<(), CallError> {
    let start = va.0 & !((1 << F::PAGE_SHIFT) - 1);
    let page = VirtRange::new(start, start + (1 << F::PAGE_SHIFT))?;
    space.make_tables(page, Level(1))?;
    if access == Access::Write && space.area(va).is_some_and(|a| !a.flags.has(AreaFlags::SHARED)) {
        space.copy_on_fork(va)?;
    }
    Ok(())
}

/// A fault that gave up the lock of its area to wait for that of the space, which Linux needs to
/// prepare an area for its first private page. By then it has made the tables of the page:
///
/// ```text
/// thread 1                 thread 2
/// write fault              |
/// | makes the table        fork takes the lock
/// | waits for the lock     | copies the table, which other areas share
/// |                        fork gives it up
/// takes it, maps the page  |
/// ```
///
/// Of an area that is prepared, the fault had nothing to wait for but the area's own lock, and it
/// made no table. Pages of files get their table later.
///
/// # Errors
/// [`CallError`] for lack of memory.
pub fn waits<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    page: VirtRange,
    area: &Area,
) -> Result<(), CallError> {
    let others = [AreaFlags::SHARED, AreaFlags::BACKED, AreaFlags::PRIVATE_PAGES];
    if !others.into_iter().any(|flag| area.flags.has(flag))
        && area.flags.has(AreaFlags::WRITE)
        && !is_huge_only(area)
    {
        space.make_tables(page, Level::PTE)?;
    }
    Ok(())
}

/// Returns whether an area has huge pages only.
pub fn is_huge_only(area: &Area) -> bool {
    area.tag & tags::HUGE_ONLY != 0
}

/// A fault in an area of huge pages only: an entry of an upper level maps the page, and no
/// last-level table is made or kept in reserve.
///
/// # Errors
/// [`CallError`] for lack of memory.
pub fn huge_only<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    va: VirtAddr,
) -> Result<(), CallError> {
    let start = va.0 & !(HUGE - 1);
    Ok(space.make_tables(VirtRange::new(start, start + HUGE)?, Level(Level::PTE.0 + 1))?)
}

/// Where faults try huge pages first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeFaults {
    /// Nowhere.
    Never,
    /// In areas that asked for them (`MADV_HUGEPAGE`).
    Advised,
    /// Everywhere but where they are refused.
    Always,
}

impl HugeFaults {
    /// Returns how a space of the library uses large pages so that it has them in the same areas.
    /// As in Linux, a write splits one that fork has shared.
    pub fn in_spaces(self) -> LargePages {
        LargePages { in_new_areas: self == HugeFaults::Always, copy: false }
    }

    /// Returns whether a fault at `va` in `area`, with no table there yet, may get a huge page: the
    /// 2 MiB around it lie in the area, which is private and anonymous.
    pub fn reaches(self, area: &Area, va: u64) -> bool {
        let wanted = match self {
            HugeFaults::Never => false,
            HugeFaults::Advised => area.tag & tags::HUGE != 0,
            HugeFaults::Always => area.tag & tags::NO_HUGE == 0 && !area.flags.has(AreaFlags::GROWS_DOWN),
        };
        let start = va & !(HUGE - 1);
        let plain = !area.flags.has(AreaFlags::SHARED) && !area.flags.has(AreaFlags::BACKED);
        wanted && plain && area.start <= start && start + HUGE <= area.end
    }

    /// Returns whether a fault at `va` in `area`, with no table there yet, prepares for private
    /// pages although it reads: Linux does so before it knows whether a huge page of zeroes will
    /// do.
    pub fn prepares(self, area: &Area, va: u64, access: Access) -> bool {
        access != Access::Write && self.reaches(area, va)
    }
}
