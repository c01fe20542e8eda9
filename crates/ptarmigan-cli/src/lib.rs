//! The workbench for page-table memory, as a library: record, inspect, replay, advise, bench,
//! calibrate, report.
pub mod advise;
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
