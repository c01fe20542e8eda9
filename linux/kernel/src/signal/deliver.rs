//! Who gets a signal, and how it is delivered.

use ptarmigan::cpu::Pinned;

use super::action::{Action, DEFAULT, Delivery, SA_NODEFER, SA_ONSTACK, SA_RESETHAND};
use super::info::{Detail, SignalInfo};
use super::number::{self, bit};
use super::set::ALWAYS;
use crate::arch::{Arch, Context, SIGNAL_FRAME};
use crate::task::{After, Body, Doing, Ends, INIT, TaskQueues};
use crate::{Kernel, State};

impl TaskQueues {
    /// Sends a signal that the task cannot avoid: its last operation cannot go on.
    pub fn force(&mut self, slot: usize, signal: u8, info: SignalInfo) {
        let process = self.process_of_mut(slot);
        let is_ignored = process.actions.is_ignored(signal);
        let signals = &self.get(slot).signals;
        if is_ignored || signals.blocked & bit(signal) != 0 {
            self.process_of_mut(slot).actions.set(signal, Action::NONE);
            self.get_mut(slot).signals.blocked &= !bit(signal);
        }
        let process = self.process_of_mut(slot);
        process.is_forced |= process.actions.get(signal).handler == DEFAULT;
        self.get_mut(slot).signals.pending.add(signal, info);
    }

    /// Whether a signal that is delivered has no effect on a process. Process 1 has no default
    /// actions but for signals that its own operations have caused.
    pub fn drops(&self, process: usize, signal: u8) -> bool {
        let shared = self.process(process);
        let is_default = shared.actions.get(signal).handler == DEFAULT;
        shared.actions.is_ignored(signal) || process == INIT && is_default && !shared.is_forced
    }

    /// Sets the action of a task's process on a signal; a signal that is ignored from now on is not
    /// pending any more.
    pub fn set_action(&mut self, slot: usize, signal: u8, action: Action) {
        let process = self.get(slot).process;
        let shared = self.process_mut(process);
        if shared.actions.set(signal, action) && shared.actions.is_ignored(signal) {
            shared.pending.take(signal);
            for thread in self.slots() {
                if self.get(thread).process == process {
                    self.get_mut(thread).signals.pending.take(signal);
                }
            }
        }
    }
}

impl<A: Arch> Kernel<A> {
    /// Sends a signal to a process, any thread of which may take it. One that it masks waits, even
    /// if it is ignored: that may change before it is delivered. Process 1 gets only those that it
    /// has handlers for, or masks. All that is as under Linux, where the first thread's mask
    /// counts.
    pub fn send(&'static self, state: &mut State, process: usize, signal: u8, info: SignalInfo) {
        if !Self::takes(state, process, process, signal) {
            return;
        }
        state.tasks.process_mut(process).pending.add(signal, info);
        let tasks = &state.tasks;
        let taker = tasks
            .threads(process)
            .find(|slot| (tasks.deliverable(*slot) | tasks.awaited(*slot)) & bit(signal) != 0);
        if let Some(slot) = taker {
            self.attend(state, slot);
        }
    }

    /// Sends a signal to one task.
    pub fn send_to_task(&'static self, state: &mut State, slot: usize, signal: u8, info: SignalInfo) {
        if !Self::takes(state, slot, state.tasks.get(slot).process, signal) {
            return;
        }
        state.tasks.get_mut(slot).signals.pending.add(signal, info);
        if state.tasks.deliverable(slot) != 0 || state.tasks.awaited(slot) & bit(signal) != 0 {
            self.attend(state, slot);
        }
    }

    /// Takes a signal that waits for a task, or for its process.
    pub(crate) fn take_signal(
        &'static self,
        state: &mut State,
        slot: usize,
        signal: u8,
    ) -> Option<SignalInfo> {
        let tasks = &mut state.tasks;
        let own = tasks.get_mut(slot).signals.pending.take(signal);
        let mut info = own.or_else(|| tasks.process_of_mut(slot).pending.take(signal))?;
        if let Detail::Timer { id, overrun, .. } = &mut info.detail {
            let time_of = |clock| tasks.time_of(clock, A::now()).unwrap_or(0);
            *overrun = state.timers.delivered(*id, time_of);
        }
        Some(info)
    }

