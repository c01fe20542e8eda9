//! Carries recorded calls out on an address space.
use super::error::CallError;
use super::lock::{Extent, populate};
use super::pieces::{PAGE, pieces};
use super::tags::{self, Tag};
use super::{advice, faults, lock, objects};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::page::Level;
use ptarmigan::space::{Access, Advice, Area, AreaFlags, Object, SpaceMachine, SpaceMut};
use ptarmigan_trace::{AreaKind, FailedCall, FaultFlags, Kind, Locking, MapFlags, Prot};

fn range(start: u64, pages: u64) -> VirtRange {
    VirtRange::saturating_pages(start, pages, PAGE)
}

fn permissions(prot: Prot) -> AreaFlags {
    // Both use the same bits.
    AreaFlags(u16::from(prot.0) & AreaFlags::PERMISSIONS.0)
}

/// Returns whether nobody asked for pages that were touched: they were found at a stop, after the
/// recorder had missed how they came.
pub fn is_found(flags: FaultFlags) -> bool {
    flags.0 & FaultFlags::USER == 0
}

/// Of pages that are touched in a recording that was written anew: a fault splits a huge page into
/// them. Files have no such event.
///
/// The pages stay parts of one large folio, whose entries Linux copies and takes away in batches
/// (6.9 and later): its count of users changes once for all of them. So in a replay they are
/// entries of the frame of zeroes, which has no count: a fork copies the entries, and a write makes
/// a frame of its own.
pub const SPLIT: FaultFlags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER | FaultFlags::PRESENT);

/// The fewest pages of a range whose tables are counted before they are made.
const MANY: u64 = 1 << 24;

/// Returns how many leaf tables a call needs at the least, if its range is so long that the tables
/// of one call may be more than a machine has frames; 0 for others. Making them in vain costs the
/// host as much memory as the machine has.
pub fn tables_of<F: Format, M: SpaceMachine>(space: &SpaceMut<'_, F, M>, kind: Kind) -> u64 {
    let (start, pages) = match kind {
        Kind::Touched { start, pages, flags } if flags.0 & FaultFlags::HUGE == 0 => (start, pages),
        Kind::Madvise { start, pages, advice } if advice::makes_tables(advice) => (start, pages),
        Kind::Lock { start, pages, how } if how.0 & (Locking::NOW | Locking::ON_FAULT) == Locking::NOW => {
            (start, pages)
        }
        _ => return 0,
    };
    if pages < MANY {
        return 0;
    }
    let shift = F::shift(Level(1));
    let of = |piece: VirtRange| ((piece.end - 1) >> shift) - (piece.start >> shift) + 1;
    // Neighbours may share a table.
    // Pages that may not be accessed, or belong to no memory, get no table.
    let parts = pieces(space, range(start, pages)).filter(|(piece, area)| {
        let accessible = area.flags.0 & AreaFlags::PERMISSIONS.0 != 0;
        !piece.is_empty() && accessible && !area.flags.has(AreaFlags::SPECIAL)
    });
    parts.map(|(piece, _)| of(piece).saturating_sub(1)).sum()
}

/// Returns whether a call makes pages of a file present because the memory is locked, as far as the
/// file goes: no event tells where that is. The replay takes all of them as present.
pub fn ends_unknown<F: Format, M: SpaceMachine>(space: &SpaceMut<'_, F, M>, kind: Kind) -> bool {
    let locked = |tag: Tag| tag & tags::LOCKS == tags::LOCKED;
    match kind {
        Kind::Mmap { flags, .. } => flags.0 & MapFlags::ANON == 0 && locked(space.default_tag()),
        Kind::Mremap { from, old_pages, new_pages, .. } if old_pages == 0 || old_pages < new_pages => {
            let area = space.area(VirtAddr(from << PAGE));
            area.is_some_and(|area| area.flags.has(AreaFlags::BACKED) && locked(area.tag))
        }
        _ => false,
    }
}

