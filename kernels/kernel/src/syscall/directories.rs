//! Directories and names.

use super::layout::Layout;
use super::{Stop, Sys};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::path::{self, PATH};
use crate::fs::tree::{NONE, ROOT, TARGET};
use crate::fs::{Kind, What, proc};

impl<A: Arch> Sys<'_, A> {
    /// `mkdirat`.
    pub(super) fn make_directory(&mut self, directory: u64, at: u64, mode: u64) -> Result<u64, Errno> {
        let found = self.find(directory, at, false)?;
        let mode = mode as u16 & !self.process().umask;
        let made = self.state.tree.create(found.directory, found.name(), Kind::Directory, mode)?;
        self.state.tree.get_mut(made).changed = A::now();
        Ok(0)
    }

    /// `unlinkat`.
    pub(super) fn unlink(&mut self, directory: u64, at: u64, is_directory: bool) -> Result<u64, Errno> {
        let found = self.find(directory, at, false)?;
        let inode = found.existing(&self.state.tree)?;
        let is_fixed = inode == ROOT || found.name().is_empty() || found.name() == b".";
        Errno::EINVAL.when(is_fixed && is_directory && self.state.tree.is_directory(inode))?;
        self.may_go(inode, is_directory)?;
        self.remove(inode);
        Ok(0)
    }

    /// Checks that a name may go: a directory's, which is empty, or another file's.
    fn may_go(&self, inode: u16, is_directory: bool) -> Result<(), Errno> {
        let tree = &self.state.tree;
        match (tree.is_directory(inode), is_directory) {
            (true, false) => Err(Errno::EISDIR),
            (false, true) => Err(Errno::ENOTDIR),
            _ => Errno::ENOTEMPTY.when(tree.each(inode).next().is_some()),
        }
    }

    fn remove(&mut self, inode: u16) {
        let gone = self.state.tree.unlink(inode);
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
        self.state.tree.rename(inode, new.directory, new.name())?;
        if new.file != NONE {
            self.remove(new.file);
        }
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
        let found = match self.find(directory, at, false) {
            Err(Errno::ENOENT) => return self.read_own_link(at, to, len),
            found => found?,
        };
        let Ok(inode) = found.existing(&self.state.tree) else { return self.read_own_link(at, to, len) };
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
    pub(super) fn enter(&mut self, inode: u16) -> Result<u64, Errno> {
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
    pub(super) fn inode_of(&mut self, descriptor: u64) -> Result<u16, Errno> {
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
        let (mut done, mut index) = (0, self.state.open.get(file).offset);
        loop {
            // `.` and `..` first.
            let parent = self.state.tree.get(directory).parent;
            let entry = match index {
                0 => Some(directory),
                1 => Some(parent),
                n => self.state.tree.each(directory).nth((n - 2) as usize),
            };
            let Some(inode) = entry else { break };
            let found = self.state.tree.get(inode);
            let name: &[u8] = match index {
                0 => b".",
                1 => b"..",
                _ => found.name(),
            };
            let size = (19 + name.len() + 1).next_multiple_of(8);
            if done + size as u64 > len {
                Errno::EINVAL.when(done == 0)?;
                break;
            }
            let kind = (found.full_mode() >> 12) as u8;
            let mut record = Layout::<96>::new(A::ABI);
            record.u64(inode.into()).u64(index + 1).u16(size as u16).raw(&[kind]).raw(name).at(size);
            self.write_bytes(to + done, record.bytes())?;
            done += size as u64;
            index += 1;
        }
        self.state.open.get_mut(file).offset = index;
        Ok(done)
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
