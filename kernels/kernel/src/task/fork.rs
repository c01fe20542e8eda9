//! New tasks.

use super::{Doing, MAPPED};
use crate::arch::{Arch, Context};
use crate::counts::Count;
use crate::errno::Errno;
use crate::syscall::{Stop, Sys};

impl<A: Arch> Sys<'_, A> {
    /// Copies the calling task: `fork`. `stack` is where the child's stack is, 0 for where it was.
    /// Returns the child's number.
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`] if there are too many tasks, [`Errno::ENOMEM`].
    pub fn fork(&mut self, stack: u64, thread: Option<u64>) -> Result<u64, Stop> {
        let on = self.on();
        let Some(space) = &mut self.body.space else { return Err(Errno::ENOMEM.into()) };
        let child_space = match space.edit(on) {
            Ok(mut edit) => edit.fork().map_err(|_| Errno::ENOMEM)?,
            Err(_) => return Err(Errno::ENOMEM.into()),
        };
        let Some((slot, pid)) = self.state.tasks.claim() else {
            let ended = child_space.end(on);
            debug_assert!(ended.is_ok(), "the copy is of this machine");
            return Err(Errno::EAGAIN.into());
        };
        // SAFETY: 1. The lock is held (`self.state`), and the slot is free. 2. It is another slot
        // than the caller's.
        let body = unsafe { self.kernel.body(slot) };
        A::save(&mut self.body.context);
        body.context.clone_from(&self.body.context);
        body.context.set_result(0);
        if stack != 0 {
            body.context.set_stack(stack);
        }
        if let Some(thread) = thread {
            body.context.set_thread(thread);
        }
        body.space = Some(child_space);
        let me = self.me;
        if let Some((child, parent)) = self.state.tasks.pair(slot, me) {
            child.pid = pid;
            child.parent = me;
            (child.group, child.session) = (parent.group, parent.session);
            child.files.clone_from(&parent.files);
            (child.directory, child.umask, child.program) = (parent.directory, parent.umask, parent.program);
            (child.heap, child.heap_end) = (parent.heap, parent.heap_end);
            child.mapped = parent.mapped;
            child.signals.clone_from(&parent.signals);
            child.signals.pending = 0;
            (child.deadline, child.in_call, child.ports) = (0, false, parent.ports);
            child.started = A::now();
            child.doing = Doing::Ready;
        }
        self.share_all(slot);
        self.state.tasks.make_ready(slot);
        self.kernel.wake_idle(self.state);
        self.kernel.count(Count::Forks);
        Ok(pid as u64)
    }

    /// Adds the new task to the users of what its parent uses.
    fn share_all(&mut self, slot: usize) {
        let task = self.state.tasks.get(slot);
        for file in task.files.each() {
            self.state.open.share(file);
        }
        self.state.tree.hold(task.directory);
        self.state.tree.hold(task.program);
        let objects = &self.kernel.machine.get().objects;
        for object in task.mapped.iter().take(MAPPED).filter(|object| **object != 0) {
            objects.share(*object);
        }
    }
}
