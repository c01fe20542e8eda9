//! Tasks and processes: fork, threads, exec, wait, signals to others, groups and sessions.

use core::fmt::Write as _;

use ptarmigan::format::Format;

use super::files::AT_FDCWD;
use super::layout::Layout;
use super::stat::NOFOLLOW;
use super::{Stop, Sys};
use crate::arch::{Abi, Arch, Context};
use crate::errno::Errno;
use crate::fs::{Kind, path, proc::Text};
use crate::signal::info::{SI_TKILL, SI_USER, SignalInfo};
use crate::signal::number::SIGCHLD;
use crate::task::groups::{GROUPS, Groups};
use crate::task::{Doing, New, Process, Usage, Wait};

/// `WNOHANG`.
const NOHANG: u64 = 1;

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
        let result = self.execute_with(path_at, arguments, environment);
        self.drop_arguments();
        result
    }

    fn execute_with(&mut self, path_at: u64, arguments: u64, environment: u64) -> Result<u64, Stop> {
        let mut name = [0; path::PATH];
        let n = self.read_text(path_at, &mut name)?;
        let directory = self.process().directory;
        let found = path::resolve(&self.state.tree, directory, &name[..n], true);
        let inode = match found.and_then(|found| found.existing(&self.state.tree)) {
            Err(Errno::ENOENT) if &name[..n] == path::OWN_PROGRAM => self.process().program,
            found => found?,
        };
        let program = self.begin_arguments(inode, &name[..n])?;
        self.execute_found(program, arguments, environment)
    }

    /// `execveat`.
    pub(super) fn execute_at(
        &mut self,
        [directory, path_at, arguments, environment, flags, _]: [u64; 6],
    ) -> Result<u64, Stop> {
        let result = self.execute_at_with([directory, path_at, flags], arguments, environment);
        self.drop_arguments();
        result
    }

    fn execute_at_with(
        &mut self,
        [directory, path_at, flags]: [u64; 3],
        arguments: u64,
        environment: u64,
    ) -> Result<u64, Stop> {
        let inode = self.inode_at(directory, path_at, flags, 0)?.ok_or(Errno::EACCES)?;
        Errno::ELOOP
            .when(flags & NOFOLLOW != 0 && matches!(self.state.tree.get(inode).kind, Kind::Link(_)))?;
        let mut name = [0; path::PATH];
        let n = self.read_text(path_at, &mut name)?;
        let name = &name[..n];
        if directory as i32 == AT_FDCWD || name.first() == Some(&b'/') {
            let program = self.begin_arguments(inode, name)?;
            return self.execute_found(program, arguments, environment);
        }
        // A script is read by another name of the descriptor.
        let mut text = Text::from(0);
        let _ = write!(text, "/dev/fd/{}", directory as i32);
        if !name.is_empty() {
            text.put(b"/");
            text.put(name);
        }
        let (inode, is_script) = self.begin_arguments(inode, text.bytes())?;
        let closes = self.process().files.is_closing(directory as usize);
        Errno::ENOENT.when(is_script && closes)?;
        self.execute_found((inode, is_script), arguments, environment)
    }

    /// Begins a program whose list of arguments has been begun, and tells it whether it reads a
    /// script.
    fn execute_found(
        &mut self,
        (inode, is_script): (u32, bool),
        arguments: u64,
        environment: u64,
    ) -> Result<u64, Stop> {
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
            self.add_argument(environment, text)?;
        }
    }

    /// Finds a child that has ended, of those for which `is_meant` holds: its slot, number and
    /// status; `None` if there are such children and all of them go on.
    ///
    /// # Errors
    ///
    /// [`Errno::ECHILD`] if there is no such child.
    fn ended_child(&self, is_meant: impl Fn(&Process) -> bool) -> Result<Option<(usize, i32, i32)>, Errno> {
        let tasks = &self.state.tasks;
        let mut any = false;
        for slot in tasks.children(self.process_slot()) {
            let process = tasks.process(slot);
            if !is_meant(process) {
                continue;
            }
            any = true;
            if let Doing::Ended(status) = tasks.get(slot).doing {
                return Ok(Some((slot, process.pid, status)));
            }
        }
        Errno::ECHILD.when(!any)?;
        Ok(None)
    }

    /// Gives the slot of a child back that has ended, and adds its use to that of the caller's
    /// children.
    fn bury(&mut self, child: usize) {
        let used = self.usage_with_children(child);
        self.process().children.add(used);
        self.state.tasks.disown(child);
        self.kernel.give_back(self.state, child);
    }

    fn usage_with_children(&self, child: usize) -> Usage {
        let child = self.state.tasks.process(child);
        let mut usage = child.usage;
        usage.add(child.children);
        usage
    }

    /// `wait4`.
    pub(super) fn wait(&mut self, pid: u64, status_at: u64, options: u64, usage: u64) -> Result<u64, Stop> {
        let (wanted, own_group) = (pid as i32, self.process().group);
        let found = self.ended_child(|child| wanted == -1 || child.is_named(wanted, own_group))?;
        let Some((slot, pid, status)) = found else {
            return if options & NOHANG != 0 { Ok(0) } else { Err(Stop::Block(Wait::Child)) };
        };
        if status_at != 0 {
            self.write_bytes(status_at, &status.to_le_bytes())?;
        }
        if usage != 0 {
            self.write_usage(usage, self.usage_with_children(slot))?;
        }
        self.bury(slot);
        Ok(pid as u64)
    }

    /// `waitid`.
    pub(super) fn wait_for(&mut self, [kind, id, info_at, options, usage]: [u64; 5]) -> Result<u64, Stop> {
        const EXITED: u64 = 4;
        const NOWAIT: u64 = 0x100_0000;
        // Stopped and continued children do not exist; and flags for children of threads.
        const OTHERS: u64 = 2 | 8 | 0xe000_0000;
        Errno::EINVAL
            .when(options & !(NOHANG | EXITED | NOWAIT | OTHERS) != 0 || options & (EXITED | 2 | 8) == 0)?;
        let (id, own_group) = (id as i32, self.process().group);
        let wanted = match kind {
            0 => -1,
            1 if id > 0 => id,
            2 if id == 0 => -own_group,
            2 if id > 0 => -id,
            _ => return Err(Errno::EINVAL.into()),
        };
        let is_meant = |child: &Process| match kind {
            0 => true,
            _ => child.is_named(wanted, own_group),
        };
        let found = self.ended_child(is_meant)?.filter(|_| options & EXITED != 0);
        let Some((slot, pid, status)) = found else {
            if options & NOHANG == 0 {
                return Err(Stop::Block(Wait::Child));
            }
            // Its number and the signal's are zero.
            if info_at != 0 {
                self.write_bytes(info_at, &[0; 24])?;
            }
            return Ok(0);
        };
        if usage != 0 {
            self.write_usage(usage, self.usage_with_children(slot))?;
        }
        if info_at != 0 {
            let info = SignalInfo::ended(pid, status).bytes(A::ABI, SIGCHLD);
            self.write_bytes(info_at, &info)?;
        }
        if options & NOWAIT == 0 {
            self.bury(slot);
        }
        Ok(0)
    }

    /// `kill`.
    pub(super) fn kill(&mut self, pid: u64, signal: u64) -> Result<u64, Errno> {
        let (wanted, own_group, me) = (pid as i32, self.process().group, self.process_slot());
        let signal = signal_number(signal)?;
        let sender = self.process().pid;
        let info = SignalInfo::sent(SI_USER, sender);
        if wanted > 0 {
            let slot = self.state.tasks.find_process(wanted).ok_or(Errno::ESRCH)?;
            self.kernel.send(self.state, slot, signal, info);
            return Ok(0);
        }
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
                self.kernel.send(self.state, slot, signal, info);
            }
        }
        if any { Ok(0) } else { Err(Errno::ESRCH) }
    }

    /// `tkill` and `tgkill`; the process is 0 if it is not named.
    pub(super) fn kill_thread(&mut self, pid: u64, tid: u64, signal: u64) -> Result<u64, Errno> {
        let signal = signal_number(signal)?;
        let slot = self.state.tasks.find_task(tid as i32).ok_or(Errno::ESRCH)?;
        Errno::ESRCH.when(pid as i32 != 0 && self.state.tasks.process_of(slot).pid != pid as i32)?;
        let info = SignalInfo::sent(SI_TKILL, self.process().pid);
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

    /// `setuid`, `setreuid`, `setresuid` and those of groups: there is user 0, and -1 for no
    /// change.
    pub(super) fn set_owners(owners: &[u64]) -> Result<u64, Errno> {
        // `setuid` has no -1.
        let may_stay = owners.len() > 1;
        let is_kept = |owner: &u64| *owner as u32 == 0 || may_stay && *owner as u32 == u32::MAX;
        if owners.iter().all(is_kept) { Ok(0) } else { Err(Errno::EPERM) }
    }

    /// `getresuid` and `getresgid`.
    pub(super) fn owners(&mut self, places: &[u64]) -> Result<u64, Errno> {
        for at in places {
            self.write_bytes(*at, &[0; 4])?;
        }
        Ok(0)
    }

    /// `setgroups`.
    pub(super) fn set_groups(&mut self, count: u64, at: u64) -> Result<u64, Errno> {
        /// `NGROUPS_MAX`.
        const MOST: u32 = 65536;
        let count = count as u32;
        Errno::EINVAL.when(count > MOST)?;
        let mut groups = [0; GROUPS];
        let groups = groups.get_mut(..count as usize).ok_or(Errno::ENOMEM)?;
        for (i, group) in groups.iter_mut().enumerate() {
            *group = self.read_u32(at.checked_add(4 * i as u64).ok_or(Errno::EFAULT)?)?;
        }
        self.process().groups = Groups::new(groups).ok_or(Errno::ENOMEM)?;
        Ok(0)
    }

    /// `getgroups`: the groups, or without room for any how many there are.
    pub(super) fn groups(&mut self, room: u64, at: u64) -> Result<u64, Errno> {
        let mut out = Layout::<{ 4 * GROUPS }>::new(A::ABI);
        let groups = self.process().groups.get();
        let (room, count) = (room as i32, groups.len());
        groups.iter().for_each(|group| _ = out.u32(*group));
        Errno::EINVAL.when(room < 0 || room > 0 && (room as usize) < count)?;
        if room > 0 {
            self.write_bytes(at, out.bytes())?;
        }
        Ok(count as u64)
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
