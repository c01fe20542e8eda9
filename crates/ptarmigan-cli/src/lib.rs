//! The workbench for page-table memory, as a library: record, inspect, replay, bench,
//! calibrate, report.
mod bar;
pub mod bench;
pub mod calibrate;
mod error;
mod input;
pub mod inspect;
mod measure;
mod model;
mod output;
pub mod print;
pub mod record;
pub mod replay;
pub mod report;

pub use error::{Context, Failure};
