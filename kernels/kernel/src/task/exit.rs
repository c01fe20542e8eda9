//! The end of tasks, and of the kernel.

use core::sync::atomic::Ordering;

use ptarmigan::cpu::Pinned;

use super::run::must;
use super::{Body, Doing, Wait};
use crate::arch::Arch;
use crate::signal::number;
use crate::{Kernel, State};

/// The slot of process 1.
pub const INIT: usize = 0;

impl<A: Arch> Kernel<A> {
    /// Ends a task of this CPU.
    pub(super) fn end_task(&'static self, slot: usize, body: &mut Body<A>, pin: &Pinned<'_>, status: i32) {
        // Without the lock: nobody else knows the space.
        self.end_space(body, pin);
        let mut state = self.lock();
        self.leave_all(&mut state, slot);
        if slot == INIT {
            state.tasks.get_mut(slot).doing = Doing::Ended(status);
            drop(state);
            self.begin_end(if status == 0 { 0x10 } else { 0x11 }, status);
            return;
        }
        // Process 1 takes the children over.
        let parent = state.tasks.get(slot).parent;
        for child in state.tasks.slots() {
            let task = state.tasks.get_mut(child);
            if task.parent == slot && child != slot && task.doing != Doing::Nothing {
                task.parent = INIT;
                if matches!(task.doing, Doing::Ended(_)) {
                    self.tell_parent(&mut state, INIT);
                }
            }
        }
        state.tasks.get_mut(slot).doing = Doing::Ended(status);
        self.tell_parent(&mut state, parent);
        self.wake_idle(&state);
    }

    fn tell_parent(&'static self, state: &mut State, parent: usize) {
        self.send(state, parent, number::SIGCHLD);
        if state.tasks.get(parent).doing == Doing::Waiting(Wait::Child) {
            state.tasks.make_ready(parent);
        }
    }

    /// Takes the space of a body down.
    pub(crate) fn end_space(&'static self, body: &mut Body<A>, pin: &Pinned<'_>) {
        if let Some(space) = body.space.take() {
            must(space.end(self.on(pin)).map_err(|refused| refused.error));
        }
    }

    /// Takes a task out of the users of files, directories and objects.
    pub(crate) fn leave_all(&'static self, state: &mut State, slot: usize) {
        for descriptor in 0..crate::fs::DESCRIPTORS {
            self.close(state, slot, descriptor);
        }
        let task = state.tasks.get(slot);
        let (directory, program) = (task.directory, task.program);
        self.let_go(state, directory);
        self.let_go(state, program);
        self.unmap_objects(state, slot, |_| false);
    }

    /// Forgets the objects of a task that `keeps` does not want to keep.
    pub(crate) fn unmap_objects(&'static self, state: &mut State, slot: usize, keeps: impl Fn(u32) -> bool) {
        let machine = self.machine.get();
        for object in &mut state.tasks.get_mut(slot).mapped {
            if *object != 0 && !keeps(*object) {
                machine.objects.release(self.frames.get(), machine.low(), *object);
                *object = 0;
            }
        }
    }

    /// Has all CPUs stop. The calling one goes on in [`Kernel::stop`] as soon as it gets there.
    pub(crate) fn begin_end(&'static self, outcome: u8, status: i32) {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.ending.set(outcome, status, A::cpu());
        for cpu in (0..self.cpu_count()).filter(|cpu| *cpu != A::cpu()) {
            A::interrupt(cpu);
        }
    }

    /// Stops this CPU. The one that began the end waits for the others, takes everything down and
    /// ends the machine.
    pub(super) fn stop(&'static self) -> ! {
        let machine = self.machine.get();
        if self.ending.cpu() != A::cpu() {
            machine.drain(false);
            self.stopped.fetch_add(1, Ordering::SeqCst);
            loop {
                // Its root is still loaded, and requests come until the last space has ended.
                self.serve();
                core::hint::spin_loop();
            }
        }
        while self.stopped.load(Ordering::SeqCst) + 1 < self.cpu_count() {
            self.serve();
            core::hint::spin_loop();
        }
        let pin = self.pin();
        let mut state = self.lock();
        for slot in state.tasks.slots() {
            if state.tasks.get(slot).is_alive() {
                // SAFETY: 1. The lock is held, and no task runs: all CPUs have stopped. 2. The
                // reference ends with this turn of the loop.
                let body = unsafe { self.body(slot) };
                self.end_space(body, &pin);
                self.leave_all(&mut state, slot);
            }
        }
        self.clear_tree(&mut state);
        drop(state);
        machine.drain(true);
        self.finish()
    }
}