    /// Ends a task, whatever it does.
    pub(crate) fn kill_task(&'static self, state: &mut State, slot: usize) {
        state.tasks.get_mut(slot).signals.pending.add(number::SIGKILL, SignalInfo::KERNEL);
        self.attend(state, slot);
    }

    /// Whether a signal for a task does anything to its process, now or when it is delivered.
    fn takes(state: &State, slot: usize, process: usize, signal: u8) -> bool {
        if state.tasks.process(process).threads == 0 || bit(signal) == 0 {
            return false;
        }
        let is_blocked = state.tasks.get(slot).signals.blocked & bit(signal) != 0;
        is_blocked || !state.tasks.drops(process, signal)
    }

    /// Takes signals out that can be delivered to a task and have no effect.
    #[cold]
    pub(crate) fn drop_ignored(&'static self, state: &mut State, slot: usize) {
        let (process, mut ready) = (state.tasks.get(slot).process, state.tasks.deliverable(slot));
        while ready != 0 {
            let signal = ready.trailing_zeros() as u8 + 1;
            ready &= ready - 1;
            if state.tasks.drops(process, signal) {
                while self.take_signal(state, slot, signal).is_some() {}
            }
        }
    }

    /// Has a task look at its signals.
    fn attend(&'static self, state: &mut State, slot: usize) {
        match state.tasks.get(slot).doing {
            Doing::Waiting(_) => state.tasks.make_ready(slot),
            Doing::Running(cpu) if cpu != A::cpu() => A::interrupt(cpu),
            _ => {}
        }
    }

    /// Delivers the pending signals of the task that this CPU runs.
    pub(crate) fn deliver(
        &'static self,
        state: &mut State,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
    ) -> After {
        loop {
            let ready = state.tasks.deliverable(slot);
            if ready == 0 {
                let signals = &mut state.tasks.get_mut(slot).signals;
                if let Some(mask) = signals.suspended.take() {
                    signals.blocked = mask;
                }
                return After::Resume;
            }
            // The end first.
            let first = if ready & ALWAYS != 0 { ready & ALWAYS } else { ready };
            let signal = first.trailing_zeros() as u8 + 1;
            let info = self.take_signal(state, slot, signal).unwrap_or(SignalInfo::KERNEL);
            let tasks = &mut state.tasks;
            let actions = &tasks.process_of(slot).actions;
            let action = actions.get(signal);
            // `exit_group` ends threads of process 1, too.
            let is_own_end = tasks.get(slot).is_leaving && bit(signal) & ALWAYS != 0;
            if !is_own_end && tasks.drops(tasks.get(slot).process, signal) {
                continue;
            }
            if action.handler == DEFAULT {
                let ends = if tasks.get(slot).is_leaving { Ends::Task } else { Ends::Process };
                return After::End(ends, i32::from(signal));
            }
            let signals = &mut tasks.get_mut(slot).signals;
            let mask = signals.suspended.take().unwrap_or(signals.blocked);
            let (stack, from) = (signals.stack, body.context.stack());
            let top = if action.flags & SA_ONSTACK != 0 { stack.top(from) } else { None };
            let delivery = Delivery { signal, action, mask, info, stack, top };
            let mut frame = [0; SIGNAL_FRAME];
            A::save(&mut body.context);
            let (at, len) = body.context.enter_handler(&delivery, &mut frame);
            A::load(&body.context);
            // A frame does not leave the handlers' stack at its lower end.
            let fits = !stack.holds(from) || stack.holds(at);
            let written = match frame.get(..len) {
                Some(bytes) if fits => body.space.write(self.on(pin), at, bytes).is_ok(),
                _ => false,
            };
            if !written {
                return After::End(Ends::Process, i32::from(number::SIGSEGV));
            }
            let own = if action.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
            signals.set_blocked(signals.blocked | action.mask | own);
            if top.is_some() {
                signals.stack = stack.in_handler();
            }
            if action.flags & SA_RESETHAND != 0 {
                state.tasks.set_action(slot, signal, Action::NONE);
            }
        }
    }
}
