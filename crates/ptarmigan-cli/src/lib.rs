//! The workbench for page-table memory, as a library: record, inspect, replay, bench.
mod bar;
pub mod bench;
mod error;
pub mod inspect;
mod measure;
mod model;
pub mod print;
pub mod record;
pub mod replay;

pub use error::{Context, Failure};
