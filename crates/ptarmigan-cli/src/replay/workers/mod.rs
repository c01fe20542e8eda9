//! The threads that carry a schedule out, each with CPUs of its own.
mod calls;
mod cells;
mod engine;
mod idle;
pub mod job;
pub mod outcome;
mod progress;
mod spaces;
mod step;
pub mod watch;
