//! The contents of files as a whole: their size, holes, copies.

use ptarmigan::addr::{FRAME_SIZE, VirtRange};
use ptarmigan::space::Advice;

use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::io::APPEND;
use crate::fs::{Kind, What};
use crate::memory::objects::MOST_BYTES;
use crate::task::Wait;

const KEEP_SIZE: u64 = 1;
const PUNCH_HOLE: u64 = 2;
/// Bytes that a call copies, or makes pages for, before others get their turn.
const PORTION: u64 = 16 << 20;
/// Modes of `fallocate` that Linux 6.1 knows.
const MODES: u64 = 0x7b;

/// A file of which a copy is made, or that gets it.
#[derive(Clone, Copy)]
struct End {
    file: usize,
    object: u32,
    /// Where the copy begins.
    at: u64,
    /// Where the program keeps that; 0 for the position of the open file.
    place: u64,
}

impl<A: Arch> Sys<'_, A> {
    /// Returns the object of an open file; `None` if it is not a file with pages.
    pub(super) fn object_of(&self, file: usize) -> Option<(u32, u32)> {
        let What::Inode(inode) = self.state.open.get(file).what else { return None };
        match self.state.tree.get(inode).kind {
            Kind::File(object) => Some((inode, object)),
            _ => None,
        }
    }

    /// `memfd_create`: a file in no directory. Without seals, and without huge pages.
    pub(super) fn create_memory_file(&mut self, name: u64, flags: u64) -> Result<u64, Errno> {
        const CLOEXEC: u64 = 1;
        const MOST: usize = 249;
        Errno::EINVAL.when(flags as u32 as u64 & !CLOEXEC != 0)?;
        let mut text = [0; MOST + 1];
        let n = self.read_text(name, &mut text).map_err(|e| match e {
            Errno::ENAMETOOLONG => Errno::EINVAL,
            e => e,
        })?;
        let object = self.kernel.objects().create(0)?;
        let made = self.state.tree.create_unnamed(&text[..n], Kind::File(object), 0o777);
        let inode = made.inspect_err(|_| self.kernel.objects().release(object))?;
        self.state.tree.get_mut(inode).changed = self.wall_time();
        let file = self.state.open.open(What::Inode(inode), 2).inspect_err(|_| {
            self.kernel.let_go(self.state, inode);
        })?;
        self.descriptor(file, 0, flags & CLOEXEC != 0)
    }

    /// `truncate`.
    pub(super) fn truncate(&mut self, at: u64, size: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(size > i64::MAX as u64)?;
        let inode = self.existing(super::files::AT_FDCWD as u64, at)?;
        match self.state.tree.get(inode).kind {
            Kind::File(object) => self.set_size(inode, object, size),
            Kind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `ftruncate`.
    pub(super) fn truncate_open(&mut self, descriptor: u64, size: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(size > i64::MAX as u64)?;
        let file = self.file(descriptor)?;
        let found = self.object_of(file).filter(|_| self.state.open.get(file).writes());
        let (inode, object) = found.ok_or(Errno::EINVAL)?;
        self.set_size(inode, object, size)
    }

    fn set_size(&mut self, inode: u32, object: u32, size: u64) -> Result<u64, Errno> {
        let before = self.kernel.objects().size(object);
        if size > before {
            self.may_reach(size)?;
        }
        self.kernel.objects().set_size(object, size).map_err(|_| Errno::EFBIG)?;
        if size < before {
            self.forget_pages_behind(object, size);
        }
        self.state.tree.get_mut(inode).changed = self.wall_time();
        Ok(0)
    }

    /// Unmaps the pages of an object behind its new end from the caller's own space, copied ones
    /// too, as Linux does in all spaces. Accesses to them are `SIGBUS`, and show zeroes if it
    /// grows.
    fn forget_pages_behind(&mut self, object: u32, size: u64) {
        const PAGE: u64 = FRAME_SIZE as u64;
        if !self.record().shown.has(object) {
            return;
        }
        let (on, end) = (self.on(), size.next_multiple_of(PAGE));
        let _ = self.body.space.edit(on, |mut edit| {
            let mut at = 0;
            while let Some(area) = edit.areas().at_or_after(on, at) {
                at = area.end;
                let start = area.start + end.saturating_sub(area.offset_at(area.start));
                if area.object == object
                    && let Ok(behind) = VirtRange::new(start, area.end)
                    && !behind.is_empty()
                {
                    // The range is one area's.
                    let _ = edit.madvise(behind, Advice::DontNeed);
                }
            }
        });
    }

    /// `fsync` and `fdatasync`: files are in memory alone.
    pub(super) fn synchronize(&mut self, descriptor: u64) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let What::Inode(inode) = self.state.open.get(file).what else { return Err(Errno::EINVAL) };
        match self.state.tree.get(inode).kind {
            Kind::File(_) | Kind::Directory => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `sync_file_range`.
    pub(super) fn synchronize_range(
        &mut self,
        descriptor: u64,
        at: u64,
        len: u64,
        flags: u64,
    ) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let is_over = (at as i64).checked_add(len as i64).is_none_or(|end| end < at as i64);
        Errno::EINVAL.when(flags & !7 != 0 || (at as i64) < 0 || is_over)?;
        Errno::ESPIPE.when(!matches!(self.state.open.get(file).what, What::Inode(_)))?;
        Ok(0)
    }

    /// `fadvise64`: the advice has no effect, as files are in memory alone.
    pub(super) fn advise_file(&mut self, descriptor: u64, len: u64, advice: u64) -> Result<u64, Errno> {
        /// `POSIX_FADV_NOREUSE`, the last one.
        const LAST: u64 = 5;
        let file = self.file(descriptor)?;
        let what = self.state.open.get(file).what;
        Errno::ESPIPE.when(matches!(what, What::PipeRead(_) | What::PipeWrite(_)))?;
        Errno::EINVAL.when((len as i64) < 0 || u64::from(advice as u32) > LAST)?;
        Ok(0)
    }

    /// `fallocate`: pages are made, or given back.
    pub(super) fn allocate(&mut self, descriptor: u64, mode: u64, at: u64, len: u64) -> Result<u64, Stop> {
        let mode = u64::from(mode as u32);
        let file = self.file(descriptor)?;
        let (start, end) = (at as i64, (at as i64).checked_add(len as i64));
        Errno::EINVAL.when(start < 0 || len as i64 <= 0)?;
        Errno::EOPNOTSUPP.when(mode & !MODES != 0 || mode & (PUNCH_HOLE | KEEP_SIZE) == PUNCH_HOLE)?;
        let open = *self.state.open.get(file);
        Errno::EBADF.when(!open.writes())?;
        let What::Inode(inode) = open.what else { return Err(Errno::ESPIPE.into()) };
        let object = match self.state.tree.get(inode).kind {
            Kind::File(object) => object,
            Kind::Directory => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::ENODEV.into()),
        };
        let end = end.ok_or(Errno::EFBIG)? as u64;
        Errno::EFBIG.when(end > MOST_BYTES)?;
        // As `tmpfs` has it.
        Errno::EOPNOTSUPP.when(mode & !(KEEP_SIZE | PUNCH_HOLE) != 0)?;
        let objects = self.kernel.objects();
        // As under Linux, also if the size stays.
        if mode & PUNCH_HOLE == 0 && end > objects.size(object) {
            self.may_reach(end)?;
        }
        if mode & PUNCH_HOLE != 0 {
            objects.punch(object, at..end);
        } else {
            let is_done = objects.fill_holes(object, at..end, PORTION).map_err(|_| Errno::ENOSPC)?;
            if !is_done {
                // The call is made again at the next tick, and finds the pages that are there.
                self.task().deadline = A::now().max(1);
                return Err(Stop::Block(Wait::Time));
            }
            if mode & KEEP_SIZE == 0 && end > objects.size(object) {
                objects.set_size(object, end).map_err(|_| Errno::EFBIG)?;
            }
        }
        self.state.tree.get_mut(inode).changed = self.wall_time();
        Ok(0)
    }

    /// Returns an end of a copy; the program may keep its place in `size` bytes at `place`.
    fn copy_end(&mut self, file: usize, place: u64, size: usize) -> Result<End, Errno> {
        let (_, object) = self.object_of(file).ok_or(Errno::EINVAL)?;
        let at = match place {
            0 => self.state.open.get(file).offset,
            _ => self.read_numbers(place, size).map(|[at]| at)?,
        };
        Errno::EINVAL.when(at > i64::MAX as u64)?;
        Ok(End { file, object, at, place })
    }

    /// Notes where an end of a copy is after `n` bytes.
    fn move_end(&mut self, end: &End, size: usize, n: u64) -> Result<(), Errno> {
        match end.place {
            0 => self.state.open.get_mut(end.file).offset = end.at + n,
            place => self.write_bytes(place, &(end.at + n).to_le_bytes()[..size])?,
        }
        Ok(())
    }

    /// Copies bytes of one file to another, by way of a buffer; returns how many there were.
    fn copy_bytes(&mut self, from: &End, to: &End, count: u64) -> Result<u64, Errno> {
        let mut done = 0;
        while done < count {
            let mut bytes = [0; 512];
            let most = bytes.len().min((count - done) as usize);
            let n = self.kernel.read_object(from.object, from.at + done, &mut bytes[..most]);
            if n == 0 {
                break;
            }
            match self.kernel.write_object(to.object, to.at + done, &bytes[..n]) {
                Err(_) if done > 0 => break,
                written => written.map_err(|_| Errno::ENOSPC)?,
            }
            done += n as u64;
        }
        if done > 0
            && let Some((inode, _)) = self.object_of(to.file)
        {
            self.state.tree.get_mut(inode).changed = self.wall_time();
        }
        Ok(done)
    }

    /// `sendfile`, from file to file; the program's offset has `size` bytes.
    pub(super) fn send_file(&mut self, a: [u64; 6], size: usize) -> Result<u64, Errno> {
        let [to, from, place, count, ..] = a;
        let (from, to) = (self.file(from)?, self.file(to)?);
        Errno::EBADF.when(!self.state.open.get(from).reads())?;
        let from = self.copy_end(from, place, size)?;
        Errno::EBADF.when(!self.state.open.get(to).writes())?;
        Errno::EINVAL.when(self.state.open.get(to).flags & APPEND != 0)?;
        let to = self.copy_end(to, 0, 8)?;
        let count = self.most(count, to.at)?;
        let done = self.copy_bytes(&from, &to, count)?;
        self.move_end(&to, 8, done)?;
        self.move_end(&from, size, done)?;
        Ok(done)
    }

    /// `copy_file_range`.
    pub(super) fn copy_range(&mut self, a: [u64; 6]) -> Result<u64, Errno> {
        let [from, from_place, to, to_place, count, flags] = a;
        let (from, to) = (self.file(from)?, self.file(to)?);
        let (source, target) = (*self.state.open.get(from), *self.state.open.get(to));
        for open in [&source, &target] {
            let What::Inode(inode) = open.what else { return Err(Errno::EINVAL) };
            Errno::EISDIR.when(self.state.tree.is_directory(inode))?;
        }
        Errno::EINVAL.when(flags != 0)?;
        let from = self.copy_end(from, from_place, 8)?;
        let to = self.copy_end(to, to_place, 8)?;
        Errno::EBADF.when(!source.reads() || !target.writes() || target.flags & APPEND != 0)?;
        let left = self.kernel.objects().size(from.object).saturating_sub(from.at);
        let count = self.most(count.min(left), to.at)?;
        let overlaps = from.at < to.at + count && to.at < from.at + count;
        Errno::EINVAL.when(from.object == to.object && overlaps)?;
        let done = self.copy_bytes(&from, &to, count)?;
        self.move_end(&from, 8, done)?;
        self.move_end(&to, 8, done)?;
        Ok(done)
    }

    /// Returns how many of `count` bytes a call writes at `at` at the most.
    fn most(&mut self, count: u64, at: u64) -> Result<u64, Errno> {
        let count = self.within_limit(at, count)?;
        Errno::EFBIG.when(at >= MOST_BYTES && count > 0)?;
        Ok(count.min(MOST_BYTES.saturating_sub(at)).min(PORTION))
    }
}

/// Calls of `lseek` that look for data, or for a hole.
impl<A: Arch> Sys<'_, A> {
    /// Returns where the next byte of data is from `at` on, or with `hole` the next hole; the end
    /// of a file is one.
    pub(super) fn next_data(&self, file: usize, at: i64, hole: bool) -> Result<u64, Errno> {
        let (_, object) = self.object_of(file).ok_or(Errno::EINVAL)?;
        let at = u64::try_from(at).map_err(|_| Errno::ENXIO)?;
        self.kernel.objects().next_data(object, at, hole).ok_or(Errno::ENXIO)
    }
}
