//! High memory on a hosted machine: its slots, threads that sleep for them, and a machine that
//! reaches its data frames through them.
mod kmap;
mod machine;
mod real;
mod setup;
mod sleeper;
mod store;
mod tables;

pub use kmap::{HighSlots, KmapCounts};
pub use machine::HighMachine;
pub use real::{HighMemory, RealSlots};
pub use setup::{HighConfig, HighError, Kmap, SlotKind};
pub use sleeper::Sleeper;
pub use store::StoreSlots;
pub use tables::HostTables;
