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

pub use cpus::CpuMap;
pub use op::Op;
pub use path::critical_path;

/// What one worker does.
#[derive(Default)]
pub struct Program {
    /// In order.
    pub ops: Vec<Op>,
    /// The event of the trace that each belongs to.
    pub origins: Vec<u32>,
}

/// A trace made into programs.
pub struct Schedule {
    /// By worker.
    pub programs: Vec<Program>,
    /// Logical CPUs. One worker has them all, or each worker one.
    pub cpus: usize,
    /// Spaces that are ever born; number 0 is there at the start.
    pub spaces: usize,
}

impl Schedule {
    /// Times that a worker waits for another.
    pub fn waits(&self) -> u64 {
        let wait = |op: &&Op| matches!(op, Op::Wait { .. });
        self.programs.iter().map(|p| p.ops.iter().filter(wait).count() as u64).sum()
    }
}
