//! The workbench for page-table memory, as a library: record, inspect, replay, advise, bench,
//! calibrate, report.
pub mod advise;
mod bar;
pub mod baseline;
pub mod bench;
pub mod calibrate;
pub mod cli;
mod error;
mod input;
pub mod inspect;
mod measure;
mod model;
mod nearest;
mod output;
mod print;
pub mod record;
pub mod replay;
pub mod report;
mod shipped;
mod words;

pub use error::Failure;
