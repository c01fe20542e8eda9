//! Descriptors: open, close, read, write, pipes.

use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::io::NONBLOCK;
use crate::fs::path::{self, Found, PATH};
use crate::fs::{Kind, PIPE_CAPACITY, What};

/// The directory that a task is in, for calls with `at` in their names.
pub const AT_FDCWD: i32 = -100;
const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_TRUNC: u64 = 0o1000;
const O_APPEND: u64 = 0o2000;
const O_CLOEXEC: u64 = 0o2_000_000;
const F_GETPIPE_SZ: u64 = 1032;

impl<A: Arch> Sys<'_, A> {
    /// Returns the open file of a descriptor.
    pub(super) fn file(&mut self, descriptor: u64) -> Result<usize, Errno> {
        self.process().files.get(usize::try_from(descriptor).unwrap_or(usize::MAX))
    }

    /// Follows a path of the program's.
    pub(super) fn find(&mut self, directory: u64, at: u64, follow: bool) -> Result<Found, Errno> {
        let mut name = [0; PATH];
        let n = self.read_text(at, &mut name)?;
        let from = match directory as i32 {
            AT_FDCWD => self.process().directory,
            _ if name[0] == b'/' => crate::fs::tree::ROOT,
            descriptor => {
                let file = self.file(descriptor as u64)?;
                match self.state.open.get(file).what {
                    What::Inode(inode) if self.state.tree.is_directory(inode) => inode,
                    _ => return Err(Errno::ENOTDIR),
                }
            }
        };
        path::resolve(&self.state.tree, from, &name[..n], follow)
    }

    /// Returns the file that a path of the program's leads to.
    pub(super) fn existing(&mut self, directory: u64, at: u64) -> Result<u16, Errno> {
        self.find(directory, at, true)?.existing(&self.state.tree)
    }

    /// Sets the permissions of a file.
    pub(super) fn set_mode(&mut self, inode: u16, mode: u64) -> u64 {
        self.state.tree.get_mut(inode).mode = mode as u16 & 0o7777;
        0
    }

    /// Makes an empty file.
    fn create_file(&mut self, found: &Found, mode: u64) -> Result<u16, Errno> {
        Errno::EISDIR.when(found.wants_directory)?;
        let object = self.kernel.objects().create(0)?;
        let mode = mode as u16 & !self.process().umask;
        let made = self.state.tree.create(found.directory, found.name(), Kind::File(object), mode);
        made.inspect_err(|_| self.kernel.objects().release(object))
    }

    /// `openat`.
    pub(super) fn open(&mut self, directory: u64, at: u64, flags: u64, mode: u64) -> Result<u64, Errno> {
        let (directory_only, no_follow) = A::ABI.directory_flags();
        let follow = flags & no_follow == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
        let found = self.find(directory, at, follow)?;
        let inode = match found.existing(&self.state.tree) {
            Ok(_) if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => return Err(Errno::EEXIST),
            Ok(inode) => inode,
            Err(Errno::ENOENT) if flags & O_CREAT != 0 => self.create_file(&found, mode)?,
            Err(e) => return Err(e),
        };
        let writes = flags & 3 != 0;
        match self.state.tree.get(inode).kind {
            Kind::Link(_) => return Err(Errno::ELOOP),
            Kind::Directory if writes => return Err(Errno::EISDIR),
            Kind::Directory => {}
            _ if flags & directory_only != 0 => return Err(Errno::ENOTDIR),
            Kind::File(object) if writes && flags & O_TRUNC != 0 => {
                self.kernel.objects().set_size(object, 0)?;
            }
            _ => {}
        }
        let kept = flags & (3 | O_APPEND | u64::from(NONBLOCK));
        let file = self.state.open.open(What::Inode(inode), kept as u32)?;
        self.state.tree.hold(inode);
        self.descriptor(file, 0, flags & O_CLOEXEC != 0)
    }

    /// Gives an open file a descriptor, or closes it.
    fn descriptor(&mut self, file: usize, least: usize, closing: bool) -> Result<u64, Errno> {
        let added = self.process().files.add(file, least, closing);
        added.map(|new| new as u64).inspect_err(|_| self.kernel.close_file(self.state, file))
    }

    /// `close`.
    pub(super) fn close(&mut self, descriptor: u64) -> Result<u64, Errno> {
        let descriptor = usize::try_from(descriptor).map_err(|_| Errno::EBADF)?;
        if self.kernel.close(self.state, self.process_slot(), descriptor) { Ok(0) } else { Err(Errno::EBADF) }
    }

    /// `read` and `pread64`.
    pub(super) fn read(&mut self, descriptor: u64, to: u64, len: u64, at: Option<u64>) -> Result<u64, Stop> {
        let file = self.file(descriptor)?;
        Ok(self.read_file(file, to, len as usize, at)? as u64)
    }

    /// `write` and `pwrite64`.
    pub(super) fn write(
        &mut self,
        descriptor: u64,
        from: u64,
        len: u64,
        at: Option<u64>,
    ) -> Result<u64, Stop> {
        let file = self.file(descriptor)?;
        Ok(self.write_file(file, from, len as usize, at)? as u64)
    }

    /// `readv` and `writev`.
    pub(super) fn vector(
        &mut self,
        descriptor: u64,
        list: u64,
        count: u64,
        writes: bool,
    ) -> Result<u64, Stop> {
        let file = self.file(descriptor)?;
        Errno::EINVAL.when(count > 1024)?;
        let word = A::ABI.word() as u64;
        let mut done = 0;
        for i in 0..count {
            let at = list.checked_add(i * 2 * word).ok_or(Errno::EFAULT)?;
            let piece = self.read_word(at).and_then(|start| Ok((start, self.read_word(at + word)?)));
            let result = match piece {
                Ok((_, 0)) => continue,
                Ok((start, len)) if writes => self.write_file(file, start, len as usize, None),
                Ok((start, len)) => self.read_file(file, start, len as usize, None),
                Err(e) => Err(e.into()),
            };
            match result {
                Ok(n) => {
                    done += n as u64;
                    if piece.is_ok_and(|(_, len)| (n as u64) < len) {
                        break;
                    }
                }
                // The bytes until then count.
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// `sendfile`, by way of a buffer.
    pub(super) fn send_file(&mut self, to: u64, from: u64, offset_at: u64, count: u64) -> Result<u64, Stop> {
        let (to, from) = (self.file(to)?, self.file(from)?);
        let What::Inode(inode) = self.state.open.get(from).what else { return Err(Errno::EINVAL.into()) };
        let (Kind::File(object), What::Inode(target)) =
            (self.state.tree.get(inode).kind, self.state.open.get(to).what)
        else {
            return Err(Errno::EINVAL.into());
        };
        let Kind::File(written) = self.state.tree.get(target).kind else { return Err(Errno::EINVAL.into()) };
        Errno::EINVAL.when(
            !self.state.open.get(from).reads() || !self.state.open.get(to).writes() || offset_at != 0,
        )?;
        let mut done = 0;
        while done < count {
            let mut bytes = [0; 512];
            let most = bytes.len().min((count - done) as usize);
            let offset = self.state.open.get(from).offset;
            let n = self.kernel.read_object(object, offset, &mut bytes[..most]);
            if n == 0 {
                break;
            }
            let at = self.state.open.get(to).offset;
            self.kernel.write_object(written, at, &bytes[..n])?;
            self.state.open.get_mut(from).offset = offset + n as u64;
            self.state.open.get_mut(to).offset = at + n as u64;
            done += n as u64;
        }
        Ok(done)
    }

    /// `lseek`.
    pub(super) fn seek(&mut self, descriptor: u64, offset: i64, whence: u64) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let open = *self.state.open.get(file);
        let What::Inode(inode) = open.what else { return Err(Errno::ESPIPE) };
        let base = match (whence, self.state.tree.get(inode).kind) {
            (_, Kind::Device(_)) => return Err(Errno::ESPIPE),
            (0, _) => 0,
            (1, _) => open.offset,
            (2, Kind::File(object)) => self.kernel.objects().size(object),
            _ => return Err(Errno::EINVAL),
        };
        let at = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
        self.state.open.get_mut(file).offset = at;
        Ok(at)
    }

    /// `pipe2`.
    pub(super) fn pipe(&mut self, at: u64, flags: u64) -> Result<u64, Errno> {
        let kept = (flags & u64::from(NONBLOCK)) as u32;
        let closing = flags & O_CLOEXEC != 0;
        let pipe = self.kernel.create_pipe(self.state)?;
        let reader = self.state.open.open(What::PipeRead(pipe), kept).inspect_err(|_| {
            self.kernel.close_pipe(self.state, pipe, true);
            self.kernel.close_pipe(self.state, pipe, false);
        })?;
        let writer = self.state.open.open(What::PipeWrite(pipe), kept | 1).inspect_err(|_| {
            self.kernel.close_file(self.state, reader);
            self.kernel.close_pipe(self.state, pipe, false);
        })?;
        let first = self.descriptor(reader, 0, closing).inspect_err(|_| {
            self.kernel.close_file(self.state, writer);
        })?;
        let second = self.descriptor(writer, 0, closing).inspect_err(|_| {
            self.kernel.close(self.state, self.process_slot(), first as usize);
        })?;
        let bytes = [first, second].map(|descriptor| (descriptor as u32).to_le_bytes());
        self.write_bytes(at, bytes.as_flattened()).inspect_err(|_| {
            self.kernel.close(self.state, self.process_slot(), first as usize);
            self.kernel.close(self.state, self.process_slot(), second as usize);
        })?;
        Ok(0)
    }

    /// `dup` and the like: the lowest descriptor from `least` on.
    pub(super) fn duplicate(&mut self, descriptor: u64, least: u64, closing: bool) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let least = usize::try_from(least).map_err(|_| Errno::EINVAL)?;
        let new = self.process().files.add(file, least, closing)?;
        self.state.open.share(file);
        Ok(new as u64)
    }

    /// `dup3`; `same` says whether a descriptor may become itself, as with `dup2`.
    pub(super) fn duplicate_to(&mut self, from: u64, to: u64, flags: u64, same: bool) -> Result<u64, Errno> {
        let file = self.file(from)?;
        if from == to {
            return if same { Ok(to) } else { Err(Errno::EINVAL) };
        }
        let new = usize::try_from(to).map_err(|_| Errno::EBADF)?;
        Errno::EBADF.when(new >= crate::fs::DESCRIPTORS)?;
        // Shared first: the old file of the place may be the same.
        self.state.open.share(file);
        self.kernel.close(self.state, self.process_slot(), new);
        self.process().files.set(new, file, flags & O_CLOEXEC != 0);
        Ok(to)
    }

    /// `fcntl`.
    pub(super) fn control(&mut self, descriptor: u64, command: u64, value: u64) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let place = descriptor as usize;
        match command {
            0 => self.duplicate(descriptor, value, false),
            1030 => self.duplicate(descriptor, value, true),
            1 => Ok(u64::from(self.process().files.is_closing(place))),
            2 => {
                self.process().files.set_closing(place, value & 1 != 0);
                Ok(0)
            }
            3 => Ok(u64::from(self.state.open.get(file).flags)),
            4 => {
                let open = self.state.open.get_mut(file);
                let changed = (O_APPEND as u32) | NONBLOCK;
                open.flags = open.flags & !changed | value as u32 & changed;
                Ok(0)
            }
            F_GETPIPE_SZ => match self.state.open.get(file).what {
                What::PipeRead(_) | What::PipeWrite(_) => Ok(PIPE_CAPACITY as u64),
                _ => Err(Errno::EBADF),
            },
            _ => Err(Errno::EINVAL),
        }
    }

    /// `ftruncate`.
    pub(super) fn truncate(&mut self, inode: u16, size: u64) -> Result<u64, Errno> {
        match self.state.tree.get(inode).kind {
            Kind::File(object) => {
                let set = self.kernel.objects().set_size(object, size);
                set.map_err(|_| Errno::EFBIG)?;
                Ok(0)
            }
            Kind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }
}
