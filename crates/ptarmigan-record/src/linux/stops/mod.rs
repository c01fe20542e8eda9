//! Tasks that wait for the recorder: at their start, at system calls, at their end.
mod callers;
pub(crate) mod calls;
mod reads;
pub(crate) mod start;
pub(crate) mod supervisor;
pub(crate) mod tracer;
mod watch;
