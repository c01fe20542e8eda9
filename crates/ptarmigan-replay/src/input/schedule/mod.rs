//! Turns a trace into programs, one for each worker.
//!
//! Everything that is known in advance is computed once, before any pass: the space of each task,
//! when CPUs switch, which task ends a space, and where workers wait for each other. A pass only
//! executes a straight list of operations for each worker.
//!
//! The recorded order is kept for each CPU, each task and each space. In particular, a child runs
//! after its fork, and the parent of a `vfork` runs after the child's `execve` or exit, because
//! both use one space.
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
