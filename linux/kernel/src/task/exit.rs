//! The end of tasks, and of the kernel.
//!
//! ```text
//!  end_task   lock: robust list ── unlock ── the task's own space ends ── lock: usage, threads - 1
//!               └─ last thread: end_process ── children to process 1 ── SIGCHLD ──> parent
//!  begin_end  process 1 has ended ── stopping = true ──> each CPU: stop ── stopped + 1 ── counts
//! ```
//!
//! # Why
//!
//! A space is ended without the kernel lock: its flush waits for other CPUs, and taking down its
//! tables is the longest work of all. Nobody else knows the space by then. The slot of a thread is
//! given back by the caller, because the body is still borrowed here and another task would get it
//! otherwise. When process 1 ends, all CPUs must have stopped before frames are counted.

use core::sync::atomic::Ordering;

use ptarmigan::cpu::Pinned;

use super::run::must;
use super::{Body, Doing, Ends, INIT, NO_SPACE, Wait};
use crate::arch::Arch;
use crate::lock::KernelGuard;
use crate::memory::TaskSpace;
use crate::report::{Ending, FAIL, PASS};
use crate::signal::{SignalInfo, number};
use crate::timer::Intervals;
use crate::{Kernel, State};

impl<A: Arch> Kernel<A> {
    /// Ends a task of this CPU. Returns the lock, and whether its slot is to be given back by the
    /// caller, as soon as that has no more use for the body.
    #[inline(never)]
    pub(super) fn end_task(
        &'static self,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
        (ends, status): (Ends, i32),
    ) -> (KernelGuard<'static>, bool) {
        let mut state = self.lock();
        self.leave_robust_list(&mut state, slot, body, pin);
        drop(state);
        match core::mem::replace(&mut body.space, TaskSpace::None) {
            // Without the lock: nobody else knows the space.
            TaskSpace::Own(space) => must(space.end(self.on(pin)).map_err(|refused| refused.error)),
            other => body.space = other,
        }
        let mut state = self.lock();
        let process = state.tasks.get(slot).process;
        if ends == Ends::Process {
            state.tasks.process_mut(process).status.get_or_insert(status);
            self.end_other_threads(&mut state, slot);
        }
        if matches!(body.space, TaskSpace::Shared(_)) {
            self.clear_tid(&mut state, slot, body, pin);
            must(body.space.switch(|space| space.deactivate(self.on(pin))));
        }
        self.leave_space(&mut state, slot, body, pin);
        let mut usage = core::mem::take(&mut state.tasks.get_mut(slot).usage);
        usage.faults += self.take_faults(body);
        let shared = state.tasks.process_mut(process);
        shared.usage.add(usage);
        shared.threads -= 1;
        if shared.threads == 0 {
            let status = shared.status.unwrap_or(status);
            self.end_process(&mut state, process, status);
        } else if slot == process {
            state.tasks.get_mut(slot).doing = Doing::Left;
        }
        if slot != process {
            // No call that the next lines wake is its own.
            state.tasks.get_mut(slot).doing = Doing::Left;
        }
        if state.tasks.process(process).threads == 1 {
            state.tasks.wake_threads(process, Wait::Threads);
        }
        self.wake_idle(&state);
        (state, slot != process)
    }

    /// Has all threads of a task's process end but the task itself.
    pub(crate) fn end_other_threads(&'static self, state: &mut State, slot: usize) {
        let process = state.tasks.get(slot).process;
        if state.tasks.process(process).threads == 1 {
            return;
        }
        for other in state.tasks.slots() {
            let task = state.tasks.get(other);
            if other != slot && task.process == process && task.is_alive() {
                state.tasks.get_mut(other).is_leaving = true;
                self.kill_task(state, other);
            }
        }
    }

    /// Ends a process that has no tasks any more.
    fn end_process(&'static self, state: &mut State, process: usize, status: i32) {
        self.leave_files(state, process);
        state.timers.end(process);
        state.tasks.process_mut(process).intervals = Intervals::NONE;
        state.tasks.get_mut(process).doing = Doing::Ended(status);
        if process == INIT {
            let outcome = if status == 0 { PASS } else { FAIL };
            return self.begin_end(state, outcome, status);
        }
        state.tasks.process_mut(process).space = NO_SPACE;
        // Process 1 takes the children over.
        while let Some(child) = state.tasks.eldest(process) {
            state.tasks.disown(child);
            state.tasks.adopt(INIT, child);
            if matches!(state.tasks.get(child).doing, Doing::Ended(_)) {
                self.tell_parent(state, INIT, child);
            }
        }
        let parent = state.tasks.process(process).parent;
        self.tell_parent(state, parent, process);
    }

