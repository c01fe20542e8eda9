//! Pages that are in memory: `mlock` and its family, `mincore`, `msync`.
//!
//! All pages of programs stay in memory. So locks are counted, and pages of locked areas come at
//! once; an area that is locked has the tag [`LOCKED`].

use ptarmigan::addr::{FRAME_SIZE, VirtAddr, VirtRange};
use ptarmigan::format::{Access, Format};
use ptarmigan::machine::On;
use ptarmigan::space::{Area, AreaFlags};

use super::reach::{Edit, Reach, populate};
use super::{LOCKED, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::Tree;
use crate::memory::Machine;
use crate::task::LocksNew;

const PAGE: u64 = FRAME_SIZE as u64;
const MCL_CURRENT: u64 = 1;
const MCL_FUTURE: u64 = 2;
const MCL_ONFAULT: u64 = 4;
const MS_ASYNC: u64 = 1;
const MS_INVALIDATE: u64 = 2;
const MS_SYNC: u64 = 4;

/// Returns the pages of `len` bytes at `at`, from the first to the last that has one of them.
fn touched(at: u64, len: u64) -> Result<VirtRange, Errno> {
    let start = at & !(PAGE - 1);
    let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE));
    Ok(VirtRange::new(start, end.ok_or(Errno::EINVAL)?)?)
}

/// Returns the access by which a page of an area comes that is locked; `None` if there is none.
fn access(area: &Area) -> Option<Access> {
    let is_private = !area.flags.has(AreaFlags::SHARED);
    match area.flags {
        flags if flags.has(AreaFlags::WRITE) && is_private => Some(Access::Write),
        flags if flags.has(AreaFlags::READ) => Some(Access::Read),
        flags if flags.has(AreaFlags::EXEC) => Some(Access::Exec),
        _ => None,
    }
}

/// Makes the pages of the areas in a range present.
///
/// # Errors
///
/// [`Errno::ENOMEM`] at an area that programs may not access at all, and as [`populate`]; areas
/// before have their pages then.
pub(super) fn bring<A: Arch>(
    on: On<'_, Machine<A>>,
    edit: &mut Edit<'_, A>,
    range: VirtRange,
) -> Result<(), Errno> {
    let mut at = range.start;
    while let Some(area) = edit.areas().at_or_after(on, at).filter(|area| area.start < range.end) {
        let access = access(&area).ok_or(Errno::ENOMEM)?;
        populate::<A>(on, edit, area.range().and(range), access).map_err(|e| match e {
            Errno::ENOMEM => Errno::EAGAIN,
            _ => Errno::ENOMEM,
        })?;
        at = area.end;
    }
    Ok(())
}

/// Marks the areas in a range as locked, or as not locked.
fn mark<A: Arch>(
    on: On<'_, Machine<A>>,
    edit: &mut Edit<'_, A>,
    range: VirtRange,
    lock: bool,
) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end
        && let Some(area) = edit.areas().at_or_after(on, at).filter(|area| area.start < range.end)
    {
        let part = area.range().and(range);
        at = part.end;
        if (area.tag & LOCKED != 0) != lock {
            let tag = |tag| if lock { tag | LOCKED } else { tag & !LOCKED };
            edit.retag(part, tag).map_err(|_| Errno::ENOMEM)?;
        }
    }
    Ok(())
}

/// Sets the time of files that show pages in a range, to which the program has written since the
/// last call.
fn note_writes<A: Arch>(
    on: On<'_, Machine<A>>,
    edit: &mut Edit<'_, A>,
    (tree, now): (&mut Tree, u64),
    range: VirtRange,
) -> Result<(), Errno> {
    let mut at = range.start;
    while let Some(area) = edit.areas().at_or_after(on, at).filter(|area| area.start < range.end) {
        at = area.end;
        let is_shared = area.object != 0 && area.flags.has(AreaFlags::SHARED);
        let Some(file) = tree.file_of(area.object).filter(|_| is_shared) else { continue };
        let mut is_written = false;
        let part = area.range().and(range);
        edit.take_dirty(part, A::Format::LAYOUT.root(), |_| is_written = true).map_err(|_| Errno::ENOMEM)?;
        if is_written {
            tree.get_mut(file).changed = now;
        }
    }
    Ok(())
}

