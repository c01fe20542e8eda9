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
pub mod json;
mod measure;
mod model;
mod nearest;
mod output;
pub mod print;
pub mod record;
pub mod replay;
pub mod report;
mod shipped;
mod term;
mod text;
mod words;

pub use error::{Context, Failure};
