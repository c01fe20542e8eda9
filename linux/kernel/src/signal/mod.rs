//! Signals: pending ones, the actions of a process, and delivery.

pub mod action;
mod deliver;
pub mod exception;
pub mod frame;
pub mod info;
pub mod number;
pub mod set;
pub mod stack;

pub use action::{Action, DEFAULT, Delivery, IGNORE, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART};
pub use info::{Pending, SignalInfo};
pub use number::{SIGNALS, bit};
pub use set::{Actions, Signals};
pub use stack::SignalStack;
