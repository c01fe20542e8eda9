//! `mmap` and its family: all of it is the library's.

use ptarmigan::addr::{FRAME_SIZE, VirtAddr, VirtRange};
use ptarmigan::format::{Access, Format};
use ptarmigan::machine::Machine as _;
use ptarmigan::space::{Advice, AreaError, AreaFlags, Object};

use super::Sys;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{Device, Kind, What};

const PAGE: u64 = FRAME_SIZE as u64;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_GROWSDOWN: u64 = 0x100;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MAP_POPULATE: u64 = 0x8000;
/// Nothing is mapped in the last page of user addresses: an instruction that followed the last one
/// there would be at no address of programs.
const GUARD: u64 = PAGE;
/// What lies between the highest mapping and the stack: its largest size, and more.
const BELOW_STACK: u64 = 16 << 20;

fn error(e: AreaError) -> Errno {
    match e {
        AreaError::BadRange(_) => Errno::EINVAL,
        AreaError::NoArea(_) => Errno::ENOMEM,
        AreaError::Overlap(_) => Errno::ENOMEM,
        _ => Errno::ENOMEM,
    }
}

fn round_up(len: u64) -> Result<u64, Errno> {
    len.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)
}

fn range(start: u64, len: u64) -> Result<VirtRange, Errno> {
    if !start.is_multiple_of(PAGE) || len == 0 {
        return Err(Errno::EINVAL);
    }
    let end = start.checked_add(round_up(len)?).ok_or(Errno::ENOMEM)?;
    Ok(VirtRange { start, end })
}

