//! The workbench for page-table memory, as a library: inspect, replay, advise, price, bench,
//! calibrate, report.
pub mod advise;
pub mod bench;
pub mod calibrate;
pub mod cli;
mod csv;
mod inputs;
pub mod inspect;
mod markdown;
#[cfg(target_os = "linux")]
mod neighbour;
mod page_prices;
mod paragraphs;
pub mod price;
pub mod report;
mod rows;
