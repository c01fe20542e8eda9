//! Tools for measuring, used by `replay` and `bench`: clocks, affinity, free memory, statistics.
pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod memory;
pub(crate) mod stats;
