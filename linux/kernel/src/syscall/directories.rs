//! Directories and names.

use super::layout::Layout;
use super::stat::EMPTY_PATH;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::path::{self, PATH};
use crate::fs::tree::{NONE, Names, ROOT, TARGET};
use crate::fs::{Kind, What, proc};

impl<A: Arch> Sys<'_, A> {
    /// `mkdirat`.
    pub(super) fn make_directory(&mut self, directory: u64, at: u64, mode: u64) -> Result<u64, Errno> {
        let found = self.find(directory, at, false)?;
        let mode = mode as u16 & !self.process().umask;
        let made = self.state.tree.create(found.directory, found.name(), Kind::Directory, mode)?;
        self.state.tree.get_mut(made).changed = self.wall_time();
        Ok(0)
    }

    /// `unlinkat`.
    pub(super) fn unlink(&mut self, directory: u64, at: u64, is_directory: bool) -> Result<u64, Errno> {
        let found = self.find(directory, at, false)?;
        let inode = found.existing(&self.state.tree)?;
        let is_fixed = inode == ROOT || found.name().is_empty() || found.name() == b".";
        Errno::EINVAL.when(is_fixed && is_directory && self.state.tree.is_directory(inode))?;
        self.may_go(inode, is_directory)?;
        self.state.tree.may_change(found.directory)?;
        self.remove(found.entry);
        Ok(0)
    }

    /// Checks that a name may go: a directory's, which is empty, or another file's.
    fn may_go(&self, inode: u32, is_directory: bool) -> Result<(), Errno> {
        let tree = &self.state.tree;
        match (tree.is_directory(inode), is_directory) {
            (true, false) => Err(Errno::EISDIR),
            (false, true) => Err(Errno::ENOTDIR),
            _ => Errno::ENOTEMPTY.when(tree.each(inode).next().is_some()),
        }
    }

    fn remove(&mut self, entry: u32) {
        let gone = self.state.tree.unlink(entry);
        self.kernel.free_pages(gone);
    }

    /// `renameat`.
    pub(super) fn rename(&mut self, from: [u64; 2], to: [u64; 2]) -> Result<u64, Errno> {
        let old = self.find(from[0], from[1], false)?;
        let inode = old.existing(&self.state.tree)?;
        let new = self.find(to[0], to[1], false)?;
        let plain = |name: &[u8]| !name.is_empty() && name != b"." && name != b"..";
        Errno::EINVAL.when(!plain(old.name()) || !plain(new.name()))?;
        if new.file == inode {
            return Ok(0);
        }
        if new.file != NONE {
            self.may_go(new.file, self.state.tree.is_directory(inode))?;
        }
        self.state.tree.may_change(old.directory)?;
        self.state.tree.may_change(new.directory)?;
        self.state.tree.rename(old.entry, new.directory, new.name())?;
        if new.file != NONE {
            self.remove(new.entry);
        }
        Ok(0)
    }

    /// `linkat`. Files of `/proc` are of another file system, as under Linux, and so are pipes.
    pub(super) fn link(&mut self, from: [u64; 2], to: [u64; 2], flags: u64) -> Result<u64, Errno> {
        const FOLLOW: u64 = 0x400;
        let flags = u64::from(flags as u32);
        Errno::EINVAL.when(flags & !(FOLLOW | EMPTY_PATH) != 0)?;
        let file = if self.is_empty_path(from[1], flags)? {
            match from[0] as i32 {
                super::files::AT_FDCWD => Some(self.process().directory),
                _ => self.inode_of_open(from[0])?,
            }
        } else {
            let old = self.find(from[0], from[1], flags & FOLLOW != 0)?;
            if old.target.is_some() { None } else { Some(old.existing(&self.state.tree)?) }
        };
        let new = self.find(to[0], to[1], false)?;
        Errno::EEXIST.when(new.file != NONE)?;
        // As under Linux: such a name can only be a directory's.
        Errno::ENOENT.when(new.wants_directory)?;
        let file = file.ok_or(Errno::EXDEV)?;
        let is_given = !matches!(self.state.tree.get(file).kind, Kind::Proc(_) | Kind::Magic(_));
        Errno::EXDEV.when(!is_given)?;
        self.state.tree.link(file, new.directory, new.name())?;
        Ok(0)
    }

    /// `symlinkat`.
    pub(super) fn make_link(&mut self, target: u64, directory: u64, at: u64) -> Result<u64, Errno> {
        let mut text = [0; TARGET + 1];
        let n = self.read_text(target, &mut text)?;
        let found = self.find(directory, at, false)?;
        self.state.tree.create_link(found.directory, found.name(), &text[..n])?;
        Ok(0)
    }

    /// `readlinkat`.
    pub(super) fn read_link(&mut self, directory: u64, at: u64, to: u64, len: u64) -> Result<u64, Errno> {
        // Each static program asks for it when it begins: the walk through `/proc` would cost a
        // fork with exec 6 % more.
        if len > 0
            && let Ok(n) = self.read_own_link(at, to, len)
        {
            return Ok(n);
        }
        let found = self.find(directory, at, false)?;
        let inode = found.existing(&self.state.tree)?;
        if let Kind::Magic(link) = self.state.tree.get(inode).kind {
            Errno::EINVAL.when(len == 0)?;
            let text = self.link_text(&found, link)?;
            return self.write_text(to, len, text.bytes());
        }
        let mut text = [0; TARGET];
        let target = self.state.tree.target(inode);
        Errno::EINVAL.when(target.is_empty() || len == 0)?;
        text[..target.len()].copy_from_slice(target);
        let n = target.len();
        self.write_text(to, len, &text[..n])
    }

    /// `readlink` of [`path::OWN_PROGRAM`].
    fn read_own_link(&mut self, at: u64, to: u64, len: u64) -> Result<u64, Errno> {
        let mut name = [0; PATH];
        let n = self.read_text(at, &mut name)?;
        Errno::ENOENT.when(&name[..n] != path::OWN_PROGRAM)?;
        let program = self.process().program;
        let mut text = [0; PATH];
        let n = path::path_of(&self.state.tree, program, &mut text)? - 1;
        self.write_text(to, len, &text[..n])
    }

    /// Writes `len` bytes of a text at the most; returns how many.
    fn write_text(&mut self, to: u64, len: u64, text: &[u8]) -> Result<u64, Errno> {
        let n = text.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        self.write_bytes(to, &text[..n])?;
        Ok(n as u64)
    }

    /// Goes to a directory.
    pub(super) fn enter(&mut self, inode: u32) -> Result<u64, Errno> {
        Errno::ENOTDIR.when(!self.state.tree.is_directory(inode))?;
        self.state.tree.hold(inode);
        let before = core::mem::replace(&mut self.process().directory, inode);
        self.kernel.let_go(self.state, before);
        Ok(0)
    }

    /// `getcwd`.
    pub(super) fn working_directory(&mut self, to: u64, len: u64) -> Result<u64, Errno> {
        let mut text = [0; PATH];
        let directory = self.process().directory;
        let n = path::path_of(&self.state.tree, directory, &mut text)?;
        Errno::ERANGE.when(n as u64 > len)?;
        self.write_bytes(to, &text[..n])?;
        Ok(n as u64)
    }

    /// Returns the file that a descriptor leads to.
    pub(super) fn inode_of(&mut self, descriptor: u64) -> Result<u32, Errno> {
        let file = self.file(descriptor)?;
        match self.state.open.get(file).what {
            What::Inode(inode) => Ok(inode),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `getdents64`.
    pub(super) fn entries(&mut self, descriptor: u64, to: u64, len: u64) -> Result<u64, Stop> {
        let file = self.file(descriptor)?;
        let directory = self.inode_of(descriptor)?;
        Errno::ENOTDIR.when(!self.state.tree.is_directory(directory))?;
        let open = *self.state.open.get(file);
        let process = self.state.tasks.find_process(open.process).unwrap_or(self.process_slot());
        let (mut done, mut index) = (0, open.offset);
        while let Some(DirectoryEntry { inode, name, next }) = self.entry(directory, process, index) {
            let found = self.state.tree.get(inode);
            let name = match &name {
                Name::Entry(entry) => self.state.tree.get(*entry).name(),
                Name::Own(name) => name.bytes(),
            };
            let size = (19 + name.len() + 1).next_multiple_of(8);
            if done + size as u64 > len {
                Errno::EINVAL.when(done == 0)?;
                break;
            }
            let kind = (found.full_mode() >> 12) as u8;
            let mut record = Layout::<96>::new(A::ABI);
            record.u64(inode.into()).u64(next).u16(size as u16).raw(&[kind]).raw(name).at(size);
            self.write_bytes(to + done, record.bytes())?;
            done += size as u64;
            index = next;
        }
        self.state.open.get_mut(file).offset = index;
        Ok(done)
    }

    /// Returns an entry of a directory, in `/proc` that of a process.
    fn entry(&self, directory: u32, process: usize, index: u64) -> Option<DirectoryEntry> {
        /// Names that are numbers begin here.
        const NUMBERS: u64 = 1 << 20;
        let tree = &self.state.tree;
        let dots = |name| Name::Own(Digits::of(name));
        // `.` and `..` first.
        match index {
            0 => return Some(DirectoryEntry { inode: directory, name: dots(b"."), next: 1 }),
            1 => {
                return Some(DirectoryEntry {
                    inode: tree.get(directory).parent,
                    name: dots(b".."),
                    next: 2,
                });
            }
            2..NUMBERS => {
                if let Some(entry) = tree.each(directory).nth((index - 2) as usize) {
                    let inode = tree.file(entry);
                    return Some(DirectoryEntry { inode, name: Name::Entry(entry), next: index + 1 });
                }
            }
            _ => {}
        }
        let from = usize::try_from(index.saturating_sub(NUMBERS)).ok()?;
        let tasks = &self.state.tasks;
        let (inode, place, number) = match tree.get(directory).names {
            Names::Processes => {
                let slot = (from..tasks.slots().end).find(|slot| tasks.is_process(*slot))?;
                (tree.own, slot, tasks.process(slot).pid as u32)
            }
            Names::Descriptors => {
                let files = &tasks.process(process).files;
                let descriptor = (from..files.end()).find(|descriptor| files.get(*descriptor).is_ok())?;
                (tree.descriptor, descriptor, descriptor as u32)
            }
            Names::Given | Names::OfProcess => return None,
        };
        let name = Name::Own(Digits::number(number));
        Some(DirectoryEntry { inode, name, next: NUMBERS + place as u64 + 1 })
    }

    /// `mount`: `/proc` there is; other kinds that programs mount by habit are there already, or
    /// are not.
    pub(super) fn mount(&mut self, at: u64, kind: u64) -> Result<u64, Errno> {
        let mut text = [0; 32];
        let n = self.read_text(kind, &mut text)?;
        let inode = self.existing(super::files::AT_FDCWD as u64, at)?;
        Errno::ENOTDIR.when(!self.state.tree.is_directory(inode))?;
        match &text[..n] {
            b"proc" => proc::fill(&mut self.state.tree, inode)?,
            b"tmpfs" | b"ramfs" => {}
            _ => return Err(Errno::ENODEV),
        }
        Ok(0)
    }
}

/// An entry of a directory.
struct DirectoryEntry {
    inode: u32,
    name: Name,
    /// Where the next one is looked for.
    next: u64,
}

enum Name {
    /// That of an entry.
    Entry(u32),
    /// One that no entry has.
    Own(Digits),
}

/// A short name.
struct Digits {
    bytes: [u8; 10],
    len: usize,
}

impl Digits {
    fn of(name: &[u8]) -> Self {
        let mut digits = Digits { bytes: [0; 10], len: name.len().min(10) };
        digits.bytes[..digits.len].copy_from_slice(&name[..digits.len]);
        digits
    }

    /// The digits of a number.
    fn number(mut number: u32) -> Self {
        let (mut bytes, mut first) = ([0; 10], 10);
        loop {
            first -= 1;
            bytes[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Digits::of(&bytes[first..]);
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_names() {
        for number in [0, 7, 10, 1234, u32::MAX] {
            assert_eq!(Digits::number(number).bytes(), std::format!("{number}").as_bytes());
        }
        assert_eq!(Digits::of(b"..").bytes(), b"..");
    }
}
