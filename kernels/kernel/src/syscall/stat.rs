//! `stat` and its family.

use super::Sys;
use super::layout::Layout;
use crate::arch::{Abi, Arch};
use crate::errno::Errno;
use crate::fs::{Device, Kind, What};

/// `AT_SYMLINK_NOFOLLOW`.
pub(super) const NOFOLLOW: u64 = 0x100;

struct Facts {
    inode: u64,
    mode: u32,
    device: u64,
    size: u64,
    changed: u64,
}

impl<A: Arch> Sys<'_, A> {
    fn facts(&self, inode: u16) -> Facts {
        let found = self.state.tree.get(inode);
        let size = match found.kind {
            Kind::File(object) => self.kernel.objects().size(object),
            Kind::Link(_) => self.state.tree.target(inode).len() as u64,
            _ => 0,
        };
        let device = match found.kind {
            Kind::Device(Device::Null) => 0x103,
            Kind::Device(Device::Zero) => 0x105,
            Kind::Device(Device::Console) => 0x501,
            _ => 0,
        };
        Facts { inode: inode.into(), mode: found.full_mode(), device, size, changed: found.changed.into() }
    }

    fn write_facts(&mut self, facts: &Facts, to: u64) -> Result<u64, Errno> {
        let Facts { inode, mode, device, size, changed } = *facts;
        let blocks = size.div_ceil(512);
        let mut out = Layout::<144>::new(A::ABI);
        match A::ABI {
            Abi::X86_64 => {
                out.u64(1).u64(inode).u64(1).u32(mode).u32(0).u32(0).u32(0).u64(device).u64(size);
                out.u64(4096).u64(blocks);
                for _ in 0..3 {
                    out.u64(changed).u64(0);
                }
                out.at(144);
            }
            Abi::Aarch64 | Abi::Riscv64 => {
                out.u64(1).u64(inode).u32(mode).u32(1).u32(0).u32(0).u64(device).u64(0).u64(size);
                out.u64(4096).u64(blocks);
                for _ in 0..3 {
                    out.u64(changed).u64(0);
                }
                out.at(128);
            }
            Abi::I386 => {
                out.u64(1).u32(0).u32(inode as u32).u32(mode).u32(1).u32(0).u32(0).u64(device).u32(0);
                out.u64(size).u32(4096).u64(blocks);
                for _ in 0..3 {
                    out.u32(changed as u32).u32(0);
                }
                out.u64(inode);
            }
        }
        self.answer(to, out.bytes())
    }

    /// `fstat`.
    pub(super) fn stat_open(&mut self, descriptor: u64, to: u64) -> Result<u64, Errno> {
        let file = self.file(descriptor)?;
        let facts = match self.state.open.get(file).what {
            What::Inode(inode) => self.facts(inode),
            _ => Facts { inode: file as u64 + 0x1_0000, mode: 0o010_600, device: 0, size: 0, changed: 0 },
        };
        self.write_facts(&facts, to)
    }

    /// `newfstatat` and `fstatat64`.
    pub(super) fn stat_at(&mut self, [directory, at, to, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
        const EMPTY_PATH: u64 = 0x1000;
        if flags & EMPTY_PATH != 0 {
            let mut first = [0];
            self.read_bytes(at, &mut first)?;
            if first == [0] {
                return self.stat_open(directory, to);
            }
        }
        let found = self.find(directory, at, flags & NOFOLLOW == 0)?;
        let facts = self.facts(found.existing(&self.state.tree)?);
        self.write_facts(&facts, to)
    }

    /// `statfs`: one file system, in memory.
    pub(super) fn file_system(&mut self, to: u64) -> Result<u64, Errno> {
        use ptarmigan::machine::Machine as _;
        let counts = self.kernel.machine.get().frames().counts();
        let (total, free) = (u64::from(counts.total), u64::from(counts.free));
        let mut out = Layout::<120>::new(A::ABI);
        out.word(0x8584_58f6).word(4096).word(total).word(free).word(free);
        out.word(crate::fs::tree::INODES as u64).word(0).u64(0).word(60).word(4096);
        out.at(if A::ABI.word() == 8 { 120 } else { 64 });
        self.answer(to, out.bytes())
    }
}
