//! Who gets a signal, and how it is delivered.

use ptarmigan::cpu::Pinned;

use super::action::{Action, DEFAULT, Delivery, SA_NODEFER, SA_ONSTACK, SA_RESETHAND};
use super::info::{Detail, Info, SI_USER};
use super::number::{self, bit};
use super::set::ALWAYS;
use crate::arch::{Arch, Context, SIGNAL_FRAME};
use crate::task::{After, Body, Doing, Ends, INIT, Tasks};
use crate::{Kernel, State};

impl Tasks {
    /// Sends a signal that the task cannot avoid: its last operation cannot go on.
    pub fn force(&mut self, slot: usize, signal: u8, info: Info) {
        let process = self.process_of_mut(slot);
        let is_ignored = process.actions.is_ignored(signal);
        let signals = &self.get(slot).signals;
        if is_ignored || signals.blocked & bit(signal) != 0 {
            self.process_of_mut(slot).actions.set(signal, Action::NONE);
            self.get_mut(slot).signals.blocked &= !bit(signal);
        }
        self.get_mut(slot).signals.pending.add(signal, info);
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
    /// Sends a signal to a process, any thread of which may take it. Process 1 gets only those that
    /// it has handlers for, as under Linux.
    pub fn send(&'static self, state: &mut State, process: usize, signal: u8, info: Info) {
        if !Self::takes(state, process, signal) {
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
    pub fn send_to_task(&'static self, state: &mut State, slot: usize, signal: u8, info: Info) {
        if !Self::takes(state, state.tasks.get(slot).process, signal) {
            return;
        }
        state.tasks.get_mut(slot).signals.pending.add(signal, info);
        if state.tasks.deliverable(slot) != 0 || state.tasks.awaited(slot) & bit(signal) != 0 {
            self.attend(state, slot);
        }
    }

    /// Takes a signal that waits for a task, or for its process.
    pub(crate) fn take_signal(&'static self, state: &mut State, slot: usize, signal: u8) -> Option<Info> {
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
        state.tasks.get_mut(slot).signals.pending.add(number::SIGKILL, Info::KERNEL);
        self.attend(state, slot);
    }

    /// Whether a signal does anything to a process. One that is masked waits, as its action may
    /// change, or a call may take it.
    fn takes(state: &State, process: usize, signal: u8) -> bool {
        let shared = state.tasks.process(process);
        if shared.threads == 0 || bit(signal) == 0 {
            return false;
        }
        let is_wanted = process != INIT || shared.actions.get(signal).handler != DEFAULT;
        let masks = |slot| state.tasks.get(slot).signals.blocked & bit(signal) != 0;
        (is_wanted && !shared.actions.is_ignored(signal)) || state.tasks.threads(process).any(masks)
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
            let info = self.take_signal(state, slot, signal).unwrap_or(Info::KERNEL);
            let tasks = &mut state.tasks;
            let actions = &tasks.process_of(slot).actions;
            if actions.is_ignored(signal) {
                continue;
            }
            let action = actions.get(signal);
            // As under Linux, programs do not end process 1 with a signal that it has masked.
            if action.handler == DEFAULT && tasks.get(slot).process == INIT && info.code <= SI_USER {
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
