//! The input of a replay: a trace in memory, and the programs made from it.
pub mod relayout;
#[cfg(feature = "formats")]
pub mod round;
pub mod schedule;
pub mod trace;
