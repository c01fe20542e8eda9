//! The workers: threads that execute a schedule, each on its own CPUs.
mod cells;
mod engine;
mod idle;
pub mod job;
pub mod look;
pub mod machine;
pub mod outcome;
pub mod panics;
mod progress;
mod spaces;
mod step;
pub mod watch;
