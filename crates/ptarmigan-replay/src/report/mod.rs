//! The report of a replay, as JSON and as text.
mod data;
mod text;

pub use data::{HashReport, LevelReport, PolicyReport, ReplayReport, SanitizerReport, TruthReport};
