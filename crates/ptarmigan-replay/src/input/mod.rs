//! The input of a replay: a trace in memory, and the programs made from it.
pub mod relayout;
pub mod schedule;
pub mod trace;
