#![doc = include_str!("../README.md")]
// The only unsafe code is what catches stores, and it is not there unless asked for.
#![cfg_attr(not(feature = "watch"), forbid(unsafe_code))]
#![cfg_attr(feature = "watch", deny(unsafe_code))]
#![deny(missing_docs)]

pub mod arch;
mod bbm;
mod config;
mod cpus;
mod expect;
mod frames;
mod hash;
mod history;
mod memory;
mod mmu;
mod report;
mod sanitizer;
mod tables;
mod translation;
mod walk;
#[cfg(feature = "watch")]
pub mod watch;
mod why;

pub use arch::{Access, AccessKind, Arch, Canonical, Entry, Granule, Level, Perms, StructureScope};
pub use config::{Config, Stats};
pub use expect::{Expected, Tree};
pub use history::{Happened, HistoryEvent};
pub use memory::Memory;
pub use mmu::{CpuState, Flush, Target};
pub use report::{Finding, Kind, Place, Rule};
pub use sanitizer::Sanitizer;
pub use tables::Content;
pub use translation::{Fault, Translation};