    fn tell_parent(&'static self, state: &mut State, parent: usize, child: usize) {
        let status = match state.tasks.get(child).doing {
            Doing::Ended(status) => status,
            _ => 0,
        };
        let info = SignalInfo::ended(state.tasks.process(child).pid, status);
        self.send(state, parent, number::SIGCHLD, info);
        state.tasks.wake_threads(parent, Wait::Child);
    }

    /// Writes the zero that says that a task has ended, and wakes who waits for it.
    fn clear_tid(&'static self, state: &mut State, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>) {
        let at = core::mem::take(&mut state.tasks.get_mut(slot).clear_tid);
        if at != 0 && body.space.write(self.on(pin), at, &[0; 4]).is_ok() {
            let space = state.tasks.space_of(slot);
            let key = super::futex::key::<A>(self.on(pin), &mut body.space, space, at);
            state.tasks.wake_futex(key, 1, u32::MAX);
        }
    }

    /// Takes a task out of the users of its space, and with the last one the space down.
    pub(crate) fn leave_space(
        &'static self,
        state: &mut State,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
    ) {
        let number = state.tasks.space_of(slot);
        let record = state.tasks.space_mut(number);
        record.users = record.users.saturating_sub(1);
        if record.users > 0 {
            body.space = TaskSpace::None;
            let pid = state.tasks.process_of(slot).pid;
            state.tasks.wake(|wait| wait == Wait::Vfork(pid));
            return;
        }
        // SAFETY: 1. The record is that of the task's space, and the task was its last user.
        if let Some(space) = unsafe { self.take_space(number, &mut body.space) } {
            must(space.end(self.on(pin)).map_err(|refused| refused.error));
        }
        let shown = &mut state.tasks.space_mut(number).shown;
        shown.each_object(|object| self.release_object(object));
        shown.clear();
        self.give_back_space(state, number);
        if state.keyed.has_removed() {
            self.drop_keyed(state);
        }
    }

    /// Takes a process out of the users of files and directories.
    fn leave_files(&'static self, state: &mut State, process: usize) {
        for descriptor in 0..state.tasks.process(process).files.end() {
            self.close(state, process, descriptor);
        }
        let shared = state.tasks.process(process);
        let (directory, program) = (shared.directory, shared.program);
        self.let_go(state, directory);
        self.let_go(state, program);
    }

    /// Takes a user away from an object.
    pub(crate) fn release_object(&'static self, object: u32) {
        self.objects().release(object);
    }

    /// Has all CPUs stop. The calling one goes on in [`Kernel::stop`] as soon as it gets there.
    pub(crate) fn begin_end(&'static self, state: &mut State, outcome: u8, status: i32) {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        state.ending = Some(Ending { outcome, status, cpu: A::cpu() });
        for cpu in (0..self.cpu_count()).filter(|cpu| *cpu != A::cpu()) {
            A::interrupt(cpu);
        }
    }

    /// Stops this CPU. The one that began the end waits for the others, takes everything down and
    /// ends the machine.
    pub(super) fn stop(&'static self) -> ! {
        let machine = self.machine.get();
        let ending = self.lock().ending.filter(|ending| ending.cpu == A::cpu());
        let Some(ending) = ending else {
            machine.drain(false);
            self.stopped.fetch_add(1, Ordering::SeqCst);
            loop {
                // Its root is still loaded, and requests come until the last space has ended.
                self.serve();
                ptarmigan::sync::spin();
            }
        };
        while self.stopped.load(Ordering::SeqCst) + 1 < self.cpu_count() {
            self.serve();
            ptarmigan::sync::spin();
        }
        let pin = self.pin();
        let mut state = self.lock();
        for slot in state.tasks.slots() {
            if state.tasks.get(slot).is_alive() {
                // SAFETY: 1. The lock is held, and no task runs: all CPUs have stopped. 2. The
                // reference ends with this turn of the loop. 3. The task has not ended.
                let body = unsafe { self.body(slot) };
                self.leave_space(&mut state, slot, body, &pin);
                let process = state.tasks.get(slot).process;
                let shared = state.tasks.process_mut(process);
                shared.threads -= 1;
                if shared.threads == 0 {
                    self.leave_files(&mut state, process);
                }
            }
        }
        self.give_back_all(&mut state);
        self.clear_tree(&mut state);
        while let Some(object) = state.keyed.take_any() {
            self.release_object(object);
        }
        self.objects().clear_table();
        drop(state);
        machine.drain(true);
        self.finish(ending)
    }
}