impl<A: Arch> Sys<'_, A> {
    /// `mlock` and `munlock`. As under Linux the areas before a hole have changed.
    pub(super) fn lock_memory(&mut self, at: u64, len: u64, lock: bool, now: bool) -> Result<u64, Errno> {
        let range = touched(at, len)?;
        if range.is_empty() {
            return Ok(0);
        }
        self.record().has_locks |= lock;
        let on = self.on();
        self.space().edit(on, |mut edit| {
            let mut reach = Reach::new(range.start);
            let visited = edit.areas().each(on, range, |area| reach.visit(area, Ok(())));
            visited.map_err(|_| Errno::ENOMEM)?;
            let reach = reach.up_to(range.end);
            let range = VirtRange::new(range.start, reach.end)?;
            mark::<A>(on, &mut edit, range, lock)?;
            if let Some(e) = reach.stops {
                return Err(e);
            }
            if now { bring::<A>(on, &mut edit, range).map(|()| 0) } else { Ok(0) }
        })?
    }

    /// `mlock2`.
    pub(super) fn lock_memory_with(&mut self, at: u64, len: u64, flags: u64) -> Result<u64, Errno> {
        const ONFAULT: u64 = 1;
        Errno::EINVAL.when(flags as u32 as u64 & !ONFAULT != 0)?;
        self.lock_memory(at, len, true, flags & ONFAULT == 0)
    }

    /// `mlockall`, and with `flags` 0 `munlockall`.
    pub(super) fn lock_all(&mut self, flags: u64) -> Result<u64, Errno> {
        self.record().locks_new = match flags {
            _ if flags & MCL_FUTURE == 0 => LocksNew::No,
            _ if flags & MCL_ONFAULT != 0 => LocksNew::OnFault,
            _ => LocksNew::Now,
        };
        let (lock, now) = (flags & MCL_CURRENT != 0, flags & MCL_ONFAULT == 0);
        if flags != 0 {
            self.record().has_locks = true;
        }
        let (on, all) = (self.on(), VirtRange::up_to(A::Format::USER_END));
        self.space().edit(on, |mut edit| {
            // Areas of the heap are mapped by the library.
            edit.set_default_tag(if flags & MCL_FUTURE != 0 { LOCKED } else { 0 });
            if lock || flags == 0 {
                mark::<A>(on, &mut edit, all, lock)?;
            }
            if lock && now {
                let mut at = 0;
                while let Some(area) = edit.areas().at_or_after(on, at) {
                    // Pages that do not come now come when they are touched.
                    let _ = bring::<A>(on, &mut edit, area.range());
                    at = area.end;
                }
            }
            Ok(0)
        })?
    }

    /// `mlockall`.
    pub(super) fn lock_all_with(&mut self, flags: u64) -> Result<u64, Errno> {
        let flags = u64::from(flags as u32);
        let known = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
        Errno::EINVAL.when(flags & !known != 0 || flags & (MCL_CURRENT | MCL_FUTURE) == 0)?;
        self.lock_all(flags)
    }

    /// `mincore`: a byte for each page, 1 if it is there.
    pub(super) fn in_memory(&mut self, at: u64, len: u64, to: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(!at.is_multiple_of(PAGE))?;
        let end = at.checked_add(len).filter(|end| *end <= A::Format::USER_END).ok_or(Errno::ENOMEM)?;
        let range = VirtRange::new(at, end.next_multiple_of(PAGE))?;
        let (mut done, count) = (0, range.len() / PAGE);
        let mut bytes = [0; 512];
        while done < count {
            let n = bytes.len().min((count - done) as usize);
            let part = VirtRange::new(at + done * PAGE, at + (done + n as u64) * PAGE)?;
            self.pages_in_memory(part, &mut bytes[..n])?;
            let place = to.checked_add(done).ok_or(Errno::EFAULT)?;
            self.write_bytes(place, &bytes[..n])?;
            done += n as u64;
        }
        Ok(0)
    }

    fn pages_in_memory(&mut self, range: VirtRange, bytes: &mut [u8]) -> Result<(), Errno> {
        let (on, machine) = (self.on(), self.kernel.machine.get());
        self.space().edit(on, |edit| {
            let mut reach = Reach::new(range.start);
            let visited = edit.areas().each(on, range, |area| {
                reach.visit(area, Ok(()));
                let part = area.range().and(range);
                for at in (part.start..part.end).step_by(FRAME_SIZE) {
                    let is_there = edit.query(VirtAddr(at)).is_some()
                        || (area.object != 0
                            && machine.objects().page(area.object, area.offset_at(at) / PAGE).is_some());
                    if let Some(byte) = bytes.get_mut(((at - range.start) / PAGE) as usize) {
                        *byte = is_there.into();
                    }
                }
            });
            visited.map_err(|_| Errno::ENOMEM)?;
            reach.up_to(range.end).stops.map_or(Ok(()), Err)
        })?
    }

    /// `msync`: stores to a shared mapping are in the file at once, and set its time here.
    pub(super) fn synchronize_memory(&mut self, at: u64, len: u64, flags: u64) -> Result<u64, Errno> {
        let flags = u64::from(flags as u32);
        let both = MS_ASYNC | MS_SYNC;
        Errno::EINVAL.when(flags & !(both | MS_INVALIDATE) != 0 || !at.is_multiple_of(PAGE))?;
        Errno::EINVAL.when(flags & both == both)?;
        let len = len.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
        let range = VirtRange::bytes(VirtAddr(at), len).ok_or(Errno::ENOMEM)?;
        if range.is_empty() {
            return Ok(0);
        }
        let now = self.wall_time();
        let (on, tree) = (self.on(), &mut self.state.tree);
        self.body.space.edit(on, |mut edit| {
            let (mut reached, mut has_hole, mut is_locked) = (range.start, false, false);
            let visited = edit.areas().each(on, range, |area| {
                has_hole |= area.start > reached;
                reached = area.end;
                is_locked |= area.tag & LOCKED != 0;
            });
            visited.map_err(|_| Errno::ENOMEM)?;
            Errno::EBUSY.when(flags & MS_INVALIDATE != 0 && is_locked)?;
            note_writes::<A>(on, &mut edit, (tree, now), range)?;
            Errno::ENOMEM.when(has_hole || reached < range.end)?;
            Ok(0)
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_with_a_byte_of_the_range_count() {
        let pages = |at, len| touched(at, len).map(|range| (range.start / PAGE, range.end / PAGE));
        assert_eq!(pages(PAGE, PAGE), Ok((1, 2)));
        assert_eq!(pages(PAGE + 1, PAGE), Ok((1, 3)));
        assert_eq!(pages(PAGE + 1, PAGE - 1), Ok((1, 2)));
        assert_eq!(pages(PAGE, 0), Ok((1, 1)));
        assert_eq!(pages(PAGE, u64::MAX), Err(Errno::EINVAL));
        assert_eq!(pages(1, u64::MAX - 1), Err(Errno::EINVAL));
    }

    #[test]
    fn pages_come_by_an_access_that_the_area_allows() {
        let area = |flags| Area::new(VirtRange::up_to(PAGE), AreaFlags(flags), 0);
        let shared = AreaFlags::SHARED.0;
        assert_eq!(access(&area(3)), Some(Access::Write));
        assert_eq!(access(&area(3 | shared)), Some(Access::Read));
        assert_eq!(access(&area(1)), Some(Access::Read));
        assert_eq!(access(&area(4)), Some(Access::Exec));
        assert_eq!(access(&area(0)), None);
    }
}
