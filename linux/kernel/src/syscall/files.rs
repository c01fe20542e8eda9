//! Descriptors: open, close, read, write, pipes.

use super::links::View;
use super::locks::Command;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::blocking::NONBLOCK;
use crate::fs::path::{self, Found, PATH};
use crate::fs::tree::NONE;
use crate::fs::{Device, Kind, What};

/// The directory that a task is in, for calls with `at` in their names.
pub const AT_FDCWD: i32 = -100;
const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_TRUNC: u64 = 0o1000;
const O_APPEND: u64 = 0o2000;
/// `O_CLOEXEC`, and the flag of other calls with its value.
pub(super) const CLOEXEC: u64 = 0o2_000_000;
const F_NOTIFY: u64 = 1026;
const F_SETPIPE_SZ: u64 = 1031;
const F_GETPIPE_SZ: u64 = 1032;
const RWF_HIPRI: u64 = 1;
const RWF_DSYNC: u64 = 2;
const RWF_SYNC: u64 = 4;

impl<A: Arch> Sys<'_, A> {
    /// Returns the open file of a descriptor.
    pub(super) fn file(&mut self, descriptor: u64) -> Result<usize, Errno> {
        self.process().files.get(usize::try_from(descriptor).unwrap_or(usize::MAX))
    }

    /// Returns the first descriptor that the caller may not have (`RLIMIT_NOFILE`).
    pub(super) fn most_files(&mut self) -> usize {
        usize::try_from(self.process().limits.files.soft).unwrap_or(usize::MAX)
    }

    /// Checks that there is room for one more open file, and a descriptor of it: `open` changes no
    /// file otherwise.
    fn has_room(&mut self) -> Result<(), Errno> {
        let most = self.most_files();
        Errno::EMFILE.when(self.process().files.is_full(most))?;
        Errno::ENFILE.when(self.state.open.is_full())
    }

    /// Follows a path of the program's.
    pub(super) fn find(&mut self, directory: u64, at: u64, follow: bool) -> Result<Found, Errno> {
        let mut name = [0; PATH];
        let n = self.read_text(at, &mut name)?;
        Errno::ENOENT.when(n == 0)?;
        let own = self.process_slot();
        let from = match directory as i32 {
            AT_FDCWD => (self.process().directory, own),
            _ if name[0] == b'/' => (crate::fs::tree::ROOT, own),
            descriptor => {
                let file = self.file(descriptor as u64)?;
                let open = self.state.open.get(file);
                let process = self.state.tasks.find_process(open.process);
                match open.what {
                    What::Inode(inode) if self.state.tree.is_directory(inode) => {
                        (inode, process.unwrap_or(own))
                    }
                    _ => return Err(Errno::ENOTDIR),
                }
            }
        };
        let links = View { tasks: &self.state.tasks, open: &self.state.open, caller: own };
        path::follow_path(&self.state.tree, &links, (from.0, from.1 as u16), &name[..n], follow)
    }

    /// Returns the file that a path of the program's leads to.
    pub(super) fn existing(&mut self, directory: u64, at: u64) -> Result<u32, Errno> {
        self.find(directory, at, true)?.existing(&self.state.tree)
    }

    /// Sets the permissions of a file.
    pub(super) fn set_mode(&mut self, inode: u32, mode: u64) -> u64 {
        self.state.tree.get_mut(inode).mode = mode as u16 & 0o7777;
        0
    }

    /// Makes an empty file.
    fn create_file(&mut self, found: &Found, mode: u64) -> Result<u32, Errno> {
        Errno::EISDIR.when(found.wants_directory)?;
        let object = self.kernel.objects().create(0)?;
        let mode = mode as u16 & !self.process().umask;
        let made = self.state.tree.create(found.directory, found.name(), Kind::File(object), mode);
        let made = made.inspect_err(|_| self.kernel.objects().release(object))?;
        self.state.tree.get_mut(made).changed = self.wall_time();
        Ok(made)
    }

    /// `mknodat`: files alone. A pipe, a socket or a device is refused as by a file system of
    /// Linux's without them, such as `vfat`.
    pub(super) fn make_node(&mut self, directory: u64, at: u64, mode: u64) -> Result<u64, Errno> {
        let kind = mode & 0o170_000;
        match kind {
            // No kind, a file, a pipe, a socket, devices of both kinds; a directory.
            0 | 0o100_000 | 0o010_000 | 0o140_000 | 0o020_000 | 0o060_000 => {}
            0o040_000 => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        }
        let found = self.find(directory, at, false)?;
        Errno::EEXIST.when(found.file != NONE)?;
        Errno::ENOENT.when(found.wants_directory)?;
        Errno::EPERM.when(!matches!(kind, 0 | 0o100_000))?;
        self.create_file(&found, mode).map(|_| 0)
    }

    /// `openat`.
    pub(super) fn open(&mut self, directory: u64, at: u64, flags: u64, mode: u64) -> Result<u64, Errno> {
        let (directory_only, no_follow) = A::ABI.directory_flags();
        self.has_room()?;
        let follow = flags & no_follow == 0 && flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL;
        let found = self.find(directory, at, follow)?;
        if let Some(target) = found.target {
            return self.open_again(target, flags);
        }
        let inode = match found.existing(&self.state.tree) {
            Ok(_) if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => return Err(Errno::EEXIST),
            Ok(inode) => inode,
            Err(Errno::ENOENT) if flags & O_CREAT != 0 => self.create_file(&found, mode)?,
            Err(e) => return Err(e),
        };
        let writes = flags & 3 != 0;
        match self.state.tree.get(inode).kind {
            Kind::Link(_) | Kind::Magic(_) => return Err(Errno::ELOOP),
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
        if matches!(self.state.tree.get(inode).kind, Kind::Proc(_) | Kind::Directory) {
            self.state.open.get_mut(file).process = self.state.tasks.process(found.process.into()).pid;
        }
        self.descriptor(file, 0, flags & CLOEXEC != 0)
    }

    /// Opens a file that is in no directory, by its name in `/proc`.
    fn open_again(&mut self, target: What, flags: u64) -> Result<u64, Errno> {
        Errno::EEXIST.when(flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL)?;
        let (pipe, what) = match (target, flags & 3) {
            (What::PipeRead(pipe) | What::PipeWrite(pipe), 0) => (pipe, What::PipeRead(pipe)),
            (What::PipeRead(pipe) | What::PipeWrite(pipe), 1) => (pipe, What::PipeWrite(pipe)),
            (What::PipeRead(_) | What::PipeWrite(_), _) => return Err(Errno::EINVAL),
            _ => return Err(Errno::ENXIO),
        };
        let kept = flags & (3 | u64::from(NONBLOCK));
        let file = self.state.open.open(what, kept as u32)?;
        let pipe = self.state.pipes.get_mut(pipe);
        let users = if flags & 3 == 0 { &mut pipe.readers } else { &mut pipe.writers };
        *users += 1;
        self.descriptor(file, 0, flags & CLOEXEC != 0)
    }

    /// Gives an open file a descriptor, or closes it.
    pub(super) fn descriptor(&mut self, file: usize, least: usize, closing: bool) -> Result<u64, Errno> {
        let most = self.most_files();
        let added = self.process().files.add(file, least..most, closing);
        added.map(|new| new as u64).inspect_err(|_| self.kernel.close_file(self.state, file))
    }

    /// `close`.
    pub(super) fn close(&mut self, descriptor: u64) -> Result<u64, Errno> {
        let descriptor = usize::try_from(descriptor).map_err(|_| Errno::EBADF)?;
        if self.kernel.close(self.state, self.process_slot(), descriptor) { Ok(0) } else { Err(Errno::EBADF) }
    }

    /// Returns the open file of a descriptor for a call at a position, if it has one.
    fn file_at(&mut self, descriptor: u64, at: Option<u64>) -> Result<usize, Errno> {
        Errno::EINVAL.when(at.is_some_and(|at| at > i64::MAX as u64))?;
        let file = self.file(descriptor)?;
        let has_positions = match self.state.open.get(file).what {
            What::Inode(inode) => self.state.tree.get(inode).kind != Kind::Device(Device::Console),
            _ => false,
        };
        Errno::ESPIPE.when(at.is_some() && !has_positions)?;
        Ok(file)
    }

    /// `read` and `pread64`.
    pub(super) fn read(&mut self, descriptor: u64, to: u64, len: u64, at: Option<u64>) -> Result<u64, Stop> {
        let file = self.file_at(descriptor, at)?;
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
        let file = self.file_at(descriptor, at)?;
        Ok(self.write_file(file, from, len as usize, at)? as u64)
    }

    /// `preadv2` and `pwritev2`. Files are in memory: a write is over when the call returns.
    pub(super) fn vector_with_flags(&mut self, a: [u64; 6], writes: bool) -> Result<u64, Stop> {
        const KNOWN: u64 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC;
        let position = Self::wide(a[3], a[4]);
        Errno::EOPNOTSUPP.when(a[5] & !KNOWN != 0)?;
        self.vector([a[0], a[1], a[2]], Some(position).filter(|at| *at != u64::MAX), writes)
    }

    /// `readv`, `writev`, and those at a position.
    pub(super) fn vector(
        &mut self,
        [descriptor, list, count]: [u64; 3],
        position: Option<u64>,
        writes: bool,
    ) -> Result<u64, Stop> {
        let file = self.file_at(descriptor, position)?;
        Errno::EINVAL.when(count > 1024)?;
        let word = A::ABI.word() as u64;
        let mut done = 0;
        for i in 0..count {
            let at = list.checked_add(i * 2 * word).ok_or(Errno::EFAULT)?;
            let here = position.map(|position| position + done);
            let piece = self.read_word(at).and_then(|start| Ok((start, self.read_word(at + word)?)));
            let result = match piece {
                Ok((_, 0)) => continue,
                Ok((start, len)) if writes => self.write_file(file, start, len as usize, here),
                Ok((start, len)) => self.read_file(file, start, len as usize, here),
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

    /// `lseek`.
    pub(super) fn seek(&mut self, descriptor: u64, offset: i64, whence: u64) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let open = *self.state.open.get(file);
        let What::Inode(inode) = open.what else { return Err(Errno::ESPIPE) };
        let base = match (whence, self.state.tree.get(inode).kind) {
            (_, Kind::Device(Device::Null | Device::Zero | Device::Full)) => return Ok(0),
            (_, Kind::Device(_)) => return Err(Errno::ESPIPE),
            (0, _) => 0,
            (1, _) => open.offset,
            (2, Kind::File(object)) => self.kernel.objects().size(object),
            (3 | 4, Kind::File(_)) => {
                let at = self.next_data(file, offset, whence == 4)?;
                self.state.open.get_mut(file).offset = at;
                return Ok(at);
            }
            _ => return Err(Errno::EINVAL),
        };
        let at = base.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
        self.state.open.get_mut(file).offset = at;
        Ok(at)
    }

    /// `pipe2`.
    pub(super) fn pipe(&mut self, at: u64, flags: u64) -> Result<u64, Errno> {
        let kept = (flags & u64::from(NONBLOCK)) as u32;
        let closing = flags & CLOEXEC != 0;
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
        let most = self.most_files();
        let least = usize::try_from(least).ok().filter(|least| *least < most).ok_or(Errno::EINVAL)?;
        let new = self.process().files.add(file, least..most, closing)?;
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
        Errno::EBADF.when(new >= self.most_files())?;
        // Shared first: the old file of the place may be the same.
        self.state.open.share(file);
        self.kernel.close(self.state, self.process_slot(), new);
        self.process().files.set(new, file, flags & CLOEXEC != 0);
        Ok(to)
    }

    /// `fcntl`.
    pub(super) fn control(&mut self, descriptor: u64, command: u64, value: u64) -> Result<u64, Stop> {
        let file = self.file(descriptor)?;
        match Command::new(command, A::ABI) {
            Some(command) => self.lock_control(file, command, value),
            None => Ok(self.file_control(file, descriptor, command, value)?),
        }
    }

    fn file_control(&mut self, file: usize, descriptor: u64, command: u64, value: u64) -> Result<u64, Errno> {
        /// All bits but `DN_MULTISHOT`.
        const EVENTS: u64 = 0x7fff_ffff;
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
            F_SETPIPE_SZ | F_GETPIPE_SZ => match self.state.open.get(file).what {
                What::PipeRead(pipe) | What::PipeWrite(pipe) if command == F_SETPIPE_SZ => {
                    self.kernel.resize_pipe(self.state, pipe, value)
                }
                What::PipeRead(pipe) | What::PipeWrite(pipe) => {
                    Ok(self.state.pipes.get(pipe).capacity as u64)
                }
                _ => Err(Errno::EBADF),
            },
            // Directories are not watched: there is no watch to take away.
            F_NOTIFY if value & EVENTS == 0 => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }
}
