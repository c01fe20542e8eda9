//! `mmap` and its family: all of it is the library's.
//!
//! Errors, and the order in which they are looked for, are Linux's 6.1.

use ptarmigan::addr::{FRAME_SIZE, VirtAddr, VirtRange};
use ptarmigan::format::{Access, Format, FormatExt};
use ptarmigan::machine::On;
use ptarmigan::page::Level;
use ptarmigan::space::{Advice, Area, AreaError, AreaFlags, Object};

use super::reach::{BELOW_STACK, Edit, Reach, gap, populate};
use super::resident::bring;
use super::{LOCKED, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{Device, Kind, What};
use crate::memory::Machine;
use crate::memory::objects::MOST_BYTES;
use crate::params::LargePolicy;
use crate::task::LocksNew;

const PAGE: u64 = FRAME_SIZE as u64;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_SHARED_VALIDATE: u64 = 3;
pub(super) const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_LOCKED: u64 = 0x2000;
const MAP_POPULATE: u64 = 0x8000;
const MAP_HUGETLB: u64 = 0x4_0000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
/// Flags that `MAP_SHARED_VALIDATE` knows: those that Linux had before it.
const KNOWN: u64 = 0x7_f9f3;
const PROT_WRITE: u64 = 2;
const PROT_SEM: u64 = 8;
const PROT_GROWSDOWN: u64 = 0x100_0000;
const PROT_GROWSUP: u64 = 0x200_0000;
const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;
/// The last page of user addresses stays unmapped: an instruction that followed the last one there
/// would be at no address of programs.
const GUARD: u64 = PAGE;
/// The tag of areas that `mprotect` cannot make writable: shared ones of files that were opened
/// to be read.
pub(super) const READ_ONLY: u16 = 1;

fn error(e: AreaError) -> Errno {
    match e {
        AreaError::BadRange(_) => Errno::EINVAL,
        // As of an area that does not grow (`VM_DONTEXPAND`).
        AreaError::Physical(_) => Errno::EFAULT,
        _ => Errno::ENOMEM,
    }
}

fn round_up(len: u64) -> Result<u64, Errno> {
    len.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)
}

fn range(start: u64, len: u64) -> Result<VirtRange, Errno> {
    VirtRange::bytes(VirtAddr(start), round_up(len)?).ok_or(Errno::ENOMEM)
}

