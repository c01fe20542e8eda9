//! Signals: what is pending, what a process does about it, and delivery.

pub mod action;
mod deliver;
pub mod number;
pub mod set;

pub use action::{Action, DEFAULT, Delivery, IGNORE, SA_NODEFER, SA_RESETHAND, SA_RESTART};
pub use number::SIGNALS;
pub use set::{Actions, Signals, bit};
