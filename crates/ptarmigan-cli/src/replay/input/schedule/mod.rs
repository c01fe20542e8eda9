//! A trace made into programs, one for each worker.
//!
//! Everything that can be known in advance is worked out once, before any pass: which space a task uses, which CPU has
//! what loaded and switches when, who ends a space, and who has to wait for whom. What is left for a pass is one
//! straight list for each worker.
//!
//! The order kept is that of the recording for each CPU, for each task and for each space: a child after its fork, and
//! the parent of a `vfork` after the child's `execve` or exit, as both use one space.
mod build;
mod cpus;
mod op;
mod order;
mod path;
mod program;

pub use cpus::CpuMap;
pub use op::Op;
pub use path::critical_path;
pub use program::{Program, Schedule};
