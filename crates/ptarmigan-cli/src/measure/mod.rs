//! What measuring takes, wherever it is done: clocks, a processor to stay on, and the middle of some numbers.
pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod stats;
