//! Tools for measuring, used by `replay` and `bench`: clocks, affinity, free memory,
//! switches of processes, statistics.
pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod memory;
pub(crate) mod page_prices;
pub(crate) mod stats;
pub(crate) mod usage;
pub(crate) mod welch;
