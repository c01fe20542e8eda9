//! What a replay starts from: a trace in memory, made into one program for each worker.
pub mod schedule;
pub mod trace;
