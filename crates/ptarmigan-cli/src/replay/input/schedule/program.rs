//! Programs, one for each worker.
use super::op::Op;

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
