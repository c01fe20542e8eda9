//! New tasks.

use ptarmigan::addr::VirtRange;
use ptarmigan::format::Format;

use super::{Doing, Usage};
use crate::arch::{Arch, Context};
use crate::counts::Count;
use crate::errno::Errno;
use crate::memory::TaskSpace;
use crate::signal::SignalStack;
use crate::syscall::{LOCKED, Sys};

/// The properties of a new task.
#[derive(Clone, Copy, Debug, Default)]
pub struct New {
    /// Where its stack is; 0 for where the caller's is.
    pub stack: u64,
    /// The base of its thread's memory, if that is not the caller's.
    pub thread: Option<u64>,
    /// It runs in the caller's space, not in a copy.
    pub shares_space: bool,
    /// The caller waits until it has left that space.
    pub is_vfork: bool,
    /// It is of the caller's process.
    pub is_thread: bool,
    /// Where a zero is written at its end; 0 for nowhere.
    pub clear_tid: u64,
}

impl<A: Arch> Sys<'_, A> {
    /// Copies the calling task. Returns the slot of the new one, which is not ready yet: see
    /// [`begin_task`](Self::begin_task).
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`] if there are too many tasks, [`Errno::ENOMEM`].
    pub fn new_task(&mut self, new: &New) -> Result<usize, Errno> {
        let (slot, tid) = self.kernel.claim(self.state, !new.is_thread)?;
        let (space, number) = self.space_for(new).inspect_err(|_| self.kernel.give_back(self.state, slot))?;
        // SAFETY: 1. The lock is held (`self.state`), and the task is not ready. 2. It is another
        // slot than the caller's. 3. It has just been claimed.
        let body = unsafe { self.kernel.body(slot) };
        A::save(&mut self.body.context);
        body.context.clone_from(&self.body.context);
        body.context.set_result(0);
        if new.stack != 0 {
            body.context.set_stack(new.stack);
        }
        if let Some(thread) = new.thread {
            body.context.set_thread(thread);
        }
        body.space = space;
        let tasks = &mut self.state.tasks;
        let process = tasks.get(self.me).process;
        let (blocked, stack) = (tasks.get(self.me).signals.blocked, tasks.get(self.me).signals.stack);
        let (turns, cpus) = (tasks.get(self.me).turns.inherited(), tasks.get(self.me).cpus);
        let task = tasks.get_mut(slot);
        task.clear_tid = new.clear_tid;
        (task.deadline, task.in_call, task.woken, task.vforked) = (0, false, false, 0);
        // A thread has a stack of its own, and so no stack for its handlers.
        let is_own = !new.shares_space || new.is_vfork;
        task.signals.begin(blocked, if is_own { stack } else { SignalStack::NONE });
        task.space = number;
        (task.is_leaving, task.robust, task.usage) = (false, 0, Usage::NONE);
        (task.turns, task.cpus) = (turns, cpus);
        if new.is_thread {
            task.process = process;
            tasks.process_mut(process).threads += 1;
            self.kernel.count(Count::Threads);
        } else {
            task.process = slot;
            if let Some((child, parent)) = tasks.processes(slot, process) {
                child.inherit(parent);
                (child.pid, child.threads) = (tid, 1);
                (child.space, child.started) = (number, A::now());
            }
            tasks.adopt(process, slot);
            self.share_files(slot);
            self.kernel.count(Count::Forks);
        }
        Ok(slot)
    }

    /// Makes a new task ready.
    pub fn begin_task(&mut self, slot: usize) {
        self.state.tasks.make_ready(slot);
        self.kernel.wake_idle(self.state);
    }

    /// Returns the space that a new task runs in, and the number of its record.
    fn space_for(&mut self, new: &New) -> Result<(TaskSpace<A>, usize), Errno> {
        let (on, me) = (self.on(), self.me);
        let own = self.state.tasks.space_of(me);
        if new.shares_space {
            // SAFETY: 1. The record is that of the caller's space; a space that is its own has no
            // other user.
            unsafe { self.kernel.share_space(own, &mut self.body.space) };
            let TaskSpace::Shared(space) = self.body.space else { return Err(Errno::ENOMEM) };
            self.state.tasks.space_mut(own).users += 1;
            return Ok((TaskSpace::Shared(space), own));
        }
        let number = self.kernel.claim_space(self.state)?;
        let kernel = self.kernel;
        let copied = self.state.tasks.copy_record(number, own, || kernel.new_page());
        let forked = copied.and_then(|()| self.body.space.edit(on, |mut space| space.fork()));
        let copy = forked.and_then(|copy| copy.map_err(|_| Errno::ENOMEM)).inspect_err(|_| {
            self.state.tasks.space_mut(number).shown.clear();
            kernel.give_back_space(self.state, number);
        })?;
        let mut copy = TaskSpace::Own(copy);
        if self.state.tasks.space(own).has_locks {
            // Locks are not inherited. Without memory for more areas some are shown as locked.
            let all = VirtRange::up_to(A::Format::USER_END);
            let _ = copy.edit(on, |mut edit| {
                edit.set_default_tag(0);
                edit.retag(all, |tag| tag & !LOCKED)
            });
        }
        let record = self.state.tasks.space_mut(number);
        if record.forks_in_part {
            // If it could not be counted, objects would stay as long as the copy does.
            let _ = copy.count_shown(on, &mut record.shown);
            while record.shown.take_gone().is_some() {}
        }
        record.shown.each_object(|object| kernel.objects().share(object));
        record.users = 1;
        Ok((copy, number))
    }

    /// Adds a new process to the users of its parent's files and directory.
    fn share_files(&mut self, process: usize) {
        let process = self.state.tasks.process(process);
        for file in process.files.each() {
            self.state.open.share(file);
        }
        self.state.tree.hold(process.directory);
        self.state.tree.hold(process.program);
    }

    /// Whether the process that the caller made by `vfork` has left its space. Then the caller has
    /// it for itself again, if nobody else runs in it.
    pub fn vfork_is_over(&mut self, child: i32) -> bool {
        let (me, tasks) = (self.me, &self.state.tasks);
        let own = tasks.space_of(me);
        let is_there = tasks.find_process(child).is_some_and(|child| {
            let child = tasks.process(child);
            child.threads > 0 && child.space == own
        });
        if !is_there && tasks.space(own).users == 1 {
            // SAFETY: 1. The record is that of the caller's space and has no other user.
            if let Some(space) = unsafe { self.kernel.take_space(own, &mut self.body.space) } {
                self.body.space = TaskSpace::Own(space);
            }
        }
        !is_there
    }

    /// Writes a new task's number into its memory, at `at`. As under Linux, a bad address is not an
    /// error.
    pub fn write_child_tid(&mut self, slot: usize, at: u64) {
        let task = self.state.tasks.get(slot);
        if slot == self.me || task.doing != Doing::Nothing {
            return;
        }
        let tid = task.tid;
        // SAFETY: 1. The lock is held (`self.state`), and the task is not ready yet. 2. It is
        // another slot than the caller's. 3. The caller has claimed it.
        let body = unsafe { self.kernel.body(slot) };
        let _ = body.space.write(self.on(), at, &tid.to_le_bytes());
    }
}
