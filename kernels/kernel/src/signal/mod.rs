//! Signals: what is pending, what a task does about it, and delivery.

pub mod number;

use ptarmigan::cpu::Pinned;

use crate::arch::{Arch, Context, SIGNAL_FRAME};
use crate::memory::user;
use crate::task::{Body, Doing, INIT};
use crate::{Kernel, State};

pub use number::SIGNALS;

/// The default action, as programs name it.
pub const DEFAULT: u64 = 0;
/// To ignore a signal, as programs name it.
pub const IGNORE: u64 = 1;
/// The handler's signal is not masked while it runs.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// The action is taken once.
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// Calls that the handler interrupted are made again.
pub const SA_RESTART: u64 = 0x1000_0000;

/// What a task does about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The handler, [`DEFAULT`] or [`IGNORE`].
    pub handler: u64,
    /// `SA_` flags.
    pub flags: u64,
    /// Where handlers return to.
    pub restorer: u64,
    /// Signals that are masked while the handler runs.
    pub mask: u64,
}

impl Action {
    const NONE: Action = Action { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };
}

/// Signals of a task. Signal `n` is bit `n - 1` of a set.
#[derive(Clone)]
pub struct Signals {
    /// Those that were sent and not delivered.
    pub pending: u64,
    /// Those that are masked.
    pub blocked: u64,
    /// The mask that comes back after the next handler (`sigsuspend`).
    pub suspended: Option<u64>,
    actions: [Action; SIGNALS],
}

/// A handler is to be entered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The signal.
    pub signal: u8,
    /// What to do about it.
    pub action: Action,
    /// The mask that `sigreturn` brings back.
    pub mask: u64,
}

/// Returns the bit of a signal; 0 if there is no such signal.
pub const fn bit(signal: u8) -> u64 {
    if signal == 0 || signal as usize > SIGNALS { 0 } else { 1 << (signal - 1) }
}

/// Signals that cannot be masked or handled.
const ALWAYS: u64 = bit(number::SIGKILL) | bit(number::SIGSTOP);

impl Signals {
    /// Makes those of a new program: default actions, nothing masked.
    pub const fn new() -> Self {
        Signals { pending: 0, blocked: 0, suspended: None, actions: [Action::NONE; SIGNALS] }
    }

    /// Returns the action for a signal.
    pub fn action(&self, signal: u8) -> Action {
        self.actions.get(usize::from(signal).wrapping_sub(1)).copied().unwrap_or(Action::NONE)
    }

    /// Sets the action for a signal; false if it cannot be changed.
    pub fn set_action(&mut self, signal: u8, action: Action) -> bool {
        if bit(signal) & ALWAYS != 0 {
            return false;
        }
        let Some(place) = self.actions.get_mut(usize::from(signal).wrapping_sub(1)) else { return false };
        *place = action;
        if self.is_ignored(signal) {
            self.pending &= !bit(signal);
        }
        true
    }

    /// Sets the mask; signals that cannot be masked are not.
    pub fn set_blocked(&mut self, mask: u64) {
        self.blocked = mask & !ALWAYS;
    }

    /// Begins another program: handlers go, signals that were ignored stay so.
    pub fn exec(&mut self) {
        for action in &mut self.actions {
            if action.handler != IGNORE {
                *action = Action::NONE;
            }
        }
        self.suspended = None;
    }

    /// Whether a signal does nothing.
    pub fn is_ignored(&self, signal: u8) -> bool {
        match self.action(signal).handler {
            IGNORE => true,
            DEFAULT => number::is_ignored_by_default(signal),
            _ => false,
        }
    }

    /// Sends a signal that the task cannot avoid: what it has just done cannot go on.
    pub fn force(&mut self, signal: u8) {
        if self.blocked & bit(signal) != 0 || self.is_ignored(signal) {
            self.blocked &= !bit(signal);
            if let Some(action) = self.actions.get_mut(usize::from(signal).wrapping_sub(1)) {
                *action = Action::NONE;
            }
        }
        self.pending |= bit(signal);
    }

    /// Returns the signals that can be delivered now.
    #[inline(always)]
    pub fn deliverable(&self) -> u64 {
        self.pending & !self.blocked
    }
}

impl Default for Signals {
    fn default() -> Self {
        Signals::new()
    }
}

impl<A: Arch> Kernel<A> {
    /// Sends a signal to a task. Process 1 gets only those that it has handlers for, as under
    /// Linux.
    pub fn send(&'static self, state: &mut State, slot: usize, signal: u8) {
        let task = state.tasks.get_mut(slot);
        if bit(signal) == 0 || !task.is_alive() || task.signals.is_ignored(signal) {
            return;
        }
        if slot == INIT && task.signals.action(signal).handler == DEFAULT {
            return;
        }
        task.signals.pending |= bit(signal);
        if task.signals.deliverable() == 0 {
            return;
        }
        match task.doing {
            Doing::Waiting(_) => state.tasks.make_ready(slot),
            Doing::Running(cpu) if cpu != A::cpu() => A::interrupt(cpu),
            _ => {}
        }
    }

    /// Delivers what is pending for the task that this CPU runs.
    pub(crate) fn deliver(
        &'static self,
        state: &mut State,
        slot: usize,
        body: &mut Body<A>,
        pin: &Pinned<'_>,
    ) -> crate::task::After {
        use crate::task::After;
        loop {
            let signals = &mut state.tasks.get_mut(slot).signals;
            let ready = signals.deliverable();
            if ready == 0 {
                if let Some(mask) = signals.suspended.take() {
                    signals.blocked = mask;
                }
                return After::Resume;
            }
            let signal = ready.trailing_zeros() as u8 + 1;
            signals.pending &= !bit(signal);
            if signals.is_ignored(signal) {
                continue;
            }
            let action = signals.action(signal);
            if action.handler == DEFAULT {
                return After::End(i32::from(signal));
            }
            let mask = signals.suspended.take().unwrap_or(signals.blocked);
            let delivery = Delivery { signal, action, mask };
            let mut frame = [0; SIGNAL_FRAME];
            A::save(&mut body.context);
            let (at, len) = body.context.enter_handler(&delivery, &mut frame);
            A::load(&body.context);
            let written = match (&mut body.space, frame.get(..len)) {
                (Some(space), Some(bytes)) => user::write::<A>(self.on(pin), space, at, bytes).is_ok(),
                _ => false,
            };
            if !written {
                return After::End(i32::from(number::SIGSEGV));
            }
            let own = if action.flags & SA_NODEFER == 0 { bit(signal) } else { 0 };
            signals.set_blocked(signals.blocked | action.mask | own);
            if action.flags & SA_RESETHAND != 0 {
                signals.set_action(signal, Action::NONE);
            }
        }
    }
}
