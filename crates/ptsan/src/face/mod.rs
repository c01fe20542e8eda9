//! Provides the hooks, by subject.
mod accesses;
mod barriers;
mod cpus;
mod deferred;
mod device_entries;
mod devices;
mod expect;
mod frames;
mod harness;
mod hashed;
mod locks;
mod misuse;
mod numbers;
mod operations;
mod readers;
mod recorded;
mod results;
mod stages;
mod stores;
mod tables;

pub use barriers::Barrier;
pub use expect::{Expected, Tree};
pub use tables::Content;
