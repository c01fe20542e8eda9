//! The report of a replay, as JSON and as text.
mod data;
mod text;

pub use data::{Flushes, HashReport, LevelReport, PolicyReport, ReplayReport, SanitizerReport, TruthReport};
