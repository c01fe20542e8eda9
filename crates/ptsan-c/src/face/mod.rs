//! The functions of the header, a file for each of its parts.
//!
//! A new function is one `extern "C" fn` in the file of its part: [`hook`](crate::handles::hook)
//! for those that return a code, [`call`](crate::handles::call) for others. A new file is also
//! listed in `tests/header.rs`, whose order is that of the header.
mod accesses;
mod barriers;
mod cpus;
mod create;
mod devices;
mod end;
mod expect;
mod findings;
mod flushes;
mod frames;
mod guests;
mod harness;
mod hashed;
mod locks;
mod operations;
mod readers;
mod spaces;
mod stores;
mod tables;
mod watch;

pub use accesses::*;
pub use barriers::*;
pub use cpus::*;
pub use create::*;
pub use devices::*;
pub use end::*;
pub use expect::*;
pub use findings::*;
pub use flushes::*;
pub use frames::*;
pub use guests::*;
pub use harness::*;
pub use hashed::*;
pub use locks::*;
pub use operations::*;
pub use readers::*;
pub use spaces::*;
pub use stores::*;
pub use tables::*;
pub use watch::*;
