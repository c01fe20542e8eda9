//! Programs of workers.
use super::op::Op;

/// The program of one worker.
#[derive(Default)]
pub struct Program {
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// For each operation, the event of the trace that it belongs to.
    pub origins: Vec<u32>,
}

/// The programs for a trace.
pub struct Schedule {
    /// The program of each worker.
    pub programs: Vec<Program>,
    /// Number of logical CPUs. One worker has all of them, or each worker has one.
    pub cpus: usize,
    /// Number of spaces ever made; number 0 exists at the start.
    pub spaces: usize,
}

impl Schedule {
    /// Returns how often a worker waits for another one.
    pub fn waits(&self) -> u64 {
        let wait = |op: &&Op| matches!(op, Op::Wait { .. });
        self.programs.iter().map(|p| p.ops.iter().filter(wait).count() as u64).sum()
    }
}