impl<A: Arch> Sys<'_, A> {
    /// `mmap`; the offset is in bytes.
    pub(super) fn map(&mut self, [at, len, prot, flags, file, offset]: [u64; 6]) -> Result<u64, Errno> {
        if len == 0 || !offset.is_multiple_of(PAGE) || prot & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        let len = round_up(len)?;
        if len > A::Format::USER_END {
            return Err(Errno::ENOMEM);
        }
        let mut area = AreaFlags(prot as u16 & 7);
        match flags & 3 {
            MAP_SHARED => area = area.with(AreaFlags::SHARED),
            MAP_PRIVATE => {}
            _ => return Err(Errno::EINVAL),
        }
        if flags & MAP_GROWSDOWN != 0 {
            area = area.with(AreaFlags::GROWS_DOWN);
        }
        let shared = flags & MAP_SHARED != 0;
        let object = if flags & MAP_ANONYMOUS == 0 {
            Some(self.file_object(file as usize, shared && prot & 2 != 0)?)
        } else {
            None
        };
        let range = self.place(at, len, flags)?;
        let objects = &self.kernel.machine.get().objects;
        // Shared anonymous memory is an object that only mappings use.
        let (id, own) = match object {
            Some(Some(id)) => (id, false),
            None | Some(None) if shared => (objects.create(len)?, true),
            None | Some(None) => (0, false),
        };
        let result = self.map_at(range, area, id, if own { 0 } else { offset }, flags);
        if own {
            let machine = self.kernel.machine.get();
            machine.objects.release(machine.frames(), machine.low(), id);
        }
        result
    }

    fn map_at(
        &mut self,
        range: VirtRange,
        area: AreaFlags,
        id: u32,
        offset: u64,
        flags: u64,
    ) -> Result<u64, Errno> {
        let area = if id == 0 { area } else { area.with(AreaFlags::BACKED) };
        if id != 0 {
            self.note_mapped(id)?;
        }
        let on = self.on();
        let mapped = self.space().edit(on, |mut edit| {
            let mapped = edit.mmap(range, area, Object { id, offset }).map_err(error);
            if mapped.is_ok() && flags & MAP_POPULATE != 0 {
                let access = if area.has(AreaFlags::WRITE) { Access::Write } else { Access::Read };
                // What is not there comes when it is touched.
                let _ = edit.populate(range, access);
            }
            mapped
        })?;
        // Fixed places may have held others' last pages; and a failure leaves none of this one.
        self.forget_unmapped();
        mapped.map(|()| range.start)
    }

    /// Returns the object of a file that is to be mapped; `None` for `/dev/zero`.
    fn file_object(&mut self, descriptor: usize, write: bool) -> Result<Option<u32>, Errno> {
        let file = self.process().files.get(descriptor)?;
        let open = self.state.open.get(file);
        let What::Inode(inode) = open.what else { return Err(Errno::ENODEV) };
        if !open.reads() || (write && !open.writes()) {
            return Err(Errno::EACCES);
        }
        match self.state.tree.get(inode).kind {
            Kind::File(object) => Ok(Some(object)),
            Kind::Device(Device::Zero) => Ok(None),
            _ => Err(Errno::ENODEV),
        }
    }

    /// Finds a place for `len` bytes.
    fn place(&mut self, at: u64, len: u64, flags: u64) -> Result<VirtRange, Errno> {
        let on = self.on();
        let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let wanted = at & !(PAGE - 1);
        let wanted = wanted.checked_add(len).map(|end| VirtRange { start: wanted, end });
        let wanted = wanted.filter(|range| range.end <= A::Format::USER_END - GUARD);
        self.space().edit(on, |edit| {
            let is_free = |range: VirtRange| {
                edit.areas().at_or_after(on, range.start).is_none_or(|area| area.start >= range.end)
            };
            if is_fixed {
                let range = wanted.filter(|_| at.is_multiple_of(PAGE)).ok_or(Errno::EINVAL)?;
                if at < PAGE {
                    return Err(Errno::EPERM);
                }
                if flags & MAP_FIXED_NOREPLACE != 0 && !is_free(range) {
                    return Err(Errno::EEXIST);
                }
                return Ok(range);
            }
            if let Some(range) = wanted
                && range.start >= PAGE
                && is_free(range)
            {
                return Ok(range);
            }
            let gap = edit.find_gap(len, A::STACK_END - BELOW_STACK);
            gap.filter(|gap| gap.start >= PAGE).ok_or(Errno::ENOMEM)
        })?
    }

    /// Makes the caller a user of an object that it is about to map.
    fn note_mapped(&mut self, id: u32) -> Result<(), Errno> {
        let record = self.record();
        if record.mapped.contains(&id) {
            return Ok(());
        }
        let place = record.mapped.iter_mut().find(|object| **object == 0).ok_or(Errno::ENOMEM)?;
        *place = id;
        self.kernel.machine.get().objects.share(id);
        Ok(())
    }

    /// Ends the caller's use of objects that none of its areas shows any more.
    fn forget_unmapped(&mut self) {
        if self.record().mapped.iter().all(|object| *object == 0) {
            return;
        }
        let (on, mapped) = (self.on(), self.record().mapped);
        let mut seen = [false; crate::task::MAPPED];
        let all = VirtRange { start: 0, end: A::Format::USER_END };
        let visited = self.space().edit(on, |edit| {
            edit.areas().each(on, all, |area| {
                if area.object != 0
                    && let Some(place) = mapped.iter().position(|object| *object == area.object)
                {
                    seen[place] = true;
                }
            })
        });
        if !matches!(visited, Ok(Ok(()))) {
            return;
        }
        let keeps = |id: u32| mapped.iter().zip(&seen).any(|(object, seen)| *object == id && *seen);
        self.kernel.unmap_objects(self.state, self.state.tasks.space_of(self.me), keeps);
    }

    /// `munmap`.
    pub(super) fn unmap(&mut self, at: u64, len: u64) -> Result<u64, Errno> {
        let (on, range) = (self.on(), range(at, len)?);
        self.space().edit(on, |mut edit| edit.munmap(range))?.map_err(error)?;
        self.forget_unmapped();
        Ok(0)
    }

    /// `mprotect`.
    pub(super) fn protect(&mut self, at: u64, len: u64, prot: u64) -> Result<u64, Errno> {
        if at.is_multiple_of(PAGE) && len == 0 {
            return Ok(0);
        }
        let (on, range) = (self.on(), range(at, len)?);
        let permissions = AreaFlags(prot as u16 & 7);
        self.space().edit(on, |mut edit| edit.mprotect(range, permissions))?.map_err(error)?;
        Ok(0)
    }

    /// `mremap`.
    pub(super) fn remap(&mut self, [at, old, new, flags, to, _]: [u64; 6]) -> Result<u64, Errno> {
        const MAYMOVE: u64 = 1;
        const FIXED: u64 = 2;
        const DONTUNMAP: u64 = 4;
        let (from, new_len) = (range(at, old)?, round_up(new)?);
        if new_len == 0 || flags & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        let here = at.checked_add(new_len).ok_or(Errno::ENOMEM)?;
        let mut fixed = None;
        if flags & FIXED != 0 {
            let target = range(to, new)?;
            if target.start < PAGE || target.end > A::Format::USER_END - GUARD {
                return Err(Errno::EINVAL);
            }
            fixed = Some(target);
        }
        let on = self.on();
        let target = self.space().edit(on, |mut edit| {
            let next = edit.areas().at_or_after(on, from.end);
            let grows = here > from.end && next.is_some_and(|area| area.start < here);
            let mut target = VirtRange { start: at, end: here };
            if flags & (FIXED | DONTUNMAP) != 0 || grows || here > A::Format::USER_END - GUARD {
                if flags & MAYMOVE == 0 {
                    return Err(Errno::ENOMEM);
                }
                let gap = || edit.find_gap(new_len, A::STACK_END - BELOW_STACK).ok_or(Errno::ENOMEM);
                target = fixed.map_or_else(gap, Ok)?;
            }
            edit.mremap(from, target, flags & DONTUNMAP != 0).map_err(|e| match e {
                AreaError::NoArea(_) => Errno::EFAULT,
                e => error(e),
            })?;
            Ok(target)
        })??;
        self.forget_unmapped();
        Ok(target.start)
    }

    /// `madvise`.
    pub(super) fn advise(&mut self, at: u64, len: u64, advice: u64) -> Result<u64, Errno> {
        if len == 0 {
            return Ok(0);
        }
        let (on, range) = (self.on(), range(at, len)?);
        let advice = match advice {
            4 => Advice::DontNeed,
            10 => Advice::DontFork(true),
            11 => Advice::DontFork(false),
            18 => Advice::WipeOnFork(true),
            19 => Advice::WipeOnFork(false),
            22 => Advice::Populate(Access::Read),
            23 => Advice::Populate(Access::Write),
            // Advice that the library has no use for.
            0..=3 | 8 | 12..=17 | 20 | 21 => return Ok(0),
            _ => return Err(Errno::EINVAL),
        };
        self.space().edit(on, |mut edit| edit.madvise(range, advice))?.map_err(error)?;
        Ok(0)
    }

    /// `brk`.
    pub(super) fn set_break(&mut self, at: u64) -> Result<u64, Errno> {
        let (heap, end) = (self.record().heap, self.record().heap_end);
        if at < heap || at >= A::STACK_END - BELOW_STACK || at == end {
            return Ok(end);
        }
        let on = self.on();
        if !matches!(self.space().edit(on, |mut edit| edit.brk(VirtAddr(at))), Ok(Ok(()))) {
            return Ok(end);
        }
        self.record().heap_end = at;
        Ok(at)
    }
}
