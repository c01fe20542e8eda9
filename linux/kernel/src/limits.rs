//! Sizes of the kernel's tables.

/// CPUs at the most.
pub const CPUS: usize = 8;
/// Tasks at a time, a power of two.
pub const TASKS: usize = 4096;
/// Spaces at a time: one for each task, and those that programs begin in before the old ones go.
pub const SPACES: usize = TASKS + 64;
