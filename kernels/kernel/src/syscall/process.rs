//! Tasks and processes: fork, threads, exec, wait, signals to others, groups and sessions.

use ptarmigan::format::Format;

use super::{Stop, Sys};
use crate::arch::{Abi, Arch, Context};
use crate::errno::Errno;
use crate::fs::path;
use crate::signal::info::{Info, SI_TKILL, SI_USER};
use crate::task::{Doing, New, Wait};

const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SYSVSEM: u64 = 0x4_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_DETACHED: u64 = 0x40_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
/// The properties that threads share, all of them or not one.
const THREAD: u64 = CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
const KNOWN: u64 = THREAD
    | CLONE_VM
    | CLONE_VFORK
    | CLONE_SYSVSEM
    | CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_DETACHED
    | CLONE_CHILD_SETTID
    | 0xff;

impl<A: Arch> Sys<'_, A> {
    /// `clone`.
    pub(super) fn clone(&mut self, arguments: [u64; 6]) -> Result<u64, Stop> {
        let [flags, stack, parent_tid, fourth, fifth, _] = arguments;
        let (child_tid, thread) = match A::ABI {
            Abi::X86_64 => (fourth, fifth),
            _ => (fifth, fourth),
        };
        self.clone_with(flags, stack, [parent_tid, child_tid], thread)
    }

    /// `clone3`.
    pub(super) fn clone3(&mut self, at: u64, size: u64) -> Result<u64, Stop> {
        // The structure's first version has eight words.
        Errno::EINVAL.when(size < 64)?;
        let [flags, _, child_tid, parent_tid, signal, low, len, thread] = self.read_numbers(at, 8)?;
        Errno::EINVAL.when(flags & 0xff != 0 || (low == 0) != (len == 0))?;
        let stack = low.checked_add(len).ok_or(Errno::EINVAL)?;
        self.clone_with(flags | signal & 0xff, stack, [parent_tid, child_tid], thread)
    }

    /// Makes a task: a thread, a process that shares the caller's space, or a copy. `tids` is where
    /// the parent and the child want its number.
    fn clone_with(&mut self, flags: u64, stack: u64, tids: [u64; 2], thread: u64) -> Result<u64, Stop> {
        let [parent_tid, child_tid] = tids;
        if self.task().vforked != 0 {
            return self.wait_for_vforked();
        }
        let is_thread = flags & THREAD == THREAD;
        Errno::EINVAL.when(
            flags & !KNOWN != 0
                || (flags & THREAD != 0 && !is_thread)
                || (is_thread && flags & CLONE_VM == 0),
        )?;
        let thread = if flags & CLONE_SETTLS == 0 { None } else { Some(self.thread_base(thread)?) };
        let slot = self.new_task(&New {
            stack,
            thread,
            shares_space: flags & CLONE_VM != 0,
            is_vfork: flags & CLONE_VFORK != 0,
            is_thread,
            clear_tid: if flags & CLONE_CHILD_CLEARTID != 0 { child_tid } else { 0 },
        })?;
        let tid = self.state.tasks.get(slot).tid;
        if flags & CLONE_PARENT_SETTID != 0 {
            // As Linux: a bad address is not an error.
            let _ = self.write_bytes(parent_tid, &tid.to_le_bytes());
        }
        if flags & CLONE_CHILD_SETTID != 0 {
            self.write_child_tid(slot, child_tid);
        }
        self.begin_task(slot);
        if flags & CLONE_VFORK != 0 {
            self.task().vforked = tid;
            return Err(Stop::Block(Wait::Vfork(tid)));
        }
        Ok(tid as u64)
    }

    /// Returns the base of a thread's memory that `clone` names: on i386, in a structure as
    /// `set_thread_area` has it.
    fn thread_base(&mut self, at: u64) -> Result<u64, Errno> {
        match A::ABI {
            Abi::I386 => Ok(self.read_u32(at.checked_add(4).ok_or(Errno::EFAULT)?)?.into()),
            _ if at < A::Format::USER_END => Ok(at),
            _ => Err(Errno::EPERM),
        }
    }

    /// Waits until the child that shares the space has begun a program, or has ended.
    fn wait_for_vforked(&mut self) -> Result<u64, Stop> {
        let child = self.task().vforked;
        if !self.vfork_is_over(child) {
            return Err(Stop::Block(Wait::Vfork(child)));
        }
        self.task().vforked = 0;
        Ok(child as u64)
    }

    /// `fork`.
    pub(super) fn fork(&mut self) -> Result<u64, Stop> {
        let slot = self.new_task(&New::default())?;
        self.begin_task(slot);
        Ok(self.state.tasks.get(slot).tid as u64)
    }

    /// `vfork`.
    pub(super) fn vfork(&mut self) -> Result<u64, Stop> {
        self.clone_with(CLONE_VM | CLONE_VFORK, 0, [0; 2], 0)
    }

    /// `execve`.
    pub(super) fn execute(&mut self, path_at: u64, arguments: u64, environment: u64) -> Result<u64, Stop> {
        let mut name = [0; path::PATH];
        let n = self.read_text(path_at, &mut name)?;
        let directory = self.process().directory;
        let found = path::resolve(&self.state.tree, directory, &name[..n], true);
        let inode = match found.and_then(|found| found.existing(&self.state.tree)) {
            Err(Errno::ENOENT) if &name[..n] == path::OWN_PROGRAM => self.process().program,
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
            let (space, arguments) = (&mut self.body.space, &mut self.state.tasks.arguments);
            arguments.add(environment, |room| space.text(on, text, room))?;
        }
    }

    /// `wait4`.
    pub(super) fn wait(&mut self, pid: u64, status_at: u64, options: u64, usage: u64) -> Result<u64, Stop> {
        const NOHANG: u64 = 1;
        let (me, wanted) = (self.process_slot(), pid as i32);
        let own_group = self.process().group;
        let tasks = &self.state.tasks;
        let is_meant = |slot: &usize| {
            let process = tasks.process(*slot);
            process.parent == me && *slot != me && (wanted == -1 || process.is_named(wanted, own_group))
        };
        let ended = |slot| match tasks.get(slot).doing {
            Doing::Ended(status) => Some((slot, tasks.process(slot).pid, status)),
            _ => None,
        };
        let Some((slot, pid, status)) = tasks.each_process().filter(is_meant).find_map(ended) else {
            Errno::ECHILD.when(!tasks.each_process().any(|slot| is_meant(&slot)))?;
            return if options & NOHANG != 0 { Ok(0) } else { Err(Stop::Block(Wait::Child)) };
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
        let (wanted, own_group, me) = (pid as i32, self.process().group, self.process_slot());
        let signal = signal_number(signal)?;
        let sender = self.process().pid;
        let mut any = false;
        for slot in self.state.tasks.slots() {
            if !self.state.tasks.is_process(slot) {
                continue;
            }
            let process = self.state.tasks.process(slot);
            let meant = match wanted {
                -1 => slot != me && slot != crate::task::INIT,
                _ => process.is_named(wanted, own_group),
            };
            if meant {
                any = true;
                self.kernel.send(self.state, slot, signal, Info::sent(SI_USER, sender));
            }
        }
        if any { Ok(0) } else { Err(Errno::ESRCH) }
    }

    /// `tkill` and `tgkill`; the process is 0 if it is not named.
    pub(super) fn kill_thread(&mut self, pid: u64, tid: u64, signal: u64) -> Result<u64, Errno> {
        let signal = signal_number(signal)?;
        let slot = self.state.tasks.find_task(tid as i32).ok_or(Errno::ESRCH)?;
        Errno::ESRCH.when(pid as i32 != 0 && self.state.tasks.process_of(slot).pid != pid as i32)?;
        let info = Info::sent(SI_TKILL, self.process().pid);
        self.kernel.send_to_task(self.state, slot, signal, info);
        Ok(0)
    }

    /// Returns a process by number; 0 is the caller's.
    pub(super) fn process_with(&mut self, pid: u64) -> Result<usize, Errno> {
        match pid as i32 {
            0 => Ok(self.process_slot()),
            pid => self.state.tasks.find_process(pid).ok_or(Errno::ESRCH),
        }
    }

    /// `setpgid`.
    pub(super) fn set_group(&mut self, pid: u64, group: u64) -> Result<u64, Errno> {
        let slot = self.process_with(pid)?;
        let me = self.process_slot();
        let process = self.state.tasks.process_mut(slot);
        Errno::ESRCH.when(slot != me && process.parent != me)?;
        process.group = match group as i32 {
            0 => process.pid,
            group if group > 0 => group,
            _ => return Err(Errno::EINVAL),
        };
        Ok(0)
    }

    /// `setsid`.
    pub(super) fn new_session(&mut self) -> Result<u64, Errno> {
        let process = self.process();
        Errno::EPERM.when(process.group == process.pid && process.pid != 1)?;
        (process.group, process.session) = (process.pid, process.pid);
        Ok(process.pid as u64)
    }

    /// `arch_prctl`.
    pub(super) fn set_thread(&mut self, code: u64, at: u64) -> Result<u64, Errno> {
        const SET_FS: u64 = 0x1002;
        const GET_FS: u64 = 0x1003;
        match code {
            SET_FS => {
                A::save(&mut self.body.context);
                Errno::EPERM.when(!self.body.context.set_thread(at))?;
                A::load(&self.body.context);
                Ok(0)
            }
            GET_FS => {
                let base = self.body.context.thread();
                self.answer(at, &base.to_le_bytes())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// `set_thread_area`: there is one entry, for the thread's memory.
    pub(super) fn set_thread_area(&mut self, at: u64) -> Result<u64, Errno> {
        const ENTRY: u32 = 6;
        let entry = self.read_u32(at)?;
        Errno::EINVAL.when(entry != u32::MAX && entry != ENTRY)?;
        let base = self.read_u32(at + 4)?;
        A::save(&mut self.body.context);
        Errno::EINVAL.when(!self.body.context.set_thread(base.into()))?;
        self.write_bytes(at, &ENTRY.to_le_bytes())?;
        A::load(&self.body.context);
        Ok(0)
    }
}

fn signal_number(signal: u64) -> Result<u8, Errno> {
    let known = u8::try_from(signal).ok().filter(|n| usize::from(*n) <= crate::signal::SIGNALS);
    known.ok_or(Errno::EINVAL)
}
