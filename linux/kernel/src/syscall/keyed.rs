//! `shmget`, `shmat`, `shmdt` and `shmctl`.

use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::format::Format;
use ptarmigan::space::{AreaFlags, Object};

use super::layout::Layout;
use super::map::{MAP_FIXED, READ_ONLY, mapped};
use super::time::SECOND;
use super::{SEGMENT, Sys};
use crate::State;
use crate::arch::{Abi, Arch};
use crate::errno::Errno;
use crate::fs::keyed::{KeyedMemory, SEGMENTS};
use crate::memory::objects::MOST_BYTES;

const PAGE: u64 = FRAME_SIZE as u64;

impl<A: Arch> Sys<'_, A> {
    /// `ipc` of i386, which makes the calls here; there are no others of its family.
    pub(super) fn keyed_call(&mut self, a: [u64; 6]) -> Result<u64, Errno> {
        match a[0] as u16 {
            21 => {
                let at = self.attach_keyed(a[1], a[4], a[2])?;
                self.answer(a[3], &at.to_le_bytes()[..A::ABI.word()])
            }
            22 => self.detach_keyed(a[4]),
            23 => self.keyed_memory(a[1], a[2], a[3]),
            24 => self.control_keyed(a[1], a[2], a[4]),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// `shmget`. There are no segments of large pages.
    pub(super) fn keyed_memory(&mut self, key: u64, size: u64, flags: u64) -> Result<u64, Errno> {
        const CREATE: u64 = 0o1000;
        const EXCLUSIVE: u64 = 0o2000;
        const HUGE: u64 = 0o4000;
        let key = key as i32;
        if let Some(number) = self.state.keyed.find(key) {
            Errno::EEXIST.when(flags & (CREATE | EXCLUSIVE) == CREATE | EXCLUSIVE)?;
            Errno::EINVAL.when(size > self.state.keyed.get(number)?.size)?;
            return Ok(number as u64);
        }
        Errno::ENOENT.when(key != 0 && flags & CREATE == 0)?;
        Errno::EINVAL.when(size == 0 || size > MOST_BYTES || flags & HUGE != 0)?;
        let object = self.kernel.objects().create(size.next_multiple_of(PAGE))?;
        let (mode, creator) = (flags as u16 & 0o777, self.process().pid);
        let now = self.wall_time();
        let made = self.state.keyed.add(KeyedMemory::describe(key, object, size, mode, creator, now));
        made.inspect_err(|_| self.kernel.objects().release(object)).map(|number| number as u64)
    }

    /// `shmat`: returns the address.
    pub(super) fn attach_keyed(&mut self, number: u64, at: u64, flags: u64) -> Result<u64, Errno> {
        const ONLY_READ: u64 = 0o10_000;
        const ROUND: u64 = 0o20_000;
        const REPLACE: u64 = 0o40_000;
        const EXECUTE: u64 = 0o100_000;
        let segment = *self.state.keyed.get(number as i32)?;
        let at = if flags & ROUND != 0 { at & !(PAGE - 1) } else { at };
        Errno::EINVAL.when(!at.is_multiple_of(PAGE) || (at == 0 && flags & REPLACE != 0))?;
        let range =
            self.place(at, segment.size.next_multiple_of(PAGE), if at == 0 { 0 } else { MAP_FIXED })?;
        if at != 0 && flags & REPLACE == 0 {
            let on = self.on();
            let next = self.space().edit(on, |edit| edit.areas().at_or_after(on, range.start))?;
            Errno::EINVAL.when(next.is_some_and(|area| area.start < range.end))?;
        }
        let (mut area, mut tag) = (AreaFlags::SHARED.with(AreaFlags::READ), SEGMENT);
        if flags & ONLY_READ == 0 {
            area = area.with(AreaFlags::WRITE);
        } else {
            tag |= READ_ONLY;
        }
        if flags & EXECUTE != 0 {
            area = area.with(AreaFlags::EXEC);
        }
        let object = Object { id: segment.object, offset: 0 };
        let at = self.map_at(mapped(range, area, object, tag), 0)?;
        let pid = self.process().pid;
        let segment = self.state.keyed.get(number as i32)?;
        (segment.last, segment.times[0]) = (pid, A::now());
        Ok(at)
    }

    /// `shmdt`: unmaps all that is left of the segment that was attached at the address.
    pub(super) fn detach_keyed(&mut self, at: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(!at.is_multiple_of(PAGE))?;
        let (on, mut object) = (self.on(), 0);
        let mut from = at;
        loop {
            let next = self.space().edit(on, |edit| edit.areas().at_or_after(on, from))?;
            let Some(area) = next.filter(|area| area.end <= A::Format::USER_END) else { break };
            let is_it = area.tag & SEGMENT != 0
                && area.start.checked_sub(area.offset_at(area.start)) == Some(at)
                && [0, area.object].contains(&object);
            let size = self.kernel.objects().size(area.object);
            if is_it {
                object = area.object;
                let range = area.range();
                self.unmap(range.start, range.len())?;
            } else if object == 0 || area.start >= at + size {
                break;
            }
            from = area.end;
        }
        Errno::EINVAL.when(object == 0)?;
        let pid = self.process().pid;
        if let Some(segment) = self.state.keyed.of_object(object) {
            (segment.last, segment.times[1]) = (pid, A::now());
        }
        Ok(0)
    }

    /// `shmctl`.
    pub(super) fn control_keyed(&mut self, number: u64, command: u64, at: u64) -> Result<u64, Errno> {
        /// The version of structures with wide numbers, which are the only ones.
        const WIDE: u64 = 0x100;
        match command as u32 as u64 & !WIDE {
            // `IPC_RMID`, `IPC_SET`, `IPC_STAT`, `IPC_INFO`.
            0 => {
                self.state.keyed.remove(number as i32)?;
                self.kernel.drop_keyed(self.state);
                Ok(0)
            }
            1 => {
                let mode_at = at.checked_add(20).ok_or(Errno::EFAULT)?;
                self.state.keyed.get(number as i32)?;
                let mode = self.read_u32(mode_at)?;
                let segment = self.state.keyed.get(number as i32)?;
                (segment.mode, segment.times[2]) = (mode as u16 & 0o777, A::now());
                Ok(0)
            }
            2 => self.put_keyed(number as i32, at).map(|_| 0),
            3 => {
                let mut out = Layout::<72>::new(A::ABI);
                out.word(MOST_BYTES.min(u64::from(u32::MAX))).word(1).word(SEGMENTS as u64);
                out.word(SEGMENTS as u64).word(u64::from(u32::MAX)).word(0).word(0).word(0).word(0);
                self.write_bytes(at, out.bytes())?;
                Ok(self.state.keyed.used().0 as u64)
            }
            // `SHM_LOCK` and `SHM_UNLOCK`: pages stay in memory.
            11 | 12 => self.state.keyed.get(number as i32).map(|_| 0),
            // `SHM_STAT` and `SHM_STAT_ANY`, by place.
            13 | 15 => {
                let number = self.state.keyed.number_at(number).ok_or(Errno::EINVAL)?;
                self.put_keyed(number, at)?;
                Ok(number as u64)
            }
            // `SHM_INFO`.
            14 => {
                let (highest, count) = self.state.keyed.used();
                let mut out = Layout::<48>::new(A::ABI);
                out.u32(count as u32).at(A::ABI.word());
                out.word(0).word(0).word(0).word(0).word(0);
                self.write_bytes(at, out.bytes())?;
                Ok(highest as u64)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes a `struct shmid64_ds`. Processes that show the segment count once each.
    fn put_keyed(&mut self, number: i32, at: u64) -> Result<(), Errno> {
        const REMOVED: u32 = 0o1000;
        let one = *self.state.keyed.get(number)?;
        let shown = u64::from(self.kernel.objects().users(one.object)).saturating_sub(1);
        let mode = u32::from(one.mode) | if one.is_removed { REMOVED } else { 0 };
        let mut out = Layout::<112>::new(A::ABI);
        out.u32(one.key as u32).u32(0).u32(0).u32(0).u32(0).u32(mode).u16(one.turn).u16(0);
        if A::ABI.word() == 8 {
            out.at(32);
        }
        out.word(0).word(0).word(one.size);
        for time in one.times {
            match A::ABI {
                Abi::I386 => out.u64(time / SECOND),
                _ => out.word(time / SECOND),
            };
        }
        out.u32(one.creator as u32).u32(one.last as u32).word(shown).word(0).word(0);
        self.write_bytes(at, out.bytes())
    }
}

impl<A: Arch> crate::Kernel<A> {
    /// Gives the objects of removed segments back that no space shows any more.
    #[cold]
    pub(crate) fn drop_keyed(&'static self, state: &mut State) {
        let objects = self.objects();
        while let Some(object) = state.keyed.take_gone(|object| objects.users(object) > 1) {
            self.release_object(object);
        }
    }
}
