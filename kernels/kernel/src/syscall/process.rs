//! Tasks: fork, exec, exit, wait, groups and sessions.

use super::{Stop, Sys};
use crate::arch::{Abi, Arch, Context};
use crate::errno::Errno;
use crate::fs::path;
use crate::memory::user;
use crate::task::{Doing, Wait};

const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;

impl<A: Arch> Sys<'_, A> {
    /// `clone`. Threads there are none; a space that is shared until `exec` is copied.
    pub(super) fn clone(&mut self, arguments: [u64; 6]) -> Result<u64, Stop> {
        let [flags, stack, parent_tid, fourth, fifth, _] = arguments;
        let (child_tid, thread) = match A::ABI {
            Abi::X86_64 => (fourth, fifth),
            Abi::I386 => (fifth, fourth),
        };
        if flags & CLONE_THREAD != 0 || (flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0) {
            return Err(Errno::ENOSYS.into());
        }
        let thread = (flags & CLONE_SETTLS != 0).then_some(thread);
        let pid = self.fork(stack, thread)?;
        if flags & CLONE_PARENT_SETTID != 0 {
            // As Linux: a bad address is not an error.
            let _ = self.write_bytes(parent_tid, &(pid as u32).to_le_bytes());
        }
        if flags & CLONE_CHILD_SETTID != 0 {
            self.set_child_tid(pid as i32, child_tid);
        }
        Ok(pid)
    }

    /// Writes the child's number into its own memory.
    fn set_child_tid(&mut self, pid: i32, at: u64) {
        let Some(slot) = self.state.tasks.find(pid) else { return };
        if slot == self.me || self.state.tasks.get(slot).doing != Doing::Ready {
            return;
        }
        // SAFETY: 1. The lock is held (`self.state`), and the child is ready, not running. 2. It is
        // another slot than the caller's.
        let body = unsafe { self.kernel.body(slot) };
        if let Some(space) = &mut body.space {
            // As Linux: a bad address is not an error.
            let _ = user::write::<A>(self.kernel.on(self.pin), space, at, &(pid as u32).to_le_bytes());
        }
    }

    /// `execve`.
    pub(super) fn execute(&mut self, path_at: u64, arguments: u64, environment: u64) -> Result<u64, Stop> {
        let mut name = [0; path::PATH];
        let n = self.read_text(path_at, &mut name)?;
        let directory = self.task().directory;
        let found = path::resolve(&self.state.tree, directory, &name[..n], true);
        let inode = match found.and_then(|found| found.existing(&self.state.tree)) {
            Err(Errno::ENOENT) if &name[..n] == path::OWN_PROGRAM => self.task().program,
            found => found?,
        };
        let (inode, is_script) = self.begin_arguments(inode, &name[..n])?;
        // The script's name stands for the first argument.
        self.collect(arguments, false, is_script)?;
        if self.state.tasks.arguments.arguments == 0 {
            self.state.tasks.arguments.add_text(false, b"")?;
        }
        self.collect(environment, true, false)?;
        self.exec(inode)?;
        Err(Stop::Quiet)
    }

    /// Adds the texts of a list to the arguments of the next program, all or all but the first.
    fn collect(&mut self, list: u64, environment: bool, but_first: bool) -> Result<(), Errno> {
        if list == 0 {
            return Ok(());
        }
        let (mut at, mut left_out) = (list, but_first);
        loop {
            let text = self.read_word(at)?;
            if text == 0 {
                return Ok(());
            }
            at = at.checked_add(A::ABI.word() as u64).ok_or(Errno::EFAULT)?;
            if core::mem::take(&mut left_out) {
                continue;
            }
            let on = self.on();
            let space = self.body.space.as_mut().ok_or(Errno::EFAULT)?;
            let arguments = &mut self.state.tasks.arguments;
            arguments.add(environment, |room| user::text::<A>(on, space, text, room))?;
        }
    }

    /// `wait4`.
    pub(super) fn wait(&mut self, pid: u64, status_at: u64, options: u64, usage: u64) -> Result<u64, Stop> {
        const NOHANG: u64 = 1;
        let (me, wanted) = (self.me, pid as i32);
        let own_group = self.task().group;
        let mut any = false;
        let mut ended = None;
        for slot in self.state.tasks.slots() {
            let task = self.state.tasks.get(slot);
            let asked = match wanted {
                -1 => true,
                0 => task.group == own_group,
                pid if pid > 0 => task.pid == pid,
                group => task.group == group.wrapping_neg(),
            };
            if task.parent != me || slot == me || task.doing == Doing::Nothing || !asked {
                continue;
            }
            any = true;
            if let Doing::Ended(status) = task.doing {
                ended = Some((slot, task.pid, status));
                break;
            }
        }
        let Some((slot, pid, status)) = ended else {
            if !any {
                return Err(Errno::ECHILD.into());
            }
            if options & NOHANG != 0 {
                return Ok(0);
            }
            return Err(Stop::Block(Wait::Child));
        };
        if status_at != 0 {
            self.write_bytes(status_at, &status.to_le_bytes())?;
        }
        if usage != 0 {
            self.write_bytes(usage, &[0; 144][..if A::ABI.word() == 8 { 144 } else { 72 }])?;
        }
        self.state.tasks.give_back(slot);
        Ok(pid as u64)
    }

    /// `kill`.
    pub(super) fn kill(&mut self, pid: u64, signal: u64) -> Result<u64, Errno> {
        let (wanted, own_group, me) = (pid as i32, self.task().group, self.me);
        let signal = u8::try_from(signal).ok().filter(|n| usize::from(*n) <= crate::signal::SIGNALS);
        let signal = signal.ok_or(Errno::EINVAL)?;
        let mut any = false;
        for slot in self.state.tasks.slots() {
            let task = self.state.tasks.get(slot);
            let meant = match wanted {
                -1 => slot != me && slot != crate::task::INIT,
                0 => task.group == own_group,
                pid if pid > 0 => task.pid == pid,
                group => task.group == group.wrapping_neg(),
            };
            if meant && task.doing != Doing::Nothing {
                any = true;
                self.kernel.send(self.state, slot, signal);
            }
        }
        if any { Ok(0) } else { Err(Errno::ESRCH) }
    }

    /// Returns the slot of a task by number; 0 is the caller.
    fn slot_of(&mut self, pid: u64) -> Result<usize, Errno> {
        match pid as i32 {
            0 => Ok(self.me),
            pid => self.state.tasks.find(pid).ok_or(Errno::ESRCH),
        }
    }

    /// `setpgid`.
    pub(super) fn set_group(&mut self, pid: u64, group: u64) -> Result<u64, Errno> {
        let slot = self.slot_of(pid)?;
        if slot != self.me && self.state.tasks.get(slot).parent != self.me {
            return Err(Errno::ESRCH);
        }
        let task = self.state.tasks.get_mut(slot);
        task.group = match group as i32 {
            0 => task.pid,
            group if group > 0 => group,
            _ => return Err(Errno::EINVAL),
        };
        Ok(0)
    }

    /// `getpgid`.
    pub(super) fn group_of(&mut self, pid: u64) -> Result<u64, Errno> {
        let slot = self.slot_of(pid)?;
        Ok(self.state.tasks.get(slot).group as u64)
    }

    /// `getsid`.
    pub(super) fn session_of(&mut self, pid: u64) -> Result<u64, Errno> {
        let slot = self.slot_of(pid)?;
        Ok(self.state.tasks.get(slot).session as u64)
    }

    /// `setsid`.
    pub(super) fn new_session(&mut self) -> Result<u64, Errno> {
        let task = self.task();
        if task.group == task.pid && task.pid != 1 {
            return Err(Errno::EPERM);
        }
        (task.group, task.session) = (task.pid, task.pid);
        Ok(task.pid as u64)
    }

    /// `arch_prctl`.
    pub(super) fn set_thread(&mut self, code: u64, at: u64) -> Result<u64, Errno> {
        const SET_FS: u64 = 0x1002;
        const GET_FS: u64 = 0x1003;
        match code {
            SET_FS => {
                A::save(&mut self.body.context);
                if !self.body.context.set_thread(at) {
                    return Err(Errno::EPERM);
                }
                A::load(&self.body.context);
                Ok(0)
            }
            GET_FS => {
                let base = self.body.context.thread();
                self.write_bytes(at, &base.to_le_bytes())?;
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// `set_thread_area`: there is one entry, for the thread's memory.
    pub(super) fn set_thread_area(&mut self, at: u64) -> Result<u64, Errno> {
        const ENTRY: u32 = 6;
        let entry = self.read_u32(at)?;
        if entry != u32::MAX && entry != ENTRY {
            return Err(Errno::EINVAL);
        }
        let base = self.read_u32(at + 4)?;
        A::save(&mut self.body.context);
        if !self.body.context.set_thread(base.into()) {
            return Err(Errno::EINVAL);
        }
        self.write_bytes(at, &ENTRY.to_le_bytes())?;
        A::load(&self.body.context);
        Ok(0)
    }
}
