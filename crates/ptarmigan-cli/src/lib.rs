//! The workbench for page-table memory, as a library: inspect, replay, advise, bench, calibrate,
//! report.
pub mod advise;
pub mod bench;
pub mod calibrate;
pub mod cli;
mod csv;
pub mod inspect;
mod page_prices;
pub mod report;
mod rows;
