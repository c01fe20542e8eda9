//! Actions on a signal.

use super::info::SignalInfo;
use super::stack::SignalStack;

/// The default action, as programs name it.
pub const DEFAULT: u64 = 0;
/// To ignore a signal, as programs name it.
pub const IGNORE: u64 = 1;
/// The handler's signal is not masked while it runs.
pub const SA_NODEFER: u64 = 0x4000_0000;
/// The action is taken once.
pub const SA_RESETHAND: u64 = 0x8000_0000;
/// The handler runs on the stack of `sigaltstack`.
pub const SA_ONSTACK: u64 = 0x0800_0000;
/// Calls that the handler interrupted are made again.
pub const SA_RESTART: u64 = 0x1000_0000;

/// A task's action on a signal.
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
    /// The default.
    pub const NONE: Action = Action { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };
}

/// A handler is to be entered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The signal.
    pub signal: u8,
    /// The action on it.
    pub action: Action,
    /// The mask that `sigreturn` brings back.
    pub mask: u64,
    /// The information about it.
    pub info: SignalInfo,
    /// The stack that `sigreturn` brings back.
    pub stack: SignalStack,
    /// Where the handler's stack begins, if that is not where the program's ends.
    pub top: Option<u64>,
}

/// The part of a handler's frame that describes the task, beside registers.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Signals that are masked.
    pub mask: u64,
    /// The stack for handlers.
    pub stack: SignalStack,
}
