//! `madvise`.
use super::error::CallError;
use super::faults::refused;
use super::lock::touch;
use super::pieces::pieces;
use super::tags::{self, Tag};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::page::Level;
use ptarmigan::space::{Access, Advice, Area, AreaFlags, SpaceMachine, SpaceMut};

/// Numbers of advice that the C library's headers lack.
pub const DONTNEED_LOCKED: i32 = 24;
const GUARD_INSTALL: i32 = 102;
const GUARD_REMOVE: i32 = 103;

/// Returns whether advice makes tables for its whole range.
pub fn makes_tables(number: u16) -> bool {
    matches!(i32::from(number), libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE | GUARD_INSTALL)
}

/// Follows advice on `range`. Holes are passed over. As in Linux the first area that the advice is
/// not for ends the call, and `MADV_POPULATE_*` ends at the first hole, too. `ended` says that a
/// file ended where a page of it was to be made present.
pub fn advise<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    number: u16,
    ended: bool,
) -> Result<(), CallError> {
    let number = i32::from(number);
    let populate = match number {
        libc::MADV_POPULATE_READ => Some(Access::Read),
        libc::MADV_POPULATE_WRITE => Some(Access::Write),
        _ => None,
    };
    let mut end = range.start;
    for (piece, area) in pieces(space, range) {
        if refuses(number, &area) || populate.is_some() && piece.start > end {
            break;
        }
        end = piece.end;
        let Some(access) = populate else {
            one(space, piece, &area, number)?;
            continue;
        };
        if ended && area.flags.has(AreaFlags::BACKED) {
            // Its first page was had, or refused like this; events that follow tell.
            return refused(space, VirtAddr(piece.start), access);
        }
        if !touch(space, piece, access)? {
            break;
        }
    }
    Ok(())
}

/// Whether Linux refuses the advice for such an area.
fn refuses(number: i32, area: &Area) -> bool {
    let special = area.flags.has(AreaFlags::SPECIAL) || area.tag & tags::ALONE != 0;
    let locked = area.tag & tags::LOCKED != 0;
    let object = area.flags.has(AreaFlags::SHARED) || area.flags.has(AreaFlags::BACKED);
    match number {
        libc::MADV_DONTNEED | libc::MADV_COLD | libc::MADV_PAGEOUT | libc::MADV_REMOVE => locked || special,
        DONTNEED_LOCKED | libc::MADV_DOFORK => special,
        libc::MADV_FREE | libc::MADV_WIPEONFORK => object || special,
        libc::MADV_DODUMP => special || area.tag & tags::DROPPABLE != 0,
        libc::MADV_POPULATE_READ => special || area.flags.0 & AreaFlags::PERMISSIONS.0 == 0,
        libc::MADV_POPULATE_WRITE => special || !area.flags.has(AreaFlags::WRITE),
        GUARD_INSTALL => special || locked || area.tag & tags::HUGE_ONLY != 0,
        _ => false,
    }
}

/// Follows advice on a piece of one area.
fn one<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    piece: VirtRange,
    area: &Area,
    number: i32,
) -> Result<(), CallError> {
    let mut mark = |set: Tag, clear: Tag| space.retag(piece, |old| old & !clear | set);
    match number {
        libc::MADV_NORMAL => mark(0, tags::SEQUENTIAL | tags::RANDOM)?,
        libc::MADV_RANDOM => mark(tags::RANDOM, tags::SEQUENTIAL)?,
        libc::MADV_SEQUENTIAL => mark(tags::SEQUENTIAL, tags::RANDOM)?,
        libc::MADV_DONTDUMP => mark(tags::NO_DUMP, 0)?,
        libc::MADV_DODUMP => mark(0, tags::NO_DUMP)?,
        libc::MADV_HUGEPAGE => mark(tags::HUGE, tags::NO_HUGE)?,
        libc::MADV_NOHUGEPAGE => mark(tags::NO_HUGE, tags::HUGE)?,
        libc::MADV_MERGEABLE if !area.flags.has(AreaFlags::SHARED) && area.tag & tags::ALONE == 0 => {
            mark(tags::MERGEABLE, 0)?;
        }
        libc::MADV_UNMERGEABLE => mark(0, tags::MERGEABLE)?,
        libc::MADV_DONTNEED | DONTNEED_LOCKED => space.madvise(piece, Advice::DontNeed)?,
        libc::MADV_DONTFORK => space.madvise(piece, Advice::DontFork(true))?,
        libc::MADV_DOFORK => space.madvise(piece, Advice::DontFork(false))?,
        libc::MADV_WIPEONFORK => space.madvise(piece, Advice::WipeOnFork(true))?,
        libc::MADV_KEEPONFORK if area.tag & tags::DROPPABLE == 0 => {
            space.madvise(piece, Advice::WipeOnFork(false))?;
        }
        GUARD_INSTALL => {
            // The marks need tables, and fork copies them.
            space.madvise(piece, Advice::DontNeed)?;
            space.make_tables(piece, Level::PTE)?;
            space.copy_on_fork(VirtAddr(piece.start))?;
        }
        // Guards are marks in entries, of which the tables stay.
        GUARD_REMOVE => {}
        _ => {}
    }
    Ok(())
}
