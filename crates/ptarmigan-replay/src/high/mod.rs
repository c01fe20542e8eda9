//! High memory in a replay: its options, and counts of the frames that were mapped.
//!
//! A map is counted where a kernel would make one: for each anonymous page that is cleared, for the
//! source and the target of each page that is copied, and for each page of arguments of a program
//! that is loaded. Recordings do not contain reads of files, but for those that copy a page.
mod args;
mod report;
mod userpte;

pub use args::{High, HighArgs};
pub use report::KmapReport;
pub use userpte::UserPteReport;