/// Follows advice about huge pages, which otherwise is only noted, and that of `MAP_STACK` against
/// them.
///
/// # Errors
/// [`CallError`] if there was no memory.
pub fn follow_advice<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    kind: Kind,
) -> Result<(), CallError> {
    let (start, pages, large) = match kind {
        Kind::Madvise { start, pages, advice } => match i32::from(advice) {
            libc::MADV_HUGEPAGE => (start, pages, true),
            libc::MADV_NOHUGEPAGE => (start, pages, false),
            _ => return Ok(()),
        },
        Kind::Mmap { start, pages, flags, .. } if flags.0 & MapFlags::NO_HUGE != 0 => (start, pages, false),
        _ => return Ok(()),
    };
    Ok(space.madvise(range(start, pages), Advice::Large(large))?)
}

/// Makes a call that changes areas or tables of one space; other calls have no effect.
///
/// # Errors
/// [`CallError`] if there was no memory or the call makes no sense in this space.
pub fn call<F: Format, M: SpaceMachine>(space: &mut SpaceMut<'_, F, M>, kind: Kind) -> Result<(), CallError> {
    match kind {
        Kind::Area { start, pages, prot, kind } => made_by_exec(space, range(start, pages), prot, kind)?,
        Kind::Mmap { start, pages, prot, flags } => mmap(space, range(start, pages), prot, flags)?,
        Kind::Munmap { start, pages } => space.munmap(range(start, pages))?,
        Kind::Brk { end } => brk(space, VirtAddr(end << PAGE))?,
        Kind::Mremap { from, old_pages, to, new_pages, keep } => {
            mremap(space, range(from, old_pages), range(to, new_pages), keep, false)?;
        }
        Kind::Failed { call: FailedCall::Mremap { start, pages, to, keep }, .. } => {
            mremap(space, range(start, pages), range(to, pages), keep, true)?;
        }
        Kind::Mprotect { start, pages, prot }
        | Kind::Failed { call: FailedCall::Mprotect { start, pages, prot }, .. } => {
            let done = mprotect(space, range(start, pages), permissions(prot))?;
            if done == 0 && matches!(kind, Kind::Mprotect { .. }) {
                return Err(CallError::Refused(format!("no area lies at page {start:#x}")));
            }
        }
        Kind::Madvise { start, pages, advice }
        | Kind::Failed { call: FailedCall::Madvise { start, pages, advice }, .. } => {
            // EFAULT: a page of a file was not there.
            let ended = matches!(kind, Kind::Failed { errno, .. } if i32::from(errno) == libc::EFAULT);
            advice::advise(space, range(start, pages), advice, ended)?;
        }
        Kind::Lock { start, pages, how } => lock::lock(space, range(start, pages), how, false)?,
        Kind::Failed { call: FailedCall::Lock { start, pages, how }, .. } => {
            lock::lock(space, range(start, pages), how, true)?;
        }
        Kind::LockAll { how } => lock::lock_all(space, how)?,
        Kind::StackLimit { pages } => space.set_stack_limit(pages.saturating_mul(1 << PAGE)),
        Kind::Touched { start, pages, flags } => {
            if flags.0 & FaultFlags::HUGE != 0 {
                // Linux has taken the last-level table away, or has never had one.
                let range = range(start, pages);
                space.madvise(range, Advice::DontNeed)?;
                return Ok(space.make_tables(range, Level(Level::PTE.0 + 1))?);
            }
            match flags {
                FaultFlags::WAITING => {
                    return pieces(space, range(start, pages))
                        .try_for_each(|(piece, area)| faults::waits(space, piece, &area));
                }
                FaultFlags::POPULATED => return populate(space, range(start, pages), Extent::All),
                _ => {}
            }
            let private = flags.0 & (FaultFlags::WRITE | FaultFlags::PRESENT) != 0;
            let write = flags.0 & FaultFlags::WRITE != 0 && flags != SPLIT;
            for (piece, area) in pieces(space, range(start, pages)) {
                // A debugger writes where the program may not.
                let can = area.flags.has(AreaFlags::WRITE);
                let access = if write && can { Access::Write } else { Access::Read };
                if private && !(write && can) && !area.flags.has(AreaFlags::SHARED) {
                    space.copy_on_fork(VirtAddr(piece.start))?;
                }
                let _complete = lock::touch(space, piece, access)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Changes the copy of a space that fork has just made: locks are not passed on.
///
/// # Errors
/// [`CallError`] for lack of memory.
pub fn forked<F: Format, M: SpaceMachine>(space: &mut SpaceMut<'_, F, M>) -> Result<(), CallError> {
    space.set_default_tag(space.default_tag() & !tags::LOCKS);
    let everything = VirtRange::up_to(F::USER_END);
    Ok(space.retag(everything, |old| old & !tags::LOCKS)?)
}

/// An area that execve has made.
fn made_by_exec<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    prot: Prot,
    kind: AreaKind,
) -> Result<(), CallError> {
    let flags = permissions(prot);
    let (flags, object) = match kind {
        AreaKind::Stack => return Ok(space.move_stack(range, flags)?),
        AreaKind::Anon => (flags, 0),
        AreaKind::File => (flags.with(AreaFlags::BACKED), objects::FILE),
        AreaKind::Special => (flags.with(AreaFlags::BACKED).with(AreaFlags::SPECIAL), objects::FILE),
    };
    Ok(space.map_area(Area { tag: account(flags, 0), ..Area::new(range, flags, object) })?)
}

/// Whether an area is counted when it is mapped, as a tag.
fn account(flags: AreaFlags, tag: Tag) -> Tag {
    let counted = flags.has(AreaFlags::WRITE) && !flags.has(AreaFlags::SHARED);
    if counted && tag & (tags::NORESERVE | tags::HUGE_ONLY) == 0 { tags::ACCOUNT } else { 0 }
}

fn mmap<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    prot: Prot,
    flags: MapFlags,
) -> Result<(), CallError> {
    let has = |flag: u16| flags.0 & flag != 0;
    let mut kind = permissions(prot);
    for (bit, to) in [(MapFlags::SHARED, AreaFlags::SHARED), (MapFlags::GROWSDOWN, AreaFlags::GROWS_DOWN)] {
        if has(bit) {
            kind = kind.with(to);
        }
    }
    if !has(MapFlags::ANON) {
        kind = kind.with(AreaFlags::BACKED);
    }
    let mut tag = space.default_tag();
    for (bit, to) in [
        (MapFlags::LOCKED, tags::LOCKED),
        (MapFlags::NORESERVE, tags::NORESERVE),
        (MapFlags::HUGE_ONLY, tags::HUGE_ONLY),
        (MapFlags::NO_HUGE, tags::NO_HUGE),
        (MapFlags::DROPPABLE, tags::DROPPABLE | tags::NORESERVE | tags::NO_DUMP),
        (MapFlags::ALONE, tags::ALONE),
        (MapFlags::SEGMENT, tags::SEGMENT),
    ] {
        if has(bit) {
            tag |= to;
        }
    }
    if has(MapFlags::DROPPABLE) {
        kind = kind.with(AreaFlags::WIPE_ON_FORK);
    }
    tag |= account(kind, tag);
    let object = match (kind.has(AreaFlags::BACKED), kind.has(AreaFlags::SHARED)) {
        (true, _) => objects::FILE,
        (false, true) => objects::of_pages(range.len() >> F::PAGE_SHIFT),
        (false, false) => 0,
    };
    space.map_area(Area { tag, ..Area::new(range, kind, Object::from(object)) })?;
    if !has(MapFlags::LATER) && (has(MapFlags::POPULATE) || space.default_tag() & tags::LOCKED != 0) {
        populate(space, range, Extent::All)?;
    }
    Ok(())
}

fn brk<F: Format, M: SpaceMachine>(space: &mut SpaceMut<'_, F, M>, end: VirtAddr) -> Result<(), CallError> {
    let before = space.heap().end;
    let tag = space.default_tag();
    space.set_default_tag(tag | tags::ACCOUNT);
    let result = space.brk(end);
    space.set_default_tag(tag);
    result?;
    match VirtRange::new(before, space.heap().end) {
        Ok(grown) if tag & tags::LOCKED != 0 && before != 0 && !grown.is_empty() => {
            populate(space, grown, Extent::All)
        }
        _ => Ok(()),
    }
}

/// Linux changes permissions up to the first hole, and fails there. Returns the bytes changed.
fn mprotect<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    range: VirtRange,
    permissions: AreaFlags,
) -> Result<u64, CallError> {
    let mut end = range.start;
    for (piece, area) in pieces(space, range) {
        if piece.start > end {
            break;
        }
        end = piece.end;
        let had = area.flags;
        space.mprotect(piece, permissions)?;
        let free = tags::ACCOUNT | tags::NORESERVE | tags::HUGE_ONLY;
        let private = !had.has(AreaFlags::SHARED);
        let grants = private && permissions.has(AreaFlags::WRITE) && !had.has(AreaFlags::WRITE);
        if grants && area.tag & free == 0 {
            space.retag(piece, |old| old | tags::ACCOUNT)?;
        }
        let untouched = !had.has(AreaFlags::PRIVATE_PAGES) && !had.has(AreaFlags::BACKED);
        if private && untouched && !permissions.has(AreaFlags::WRITE) {
            space.retag(piece, |old| old & !tags::ACCOUNT)?;
        }
        if grants && area.tag & tags::LOCKED != 0 {
            // Readable pages are present already, as far as their file goes.
            let readable = had.0 & AreaFlags::PERMISSIONS.0 != 0;
            populate(space, piece, if readable { Extent::AllButFiles } else { Extent::All })?;
        }
    }
    Ok(end - range.start)
}

/// A move of several areas is one of each, and gaps between them stay (Linux 6.17). One that failed
/// has moved those before a segment.
fn mremap<F: Format, M: SpaceMachine>(
    space: &mut SpaceMut<'_, F, M>,
    from: VirtRange,
    to: VirtRange,
    keep: bool,
    failed: bool,
) -> Result<(), CallError> {
    if from.is_empty() {
        // A second mapping of the shared pages there.
        let Some(area) = space.area(VirtAddr(from.start)) else {
            return Err(CallError::Refused(format!("no area lies at {:#x}", from.start)));
        };
        let offset = area.offset_at(from.start);
        space.map_area(Area { start: to.start, end: to.end, offset, ..area })?;
        return if area.tag & tags::LOCKED != 0 { populate(space, to, Extent::All) } else { Ok(()) };
    }
    let moved = from.and(VirtRange::up_to(from.start.saturating_add(to.len())));
    if moved.end < from.end {
        space.munmap(VirtRange::new(moved.end, from.end)?)?;
    }
    let mut parts: Vec<_> = pieces(space, moved).collect();
    if failed {
        let stop = parts.iter().skip(1).position(|(_, area)| area.tag & tags::SEGMENT != 0);
        let starts = parts
            .first()
            .is_some_and(|(piece, area)| piece.start == from.start && area.tag & tags::SEGMENT == 0);
        parts.truncate(stop.filter(|_| starts).map_or(0, |at| at + 1));
        if parts.is_empty() {
            return Ok(());
        }
    }
    let last = parts.len().saturating_sub(1);
    for (n, (piece, area)) in parts.iter().enumerate() {
        let start = piece.start - from.start + to.start;
        // The last grows. Linux lets only one area grow: if there are several here, it had joined
        // them.
        let end = if n == last && to.len() > from.len() { to.end } else { start + piece.len() };
        space.mremap(*piece, VirtRange::new(start, end)?, keep)?;
        if keep {
            // All of the old area, however much of it has moved.
            space.retag_area(VirtAddr(piece.start), |old| old & !tags::LOCKS)?;
        }
        if n == last && to.len() > from.len() && area.tag & tags::LOCKED != 0 {
            let grown = VirtRange::new(start + piece.len(), end)?;
            populate(space, grown, Extent::All)?;
        }
    }
    if parts.is_empty() && !moved.is_empty() {
        space.mremap(moved, to, keep)?;
    }
    Ok(())
}
