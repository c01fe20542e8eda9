//! The state of a sanitizer, without any rule: configuration, CPUs, frames, findings, operations
//! under way.
mod chance;
mod config;
mod device_entries;
mod effect;
mod errata;
mod hashed;
mod issued;
mod locks;
mod numbers;
mod operations;
mod queue;
mod readers;
mod sanitizer;
mod stats;
mod stores;
mod written;

pub use chance::Adversary;
pub(crate) use chance::Chance;
pub use config::Config;
pub(crate) use config::parse_seed;
pub use device_entries::DeviceEntry;
pub(crate) use device_entries::{KnownEntry, read_entry};
pub use errata::Errata;
pub(crate) use hashed::Owner;
pub(crate) use issued::Issued;
pub(crate) use locks::Held;
pub use locks::{Guard, Hold};
pub use operations::Operation;
pub(crate) use operations::Suspect;
pub(crate) use queue::Queued;
pub use readers::Reader;
pub use sanitizer::Sanitizer;
pub(crate) use sanitizer::details_of;
pub use stats::Stats;
pub(crate) use stores::EntryAt;
pub(crate) use written::Written;
