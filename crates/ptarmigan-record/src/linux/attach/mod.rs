//! Recording processes that run already.
//!
//! Events of all tasks are switched on first. Then the state of each address space is read from
//! `/proc` ([`state`](super::state)), between two marks in the stream of events. The builder
//! decides by the events between the marks whether the state is of one moment. If not, a later one
//! counts.
pub(crate) mod seize;
pub(crate) mod session;
mod still;
pub(crate) mod tree;
pub(crate) mod watch;
