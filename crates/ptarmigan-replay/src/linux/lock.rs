//! Pages that are locked in memory, and populating.
use super::error::CallError;
use super::faults::refused;
use super::pieces::pieces;
use super::tags::{self, Tag};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::space::{Access, Area, AreaError, AreaFlags, FaultError, SpaceMachine, SpaceMut};
use ptarmigan_trace::Locking;

/// Every address of a program.
const EVERYTHING: VirtRange = VirtRange::up_to(u64::MAX);

/// How a call of the mlock family marks areas.
fn tag_of(how: Locking) -> Tag {
    match (how.0 & (Locking::NOW | Locking::FUTURE) != 0, how.0 & Locking::ON_FAULT != 0) {
        (false, _) => 0,
        (true, false) => tags::LOCKED,
        (true, true) => tags::LOCKS,
    }
}

/// Whether areas like this one are never locked.
fn never(area: &Area) -> bool {
    area.flags.has(AreaFlags::SPECIAL) || area.tag & (tags::HUGE_ONLY | tags::ALONE | tags::DROPPABLE) != 0
}

/// Marks the areas in `range`, up to the first hole. Returns where that was.
fn mark<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    tag: Tag,
) -> Result<u64, CallError> {
    let mut end = range.start;
    for (piece, area) in pieces(space, range) {
        if piece.start > end {
            break;
        }
        if !never(&area) {
            space.retag(piece, |old| old & !tags::LOCKS | tag)?;
        }
        end = piece.end;
    }
    Ok(end)
}

/// `mlock`, `mlock2` and `munlock`; `failed` says that the call failed.
pub fn lock<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    how: Locking,
    failed: bool,
) -> Result<(), CallError> {
    let tag = tag_of(how);
    let complete = pieces(space, range)
        .try_fold(range.start, |end, (piece, _)| if piece.start == end { Ok(piece.end) } else { Err(end) })
        == Ok(range.end);
    if failed && complete {
        let mut refused = pieces(space, range);
        if !refused.any(|(_, area)| area.flags.0 & AreaFlags::PERMISSIONS.0 == 0 || may_end(&area)) {
            // The limit of locked memory: the call changed no page.
            return Ok(());
        }
    }
    mark(space, range, tag)?;
    // After a hole no page is made present.
    if tag == 0 || !complete || how.0 & Locking::LATER != 0 {
        return Ok(());
    }
    populate(space, range, if failed { Extent::ToFile } else { Extent::ToRefusal })
}

/// Whether accesses may find that the object behind an area has ended.
fn may_end(area: &Area) -> bool {
    area.flags.has(AreaFlags::BACKED) || area.flags.has(AreaFlags::SHARED)
}

/// How far populating goes. A recording does not say where files end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Over all pages that can be had.
    All,
    /// The same without pages of files: events that follow say which are present.
    AllButFiles,
    /// Up to the first page that cannot be had.
    ToRefusal,
    /// Up to that, or the first page of a file: somewhere there a file has ended.
    ToFile,
}

/// `mlockall` and `munlockall`.
pub fn lock_all<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    how: Locking,
) -> Result<(), CallError> {
    let future = if how.0 & Locking::FUTURE != 0 { tag_of(how) } else { 0 };
    space.set_default_tag(space.default_tag() & !tags::LOCKS | future);
    if how.0 & Locking::NOW == 0 && how.0 & Locking::FUTURE != 0 {
        return Ok(());
    }
    let tag = if how.0 & Locking::NOW != 0 { tag_of(how) } else { 0 };
    for (piece, area) in pieces(space, EVERYTHING) {
        if !never(&area) {
            space.retag(piece, |old| old & !tags::LOCKS | tag)?;
        }
    }
    if how.0 & Locking::NOW == 0 {
        return Ok(());
    }
    populate(space, EVERYTHING, Extent::AllButFiles)
}

/// Makes the pages of `range` present as Linux does after `mmap`, `mlock` and their like: private
/// writable areas are written, areas that are locked on fault are passed over.
pub fn populate<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    extent: Extent,
) -> Result<(), CallError> {
    for (piece, area) in pieces(space, range) {
        if area.tag & (tags::ON_FAULT | tags::ALONE) != 0 || area.flags.has(AreaFlags::SPECIAL) {
            continue;
        }
        let write = area.flags.has(AreaFlags::WRITE) && !area.flags.has(AreaFlags::SHARED);
        let access = if write { Access::Write } else { Access::Read };
        if area.flags.has(AreaFlags::BACKED) && matches!(extent, Extent::AllButFiles | Extent::ToFile) {
            // Its first page was had, or refused like this.
            if area.flags.0 & AreaFlags::PERMISSIONS.0 != 0 {
                refused(space, VirtAddr(piece.start), access)?;
            }
            if extent == Extent::ToFile {
                break;
            }
            continue;
        }
        let complete = touch(space, piece, access)?;
        if !complete && matches!(extent, Extent::ToRefusal | Extent::ToFile) {
            break;
        }
    }
    Ok(())
}

/// Touches the pages of `range`, up to the first that cannot be had. Returns whether all could.
pub fn touch<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    access: Access,
) -> Result<bool, CallError> {
    for va in (range.start..range.end).step_by(1 << F::PAGE_SHIFT) {
        match space.fault(VirtAddr(va), access) {
            Ok(_) => {}
            Err(FaultError::NoFrame(e)) => return Err(AreaError::NoFrame(e).into()),
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}
