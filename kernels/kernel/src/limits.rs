//! Sizes of the kernel's tables.

/// CPUs at the most.
pub const CPUS: usize = 8;
/// Tasks at a time.
pub const TASKS: usize = 256;