impl<A: Arch> Sys<'_, A> {
    /// Calls `f`, which changes areas in `ranges` and nowhere else, and counts the pages that the
    /// space shows afterwards. The caller has made a place for a new object. `grows` are the pages
    /// that are mapped in `ranges` after `f`, at the most.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`] if that would be more than the process may use; [`Errno::EFAULT`] if there
    /// is no space.
    fn change<R>(
        &mut self,
        ranges: [VirtRange; 2],
        grows: u64,
        f: impl FnOnce(On<'_, Machine<A>>, &mut Edit<'_, A>) -> R,
    ) -> Result<R, Errno> {
        let on = self.on();
        let most = self.process().limits.space.soft / PAGE;
        let number = self.state.tasks.space_of(self.me);
        let shown = &mut self.state.tasks.space_mut(number).shown;
        let result = self.body.space.edit(on, |mut edit| {
            let before = shown.pages();
            for range in ranges {
                // The space is of the one machine that there is.
                let _ = edit.areas().each(on, range, |area| shown.remove(area, range));
            }
            // A mapping that does not grow is never too large.
            let result = if shown.pages().saturating_add(grows) <= most.max(before) {
                Ok(f(on, &mut edit))
            } else {
                Err(Errno::ENOMEM)
            };
            for range in ranges {
                let _ = edit.areas().each(on, range, |area| shown.add(area, range));
            }
            result
        });
        while let Some(object) = self.state.tasks.space_mut(number).shown.take_gone() {
            self.kernel.release_object(object);
        }
        if self.state.keyed.has_removed() {
            self.kernel.drop_keyed(self.state);
        }
        result?
    }

    /// `mmap`; the offset is in bytes.
    pub(super) fn map(&mut self, [at, len, prot, flags, file, offset]: [u64; 6]) -> Result<u64, Errno> {
        Errno::EINVAL.when(!offset.is_multiple_of(PAGE))?;
        let is_anonymous = flags & MAP_ANONYMOUS != 0;
        // Undefined bits of the protection are ignored, as under Linux.
        let (shared, prot) = (flags & 3 != MAP_PRIVATE, prot & 7);
        let mut tag = 0;
        let object = if is_anonymous {
            None
        } else {
            let (object, writable) = self.file_object(file as usize, shared && prot & PROT_WRITE != 0)?;
            if shared && !writable {
                tag = READ_ONLY;
            }
            object
        };
        if flags & MAP_HUGETLB != 0 {
            // Huge pages do not exist, nor would any file have them.
            return Err(if is_anonymous { Errno::ENOMEM } else { Errno::EINVAL });
        }
        Errno::EINVAL.when(len == 0)?;
        let len = round_up(len)?;
        Errno::ENOMEM.when(len > A::Format::USER_END)?;
        let mut area = AreaFlags(prot as u16);
        match flags & 3 {
            MAP_SHARED => area = area.with(AreaFlags::SHARED),
            MAP_SHARED_VALIDATE if !is_anonymous => {
                Errno::EOPNOTSUPP.when(flags & !KNOWN != 0)?;
                area = area.with(AreaFlags::SHARED);
            }
            MAP_PRIVATE => {}
            _ => return Err(Errno::EINVAL),
        }
        if flags & MAP_GROWSDOWN != 0 {
            area = area.with(AreaFlags::GROWS_DOWN);
        }
        let range = self.place(at, len, flags)?;
        let locks = if flags & MAP_LOCKED != 0 { LocksNew::Now } else { self.record().locks_new };
        let flags = if locks == LocksNew::Now { flags | MAP_POPULATE } else { flags };
        if locks != LocksNew::No {
            tag |= LOCKED;
            self.record().has_locks = true;
        }
        // Shared anonymous memory is an object that only mappings use.
        let (object, own) = match object {
            Some(id) => (Object { id, offset }, false),
            None if shared => (self.shared_memory(range)?, true),
            None => (Object { id: 0, offset }, false),
        };
        if own && self.state.large_pages == LargePolicy::Always {
            area = area.with(AreaFlags::LARGE);
        }
        let result = self.map_at(mapped(range, area, object, tag), flags);
        if own {
            self.kernel.release_object(object.id);
        }
        result
    }

    /// Makes an object of shared anonymous memory for the addresses in `range`. If programs may
    /// have large pages, its blocks are aligned as the addresses are: it begins with holes before
    /// them.
    fn shared_memory(&self, range: VirtRange) -> Result<Object, Errno> {
        let objects = self.kernel.objects();
        let block = 1u64 << A::Format::shift(Level(1));
        let offset = range.start % block;
        if self.state.large_pages == LargePolicy::Never || offset + range.len() > MOST_BYTES {
            return Ok(objects.create(range.len())?.into());
        }
        let order = (block / PAGE).ilog2() as u8;
        Ok(Object { id: objects.create_in_blocks(offset + range.len(), order)?, offset })
    }

    /// Maps an area, which shows the object that it names; the caller is a user of that.
    pub(super) fn map_at(&mut self, area: Area, flags: u64) -> Result<u64, Errno> {
        self.may_map(area.range(), area.flags)?;
        if area.object != 0 {
            self.begin_object(area.object)?;
        }
        let range = area.range();
        self.change(alone(range), range.len() / PAGE, |_, edit| {
            edit.map_area(area).map_err(error)?;
            if flags & MAP_POPULATE != 0 {
                let access = if area.flags.has(AreaFlags::WRITE) { Access::Write } else { Access::Read };
                // Pages that are missing come when they are touched.
                let _ = edit.populate(range, access);
            }
            Ok(range.start)
        })?
    }

    /// Returns the object of a file that is to be mapped, and if the file may be written; no object
    /// for `/dev/zero`.
    fn file_object(&mut self, descriptor: usize, write: bool) -> Result<(Option<u32>, bool), Errno> {
        let file = self.process().files.get(descriptor)?;
        let open = self.state.open.get(file);
        Errno::EACCES.when(!open.reads() || (write && !open.writes()))?;
        let What::Inode(inode) = open.what else { return Err(Errno::ENODEV) };
        match self.state.tree.get(inode).kind {
            Kind::File(object) => Ok((Some(object), open.writes())),
            Kind::Device(Device::Zero) => Ok((None, open.writes())),
            _ => Err(Errno::ENODEV),
        }
    }

    /// Finds a place for `len` bytes.
    pub(super) fn place(&mut self, at: u64, len: u64, flags: u64) -> Result<VirtRange, Errno> {
        let on = self.on();
        let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let wanted = if is_fixed { at } else { at & !(PAGE - 1) };
        let wanted = VirtRange::bytes(VirtAddr(wanted), len);
        let wanted = wanted.filter(|range| range.end <= A::Format::USER_END - GUARD);
        self.space().edit(on, |edit| {
            let is_free = |range: VirtRange| {
                edit.areas().at_or_after(on, range.start).is_none_or(|area| area.start >= range.end)
            };
            if is_fixed {
                let range = wanted.ok_or(Errno::ENOMEM)?;
                Errno::EINVAL.when(!at.is_multiple_of(PAGE))?;
                Errno::EPERM.when(at < PAGE)?;
                Errno::EEXIST.when(flags & MAP_FIXED_NOREPLACE != 0 && !is_free(range))?;
                return Ok(range);
            }
            if let Some(range) = wanted
                && range.start >= PAGE
                && is_free(range)
            {
                return Ok(range);
            }
            gap::<A>(&edit, len)
        })?
    }

    /// Makes the caller's space a user of an object that it is about to map.
    fn begin_object(&mut self, id: u32) -> Result<(), Errno> {
        let kernel = self.kernel;
        if self.record().shown.begin(id, || kernel.new_page())? {
            kernel.objects().share(id);
        }
        Ok(())
    }

    /// `munmap`.
    pub(super) fn unmap(&mut self, at: u64, len: u64) -> Result<u64, Errno> {
        let range = range(at, len).map_err(|_| Errno::EINVAL)?;
        Errno::EINVAL
            .when(!at.is_multiple_of(PAGE) || range.is_empty() || range.end > A::Format::USER_END)?;
        self.change(alone(range), 0, |_, edit| edit.munmap(range))?.map_err(error)?;
        Ok(0)
    }

    /// `mprotect`. As under Linux it stops at the first hole, and at the first area that must not
    /// get the permissions; the areas before it have changed.
    pub(super) fn protect(&mut self, at: u64, len: u64, prot: u64) -> Result<u64, Errno> {
        let grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
        let prot = prot & !grows;
        Errno::EINVAL.when(grows == PROT_GROWSDOWN | PROT_GROWSUP || !at.is_multiple_of(PAGE))?;
        if len == 0 {
            return Ok(0);
        }
        let mut range = range(at, len)?;
        Errno::EINVAL.when(prot & !(7 | PROT_SEM) != 0)?;
        let (on, permissions) = (self.on(), AreaFlags(prot as u16 & 7));
        self.may_protect(range, permissions)?;
        self.space().edit(on, |mut edit| {
            if grows != 0 {
                range = VirtRange::new(grown::<A>(on, &edit, range, grows)?, range.end)?;
            }
            let mut reach = Reach::new(range.start);
            let visited = edit.areas().each(on, range, |area| {
                let denied = permissions.has(AreaFlags::WRITE) && area.tag & READ_ONLY != 0;
                reach.visit(area, if denied { Err(Errno::EACCES) } else { Ok(()) });
            });
            visited.map_err(|_| Errno::EFAULT)?;
            let reach = reach.up_to(range.end);
            if reach.end > range.start {
                edit.mprotect(VirtRange::new(range.start, reach.end)?, permissions).map_err(error)?;
            }
            reach.stops.map_or(Ok(0), Err)
        })?
    }

    /// `mremap`.
    pub(super) fn remap(&mut self, [at, old, new, flags, to, _]: [u64; 6]) -> Result<u64, Errno> {
        let moves = flags & MREMAP_MAYMOVE != 0;
        let keeps = flags & MREMAP_DONTUNMAP != 0;
        let has_target = flags & MREMAP_FIXED != 0;
        Errno::EINVAL.when(
            flags & !(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) != 0
                || (has_target && !moves)
                || (keeps && (!moves || old != new))
                || !at.is_multiple_of(PAGE),
        )?;
        let (from, new) = (range(at, old)?, round_up(new)?);
        Errno::EINVAL.when(new == 0)?;
        let on = self.on();
        let area = self.space().edit(on, |edit| edit.areas().find(on, at))?.ok_or(Errno::EFAULT)?;
        let here = VirtRange::bytes(VirtAddr(at), new).ok_or(Errno::ENOMEM)?;
        if !has_target && !keeps && new <= from.len() {
            // Regardless of other areas there: no page is moved.
            if here.end < from.end {
                self.unmap(here.end, from.end - here.end)?;
            }
            return Ok(at);
        }
        let highest = A::Format::USER_END - GUARD;
        let target = if has_target {
            let target = range(to, new).map_err(|_| Errno::EINVAL)?;
            Errno::EINVAL
                .when(!to.is_multiple_of(PAGE) || target.end > highest || !target.and(from).is_empty())?;
            Errno::EPERM.when(to < PAGE)?;
            Some(target)
        } else {
            None
        };
        let is_private = !area.flags.has(AreaFlags::SHARED);
        Errno::EINVAL.when(from.is_empty() && is_private)?;
        let moved = from.end.min(from.start + new);
        Errno::EFAULT.when(moved > area.end)?;
        let is_free = self.space().edit(on, |edit| {
            let next = edit.areas().at_or_after(on, from.end);
            here.end <= highest && next.is_none_or(|area| area.start >= here.end)
        })?;
        let target = match target {
            Some(target) => target,
            None if is_free && !keeps && !from.is_empty() => here,
            None if moves => self.space().edit(on, |edit| gap::<A>(&edit, new))??,
            None => return Err(Errno::ENOMEM),
        };
        if from.is_empty() {
            // A second place for the shared pages.
            let object = Object { id: area.object, offset: area.offset_at(at) };
            let flags = AreaFlags(area.flags.0 & (AreaFlags::PERMISSIONS.with(AreaFlags::SHARED)).0);
            return self.map_at(mapped(target, flags, object, area.tag), 0);
        }
        if target.len() > from.len() {
            let more = VirtRange::new(target.start + from.len(), target.end)?;
            self.may_map(more, area.flags)?;
        }
        // The target may begin where the old place does.
        let both = VirtRange::new(from.start, from.end.max(target.end))?;
        let ranges = if target.start == from.start { alone(both) } else { [from, target] };
        let grows = (new + if keeps { from.len() } else { 0 }) / PAGE;
        self.change(ranges, grows, |_, edit| {
            edit.mremap(from, target, keeps).map_err(|e| match e {
                AreaError::NoArea(_) => Errno::EFAULT,
                e => error(e),
            })?;
            // All of the old area, however much of it has moved.
            if keeps { edit.retag_area(VirtAddr(at), |tag| tag & !LOCKED).map_err(error) } else { Ok(()) }
        })??;
        Ok(target.start)
    }

    /// `madvise`. As under Linux it goes on behind holes, and then says that there was one; it
    /// stops at an area that the advice is not for.
    pub(super) fn advise(&mut self, at: u64, len: u64, advice: u64) -> Result<u64, Errno> {
        const FREE: u64 = 8;
        const DONTFORK: u64 = 10;
        const HUGEPAGE: u64 = 14;
        const NOHUGEPAGE: u64 = 15;
        const COLD: u64 = 20;
        const PAGEOUT: u64 = 21;
        const DONTNEED: u64 = 4;
        const DONTNEED_LOCKED: u64 = 24;
        const WIPEONFORK: u64 = 18;
        let follows = match advice {
            DONTNEED | DONTNEED_LOCKED => Some(Advice::DontNeed),
            DONTFORK => Some(Advice::DontFork(true)),
            HUGEPAGE | NOHUGEPAGE if self.state.large_pages != LargePolicy::Never => {
                Some(Advice::Large(advice == HUGEPAGE))
            }
            11 => Some(Advice::DontFork(false)),
            WIPEONFORK => Some(Advice::WipeOnFork(true)),
            19 => Some(Advice::WipeOnFork(false)),
            22 => Some(Advice::Populate(Access::Read)),
            23 => Some(Advice::Populate(Access::Write)),
            // Advice that the library has no use for, or that the command line turns off.
            0..=3 | FREE | 12..=17 | COLD | PAGEOUT => None,
            _ => return Err(Errno::EINVAL),
        };
        Errno::EINVAL.when(!at.is_multiple_of(PAGE))?;
        let range = range(at, len).map_err(|_| Errno::EINVAL)?;
        if range.is_empty() {
            return Ok(0);
        }
        if advice == DONTFORK {
            self.record().forks_in_part = true;
        }
        let on = self.on();
        self.space().edit(on, |mut edit| {
            if let Some(Advice::Populate(access)) = follows {
                return populate::<A>(on, &mut edit, range, access);
            }
            // Private memory without a file behind it.
            let is_plain = |area: &Area| area.object == 0 && !area.flags.has(AreaFlags::SHARED);
            let (mut end, mut reached, mut has_hole, mut stops) = (range.end, range.start, false, None);
            let visited = edit.areas().each(on, range, |area| {
                if stops.is_some() {
                    return;
                }
                let is_kept = matches!(advice, DONTNEED | FREE | COLD | PAGEOUT) && area.tag & LOCKED != 0;
                if is_kept || (matches!(advice, FREE | WIPEONFORK) && !is_plain(area)) {
                    (end, stops) = (area.start.max(range.start), Some(Errno::EINVAL));
                    return;
                }
                has_hole |= area.start > reached;
                reached = area.end;
            });
            visited.map_err(|_| Errno::EFAULT)?;
            if let Some(advice) = follows
                && range.start < end
            {
                edit.madvise(VirtRange::new(range.start, end)?, advice).map_err(error)?;
            }
            has_hole |= reached < end;
            match stops {
                Some(e) => Err(e),
                None if has_hole => Err(Errno::ENOMEM),
                None => Ok(0),
            }
        })?
    }

    /// `brk`.
    pub(super) fn set_break(&mut self, at: u64) -> Result<u64, Errno> {
        let (heap, end) = (self.record().heap, self.record().heap_end);
        if at < heap || at >= A::STACK_END - BELOW_STACK || at == end {
            return Ok(end);
        }
        let round = |at: u64| at.next_multiple_of(PAGE);
        let range = VirtRange::new(round(at.min(end)), round(at.max(end)))?;
        let grows = if at > end { range.len() / PAGE } else { 0 };
        if at > end && self.may_map(range, AreaFlags::WRITE).is_err() {
            return Ok(end);
        }
        let done = self.change(alone(range), grows, |_, edit| edit.brk(VirtAddr(at)));
        if !matches!(done, Ok(Ok(()))) {
            return Ok(end);
        }
        self.record().heap_end = at;
        if at > end && self.record().locks_new == LocksNew::Now {
            // Pages that do not come now come when they are touched.
            let on = self.on();
            let _ = self.space().edit(on, |mut edit| bring::<A>(on, &mut edit, range));
        }
        Ok(at)
    }
}

/// Returns `range`, and an empty one.
fn alone(range: VirtRange) -> [VirtRange; 2] {
    [range, VirtRange::fixed::<0, 0>()]
}

/// Returns an area that shows an object, if that has a number.
pub(super) fn mapped(range: VirtRange, flags: AreaFlags, object: Object, tag: u16) -> Area {
    let flags = if object.id == 0 { flags } else { flags.with(AreaFlags::BACKED) };
    Area { tag, ..Area::new(range, flags, object) }
}

/// Returns where `mprotect` begins that has to reach the end of an area that grows.
fn grown<A: Arch>(
    on: On<'_, Machine<A>>,
    edit: &Edit<'_, A>,
    range: VirtRange,
    grows: u64,
) -> Result<u64, Errno> {
    let first = edit.areas().at_or_after(on, range.start).ok_or(Errno::ENOMEM)?;
    // No area grows up.
    let is_down = grows == PROT_GROWSDOWN;
    let border = if is_down { range.end } else { range.start + 1 };
    Errno::ENOMEM.when(first.start >= border)?;
    Errno::EINVAL.when(!is_down || !first.flags.has(AreaFlags::GROWS_DOWN))?;
    Ok(first.start)
}
