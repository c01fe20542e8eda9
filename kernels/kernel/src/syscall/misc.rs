//! The table of calls, and those that take a few lines.

use ptarmigan::machine::Machine as _;

use super::files::AT_FDCWD;
use super::layout::Layout;
use super::number::Call;
use super::stat::Form;
use super::time::Width;
use super::{Stop, Sys};
use crate::arch::{Abi, Arch, Context};
use crate::errno::Errno;
use crate::task::limits::{INFINITY, Limit};
use crate::task::{Ends, Wait};

/// The directory that a task is in, as an argument.
const HERE: u64 = AT_FDCWD as u64;
const MILLISECOND: u64 = 1_000_000;

impl<A: Arch> Sys<'_, A> {
    /// Makes a call.
    #[inline]
    pub(super) fn make(&mut self, call: Call) -> Result<u64, Stop> {
        let mut a = [0; 6];
        for (n, argument) in a.iter_mut().enumerate() {
            *argument = self.body.context.argument(n);
        }
        let result = match call {
            Call::Read => return self.read(a[0], a[1], a[2], None),
            Call::Write => return self.write(a[0], a[1], a[2], None),
            Call::ReadAt => return self.read(a[0], a[1], a[2], Some(self.position(a))),
            Call::WriteAt => return self.write(a[0], a[1], a[2], Some(self.position(a))),
            Call::ReadVector => return self.vector(a[0], a[1], a[2], false),
            Call::WriteVector => return self.vector(a[0], a[1], a[2], true),
            Call::SendFile => return self.send_file(a[0], a[1], a[2], a[3]),
            Call::Clone => return self.clone(a),
            Call::Clone3 => return self.clone3(a[0], a[1]),
            Call::Fork => return self.fork(),
            Call::Vfork => return self.vfork(),
            Call::Exec => return self.execute(a[0], a[1], a[2]),
            Call::Wait4 => return self.wait(a[0], a[1], a[2], a[3]),
            Call::WaitPid => return self.wait(a[0], a[1], a[2], 0),
            Call::Exit => return Err(Stop::End(Ends::Task, (a[0] as i32 & 0xff) << 8)),
            Call::ExitGroup => return Err(Stop::End(Ends::Process, (a[0] as i32 & 0xff) << 8)),
            Call::Futex => return self.futex(a, Width::Word),
            Call::FutexWide => return self.futex(a, Width::Wide),
            Call::Yield => return Err(Stop::GiveWay),
            Call::Poll => {
                let forever = (a[2] as i32) < 0;
                return self.poll(a[0], a[1], (!forever).then(|| u64::from(a[2] as u32) * MILLISECOND));
            }
            Call::PollTime => {
                let timeout = if a[2] == 0 { None } else { Some(self.get_time(a[2], Width::Word)?) };
                return self.poll(a[0], a[1], timeout);
            }
            Call::Select => return self.select(a),
            Call::DirectoryEntries => return self.entries(a[0], a[1], a[2]),
            Call::FileSystem => return self.file_system(a[1]),
            Call::Sleep => return self.sleep(0, a[0], a[1], Width::Word),
            Call::ClockSleep => return self.sleep(a[1], a[2], a[3], Width::Word),
            Call::ClockSleepWide => return self.sleep(a[1], a[2], a[3], Width::Wide),
            Call::Pause => return Err(Stop::Block(Wait::Time)),
            Call::Suspend => return self.suspend(a[0], a[1]),
            Call::Return | Call::ReturnOld => return self.handler_returns(),
            Call::Reboot => return self.reboot(a),
            Call::Open => self.open(HERE, a[0], a[1], a[2]),
            Call::OpenAt => self.open(a[0], a[1], a[2], a[3]),
            Call::Create => self.open(HERE, a[0], 0o1101, a[1]),
            Call::Close => self.close(a[0]),
            Call::Seek => {
                let narrow = A::ABI == Abi::I386;
                self.seek(a[0], if narrow { i64::from(a[1] as i32) } else { a[1] as i64 }, a[2])
            }
            Call::SeekWide => {
                let offset = (a[1] << 32 | a[2] & 0xffff_ffff) as i64;
                let at = self.seek(a[0], offset, a[4])?;
                self.write_bytes(a[3], &at.to_le_bytes()).map(|()| 0)
            }
            Call::Pipe => self.pipe(a[0], 0),
            Call::Pipe2 => self.pipe(a[0], a[1]),
            Call::Duplicate => self.duplicate(a[0], 0, false),
            Call::DuplicateTo => self.duplicate_to(a[0], a[1], 0, true),
            Call::Duplicate3 => self.duplicate_to(a[0], a[1], a[2], false),
            Call::FileControl | Call::FileControlOld => self.control(a[0], a[1], a[2]),
            Call::Control => self.device_control(a[0], a[1], a[2]),
            Call::Truncate => {
                let inode = self.find(HERE, a[0], true)?.existing(&self.state.tree)?;
                self.truncate(inode, self.size(a))
            }
            Call::TruncateOpen => {
                let inode = self.inode_of(a[0])?;
                self.truncate(inode, self.size(a))
            }
            Call::TruncateNarrow => {
                let inode = self.find(HERE, a[0], true)?.existing(&self.state.tree)?;
                self.truncate(inode, a[1])
            }
            Call::TruncateOpenNarrow => {
                let inode = self.inode_of(a[0])?;
                self.truncate(inode, a[1])
            }
            Call::Stat => self.stat_at([HERE, a[0], a[1], 0, 0, 0], Form::Stat),
            Call::Lstat => self.stat_at([HERE, a[0], a[1], 0x100, 0, 0], Form::Stat),
            Call::Fstat => self.stat_open(a[0], a[1], Form::Stat),
            Call::StatAt => self.stat_at(a, Form::Stat),
            Call::Stat64 => self.stat_at([HERE, a[0], a[1], 0, 0, 0], Form::Stat64),
            Call::Lstat64 => self.stat_at([HERE, a[0], a[1], 0x100, 0, 0], Form::Stat64),
            Call::Fstat64 => self.stat_open(a[0], a[1], Form::Stat64),
            Call::StatAt64 => self.stat_at(a, Form::Stat64),
            Call::Access => self.access(HERE, a[0]),
            Call::AccessAt | Call::AccessAt2 => self.access(a[0], a[1]),
            Call::WorkingDirectory => self.working_directory(a[0], a[1]),
            Call::ChangeDirectory => {
                let inode = self.find(HERE, a[0], true)?.existing(&self.state.tree)?;
                self.enter(inode)
            }
            Call::ChangeDirectoryOpen => {
                let inode = self.inode_of(a[0])?;
                self.enter(inode)
            }
            Call::MakeDirectory => self.make_directory(HERE, a[0], a[1]),
            Call::MakeDirectoryAt => self.make_directory(a[0], a[1], a[2]),
            Call::RemoveDirectory => self.unlink(HERE, a[0], true),
            Call::Unlink => self.unlink(HERE, a[0], false),
            Call::UnlinkAt => self.unlink(a[0], a[1], a[2] & 0x200 != 0),
            Call::Rename => self.rename([HERE, a[0]], [HERE, a[1]]),
            Call::RenameAt | Call::RenameAt2 => self.rename([a[0], a[1]], [a[2], a[3]]),
            // Files have one name.
            Call::Link => Err(Errno::EPERM),
            Call::SymbolicLink => self.make_link(a[0], HERE, a[1]),
            Call::SymbolicLinkAt => self.make_link(a[0], a[1], a[2]),
            Call::ReadLink => self.read_link(HERE, a[0], a[1], a[2]),
            Call::ReadLinkAt => self.read_link(a[0], a[1], a[2], a[3]),
            Call::ChangeMode => self.change_mode(HERE, a[0], a[1]),
            Call::ChangeModeAt => self.change_mode(a[0], a[1], a[2]),
            Call::ChangeModeOpen => {
                let inode = self.inode_of(a[0])?;
                self.state.tree.get_mut(inode).mode = a[1] as u16 & 0o7777;
                Ok(0)
            }
            // There is one user.
            Call::ChangeOwner | Call::ChangeOwnerLink => self.access(HERE, a[0]),
            Call::ChangeOwnerAt => self.access(a[0], a[1]),
            Call::ChangeOwnerOpen => self.file(a[0]).map(|_| 0),
            Call::SetTimesAt if a[1] == 0 => self.file(a[0]).map(|_| 0),
            Call::SetTimesAt => self.access(a[0], a[1]),
            Call::UserMask => {
                let new = a[0] as u16 & 0o777;
                Ok(core::mem::replace(&mut self.process().umask, new).into())
            }
            Call::Map => self.map(a),
            Call::MapPages => self.map([a[0], a[1], a[2], a[3], a[4], a[5] << 12]),
            Call::Unmap => self.unmap(a[0], a[1]),
            Call::Protect => self.protect(a[0], a[1], a[2]),
            Call::Remap => self.remap(a),
            Call::Advise => self.advise(a[0], a[1], a[2]),
            Call::Break => self.set_break(a[0]),
            Call::Action => self.action(a[0], a[1], a[2], a[3]),
            Call::Mask => self.mask(a[0], a[1], a[2], a[3]),
            Call::SignalStack => self.signal_stack(a[0], a[1]),
            Call::Pending => self.pending(a[0]),
            Call::Kill => self.kill(a[0], a[1]),
            Call::ThreadKillOld => self.kill_thread(0, a[0], a[1]),
            Call::ThreadKill => self.kill_thread(a[0], a[1], a[2]),
            Call::Pid => Ok(self.process().pid as u64),
            Call::ThreadId => Ok(self.task().tid as u64),
            Call::ThreadIdAddress => {
                self.task().clear_tid = a[0];
                Ok(self.task().tid as u64)
            }
            Call::ParentPid => {
                let (own, parent) = (self.process_slot(), self.process().parent);
                Ok(if own == crate::task::INIT { 0 } else { self.state.tasks.process(parent).pid as u64 })
            }
            Call::OwnProcessGroup => Ok(self.process().group as u64),
            Call::ProcessGroup => self.group_of(a[0]),
            Call::SetProcessGroup => self.set_group(a[0], a[1]),
            Call::Session => self.session_of(a[0]),
            Call::SetSession => self.new_session(),
            Call::User | Call::Group | Call::EffectiveUser | Call::EffectiveGroup => Ok(0),
            Call::UserOld | Call::GroupOld | Call::EffectiveUserOld | Call::EffectiveGroupOld => Ok(0),
            Call::SetUser | Call::SetGroup if a[0] == 0 => Ok(0),
            Call::SetUser | Call::SetGroup => Err(Errno::EPERM),
            Call::Groups => Ok(0),
            Call::ArchThread => self.set_thread(a[0], a[1]),
            Call::ThreadArea => self.set_thread_area(a[0]),
            Call::ProcessControl => Err(Errno::EINVAL),
            Call::Personality => Ok(0),
            Call::Name => self.name(a[0]),
            Call::SystemInfo => self.system_info(a[0]),
            Call::Limits => self.limits(a, false),
            Call::OldLimits => self.limits([0, a[0], 0, a[1], 0, 0], true),
            Call::SetLimit => self.limits([0, a[0], a[1], 0, 0, 0], true),
            Call::Random => self.random(a[0], a[1]),
            Call::Privilege | Call::Ports => {
                self.process().ports = true;
                Ok(0)
            }
            Call::Mount => self.mount(a[1], a[2]),
            Call::Unmount => Err(Errno::EINVAL),
            Call::Sync => Ok(0),
            Call::TimeOfDay => self.time_of_day(a[0]),
            Call::Time => self.seconds(a[0]),
            Call::Times => self.times(a[0]),
            Call::ClockTime => self.clock_time(a[1], Width::Word),
            Call::ClockTimeWide => self.clock_time(a[1], Width::Wide),
            Call::ClockResolution => self.clock_resolution(a[1]),
            Call::RobustList => Ok(0),
            Call::Rseq => Err(Errno::ENOSYS),
        };
        result.map_err(Stop::Error)
    }

    /// Returns the position that `pread64` and `pwrite64` name.
    fn position(&self, a: [u64; 6]) -> u64 {
        match A::ABI {
            Abi::X86_64 => a[3],
            Abi::I386 => a[4] << 32 | a[3] & 0xffff_ffff,
        }
    }

    /// Returns the size that `truncate` and `ftruncate` name.
    fn size(&self, a: [u64; 6]) -> u64 {
        match A::ABI {
            Abi::X86_64 => a[1],
            Abi::I386 => a[2] << 32 | a[1] & 0xffff_ffff,
        }
    }

    fn access(&mut self, directory: u64, at: u64) -> Result<u64, Errno> {
        self.find(directory, at, true)?.existing(&self.state.tree)?;
        Ok(0)
    }

    fn change_mode(&mut self, directory: u64, at: u64, mode: u64) -> Result<u64, Errno> {
        let inode = self.find(directory, at, true)?.existing(&self.state.tree)?;
        self.state.tree.get_mut(inode).mode = mode as u16 & 0o7777;
        Ok(0)
    }

    fn name(&mut self, at: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 65 * 6];
        let names: [&str; 6] = ["Linux", "ptarmigan", "6.1.0", "Ptarmigan", A::MACHINE, "(none)"];
        for (place, name) in bytes.chunks_exact_mut(65).zip(names) {
            let n = name.len().min(64);
            place[..n].copy_from_slice(&name.as_bytes()[..n]);
        }
        self.write_bytes(at, &bytes)?;
        Ok(0)
    }

    fn system_info(&mut self, at: u64) -> Result<u64, Errno> {
        let counts = self.kernel.machine.get().frames().counts();
        let tasks = self.state.tasks.slots().filter(|slot| self.state.tasks.get(*slot).is_alive()).count();
        let mut out = Layout::<112>::new(A::ABI);
        out.word(A::now() / 1_000_000_000).word(0).word(0).word(0);
        out.word(counts.total.into()).word(counts.free.into());
        for _ in 0..4 {
            out.word(0);
        }
        out.u16(tasks as u16).u16(0);
        let word = A::ABI.word();
        out.at(10 * word + if word == 8 { 8 } else { 4 }).word(0).word(0).u32(4096);
        out.at(if word == 8 { 112 } else { 64 });
        self.write_bytes(at, out.bytes())?;
        Ok(0)
    }

    /// `prlimit64`, and with `words` `getrlimit` and `setrlimit`, whose numbers are words.
    fn limits(&mut self, [pid, what, new, old, ..]: [u64; 6], words: bool) -> Result<u64, Errno> {
        let process = self.process_with(pid)?;
        let size = if words { A::ABI.word() } else { 8 };
        let before = self.state.tasks.process(process).limits.get(what)?;
        if new != 0 {
            let mut bytes = [0; 16];
            self.read_bytes(new, &mut bytes[..2 * size])?;
            let number = |bytes: &[u8]| {
                let value = bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
                if size == 4 && value == u64::from(u32::MAX) { INFINITY } else { value }
            };
            let limit = Limit { soft: number(&bytes[..size]), hard: number(&bytes[size..2 * size]) };
            self.state.tasks.process_mut(process).limits.set(what, limit)?;
            if process == self.process_slot() {
                let (on, stack) = (self.on(), self.process().limits.stack.soft);
                self.space().edit(on, |mut edit| edit.set_stack_limit(stack))?;
            }
        }
        if old != 0 {
            let mut out = Layout::<16>::new(A::ABI);
            out.put(size, before.soft).put(size, before.hard);
            self.write_bytes(old, out.bytes())?;
        }
        Ok(0)
    }

    /// `getrandom`: a sequence that is the same after each boot, so that runs are alike.
    fn random(&mut self, at: u64, len: u64) -> Result<u64, Errno> {
        let len = len.min(256) as usize;
        let mut bytes = [0; 256];
        let mut seed = 0x9e37_79b9_7f4a_7c15u64 ^ self.process().pid as u64;
        for byte in &mut bytes[..len] {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
        self.write_bytes(at, &bytes[..len])?;
        Ok(len as u64)
    }

    fn reboot(&mut self, a: [u64; 6]) -> Result<u64, Stop> {
        if a[0] as u32 != 0xfee1_dead {
            return Err(Errno::EINVAL.into());
        }
        // Whatever is asked for, the machine ends; but for the keys that would.
        if matches!(a[2] as u32, 0 | 0x89ab_cdef) {
            return Ok(0);
        }
        self.kernel.begin_end(0x10, 0);
        // The task is given up with its CPU.
        Err(Stop::GiveWay)
    }
}
