//! `stat` and its family.

use ptarmigan::addr::FRAME_SIZE;

use super::Sys;
use super::layout::Layout;
use super::time::SECOND;
use crate::arch::{Abi, Arch};
use crate::errno::Errno;
use crate::fs::{Device, Kind, What};

/// `AT_SYMLINK_NOFOLLOW`.
pub(super) const NOFOLLOW: u64 = 0x100;
/// `AT_EMPTY_PATH`.
pub(super) const EMPTY_PATH: u64 = 0x1000;

struct FileStatus {
    inode: u64,
    mode: u32,
    links: u32,
    owner: u32,
    group: u32,
    device: u64,
    size: u64,
    /// Units of 512 bytes that it has memory for. Directories and links have none, as in Linux's
    /// `tmpfs`.
    blocks: u64,
    changed: u64,
}

impl<A: Arch> Sys<'_, A> {
    fn facts(&self, inode: u32) -> FileStatus {
        let found = self.state.tree.get(inode);
        let size = match found.kind {
            Kind::File(object) => self.kernel.objects().size(object),
            Kind::Link(_) => self.state.tree.target(inode).len() as u64,
            _ => 0,
        };
        let device = match found.kind {
            Kind::Device(Device::Null) => 0x103,
            Kind::Device(Device::Zero) => 0x105,
            Kind::Device(Device::Full) => 0x107,
            Kind::Device(Device::Random) => 0x108,
            Kind::Device(Device::Urandom) => 0x109,
            Kind::Device(Device::Console) => 0x501,
            _ => 0,
        };
        let blocks = match found.kind {
            Kind::File(object) => self.kernel.objects().held(object) * (FRAME_SIZE as u64 / 512),
            _ => 0,
        };
        let (mode, links, changed) = (found.full_mode(), found.links(), found.changed);
        let (owner, group) = (found.owner, found.group);
        FileStatus { inode: inode.into(), mode, links, owner, group, device, size, blocks, changed }
    }

    fn write_facts(&mut self, facts: &FileStatus, to: u64) -> Result<u64, Errno> {
        let FileStatus { inode, mode, links, owner, group, device, size, blocks, changed } = *facts;
        let (changed, rest) = (changed / SECOND, changed % SECOND);
        let mut out = Layout::<144>::new(A::ABI);
        match A::ABI {
            Abi::X86_64 => {
                out.u64(1).u64(inode).u64(links.into()).u32(mode).u32(owner).u32(group).u32(0);
                out.u64(device).u64(size);
                out.u64(4096).u64(blocks);
                for _ in 0..3 {
                    out.u64(changed).u64(rest);
                }
                out.at(144);
            }
            Abi::Aarch64 | Abi::Riscv64 => {
                out.u64(1).u64(inode).u32(mode).u32(links).u32(owner).u32(group).u64(device);
                out.u64(0).u64(size);
                out.u64(4096).u64(blocks);
                for _ in 0..3 {
                    out.u64(changed).u64(rest);
                }
                out.at(128);
            }
            Abi::I386 => {
                out.u64(1).u32(0).u32(inode as u32).u32(mode).u32(links).u32(owner).u32(group);
                out.u64(device).u32(0);
                out.u64(size).u32(4096).u64(blocks);
                for _ in 0..3 {
                    out.u32(changed as u32).u32(rest as u32);
                }
                out.u64(inode);
            }
        }
        self.answer(to, out.bytes())
    }

    fn facts_of_open(&mut self, descriptor: u64) -> Result<FileStatus, Errno> {
        let file = self.file(descriptor)?;
        let what = self.state.open.get(file).what;
        Ok(self.facts_of(what, file))
    }

    fn facts_of(&self, what: What, file: usize) -> FileStatus {
        match what {
            What::Inode(inode) => self.facts(inode),
            _ => {
                let inode = 1 << 32 | u64::from(what.lock_name(file));
                let is_pipe = matches!(what, What::PipeRead(_) | What::PipeWrite(_));
                let mode = if is_pipe { 0o010_600 } else { 0o600 };
                FileStatus {
                    inode,
                    mode,
                    links: 1,
                    owner: 0,
                    group: 0,
                    device: 0,
                    size: 0,
                    blocks: 0,
                    changed: 0,
                }
            }
        }
    }

    /// Returns the facts of the file that a path of the program's leads to.
    fn facts_at(&mut self, directory: u64, at: u64, follow: bool) -> Result<FileStatus, Errno> {
        let found = self.find(directory, at, follow)?;
        match found.target {
            Some(what) => Ok(self.facts_of(what, 0)),
            None => Ok(self.facts(found.existing(&self.state.tree)?)),
        }
    }

    /// `fstat`.
    pub(super) fn stat_open(&mut self, descriptor: u64, to: u64) -> Result<u64, Errno> {
        let facts = self.facts_of_open(descriptor)?;
        self.write_facts(&facts, to)
    }

    /// Whether a path of the program's is empty, and stands for the descriptor.
    pub(super) fn is_empty_path(&mut self, at: u64, flags: u64) -> Result<bool, Errno> {
        let mut first = [1];
        if flags & EMPTY_PATH != 0 {
            self.read_bytes(at, &mut first)?;
        }
        Ok(first == [0])
    }

    /// `newfstatat` and `fstatat64`.
    pub(super) fn stat_at(&mut self, [directory, at, to, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
        if self.is_empty_path(at, flags)? {
            return self.stat_open(directory, to);
        }
        let facts = self.facts_at(directory, at, flags & NOFOLLOW == 0)?;
        self.write_facts(&facts, to)
    }

    /// `statx`. A file has one time, at which it was changed last.
    pub(super) fn stat_extended(
        &mut self,
        [directory, at, flags, mask, to, _]: [u64; 6],
    ) -> Result<u64, Errno> {
        /// The fields of `stat`.
        const BASIC: u32 = 0x7ff;
        const SYNC_TYPE: u64 = 0x6000;
        const NO_AUTOMOUNT: u64 = 0x800;
        let (flags, mask) = (u64::from(flags as u32), mask as u32);
        let known = NOFOLLOW | EMPTY_PATH | NO_AUTOMOUNT | SYNC_TYPE;
        Errno::EINVAL.when(mask >> 31 != 0 || flags & SYNC_TYPE == SYNC_TYPE || flags & !known != 0)?;
        let facts = if self.is_empty_path(at, flags)? {
            self.facts_of_open(directory)?
        } else {
            self.facts_at(directory, at, flags & NOFOLLOW == 0)?
        };
        let mut out = Layout::<256>::new(A::ABI);
        out.u32(BASIC).u32(4096).u64(0).u32(facts.links).u32(facts.owner).u32(facts.group);
        out.u16(facts.mode as u16).u16(0);
        out.u64(facts.inode).u64(facts.size).u64(facts.blocks).u64(0);
        for place in [64, 96, 112] {
            // Of access, change of status, and of contents; that of birth is not known.
            out.at(place).u64(facts.changed / SECOND).u32((facts.changed % SECOND) as u32);
        }
        out.at(128).u32((facts.device >> 8) as u32).u32(facts.device as u32 & 0xff).at(140).u32(1).at(256);
        self.answer(to, out.bytes())
    }

    /// `statfs` and `fstatfs`: one file system, in memory. Its sizes are numbers of `size` bytes.
    pub(super) fn file_system(&mut self, to: u64, size: usize) -> Result<u64, Errno> {
        use ptarmigan::machine::Machine as _;
        let counts = self.kernel.machine.get().frames().counts();
        let (total, free) = (u64::from(counts.total), u64::from(counts.free));
        let mut out = Layout::<120>::new(A::ABI);
        out.word(0x8584_58f6).word(4096).put(size, total).put(size, free).put(size, free);
        // Files take memory, and have no limit of their own.
        out.put(size, total).put(size, free).u64(0).word(60).word(4096);
        // Flags, and four words without a meaning.
        for _ in 0..5 {
            out.word(0);
        }
        self.answer(to, out.bytes())
    }

    /// `statfs64` and `fstatfs64` of i386, which say how many bytes their structure has.
    pub(super) fn file_system_wide(&mut self, to: u64, bytes: u64) -> Result<u64, Errno> {
        Errno::EINVAL.when(bytes != 84)?;
        self.file_system(to, 8)
    }
}
