//! Sets of signals, and the action on each.

use super::action::{Action, DEFAULT, IGNORE};
use super::info::Pending;
use super::number::{self, SIGNALS, bit};
use super::stack::SignalStack;

/// A process's actions on signals.
#[derive(Clone)]
pub struct Actions([Action; SIGNALS]);

/// Signals of a task. Signal `n` is bit `n - 1` of a set.
#[derive(Clone)]
pub struct Signals {
    /// Those that were sent to it alone and not delivered.
    pub pending: Pending,
    /// Those that are masked.
    pub blocked: u64,
    /// The mask that comes back after the next handler (`sigsuspend`).
    pub suspended: Option<u64>,
    /// The stack for handlers.
    pub stack: SignalStack,
}

/// Signals that cannot be masked or handled.
pub const ALWAYS: u64 = bit(number::SIGKILL) | bit(number::SIGSTOP);

impl Actions {
    /// Makes those of a new program: default actions.
    pub const fn new() -> Self {
        Actions([Action::NONE; SIGNALS])
    }

    /// Returns the action for a signal.
    pub fn get(&self, signal: u8) -> Action {
        self.0.get(usize::from(signal).wrapping_sub(1)).copied().unwrap_or(Action::NONE)
    }

    /// Sets the action for a signal; false if it cannot be changed.
    pub fn set(&mut self, signal: u8, action: Action) -> bool {
        if bit(signal) & ALWAYS != 0 {
            return false;
        }
        let Some(place) = self.0.get_mut(usize::from(signal).wrapping_sub(1)) else { return false };
        *place = action;
        true
    }

    /// Begins another program: handlers go, signals that were ignored stay so.
    pub fn exec(&mut self) {
        for action in &mut self.0 {
            if action.handler != IGNORE {
                *action = Action::NONE;
            }
        }
    }

    /// Whether a signal has no effect.
    pub fn is_ignored(&self, signal: u8) -> bool {
        match self.get(signal).handler {
            IGNORE => true,
            DEFAULT => number::is_ignored_by_default(signal),
            _ => false,
        }
    }
}

impl Signals {
    /// Makes those of a new program, without masked signals.
    pub const fn new() -> Self {
        Signals { pending: Pending::new(), blocked: 0, suspended: None, stack: SignalStack::NONE }
    }

    /// Makes them those of a new task, whose mask and stack for handlers are given.
    pub fn begin(&mut self, blocked: u64, stack: SignalStack) {
        self.pending.clear();
        (self.blocked, self.suspended, self.stack) = (blocked, None, stack);
    }

    /// Sets the mask; signals that cannot be masked are not.
    pub fn set_blocked(&mut self, mask: u64) {
        self.blocked = mask & !ALWAYS;
    }
}
