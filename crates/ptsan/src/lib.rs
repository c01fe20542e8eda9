#![doc = include_str!("../README.md")]
// Unsafe code is what catches stores and what the traits of two crates ask for, and not there unless asked for.
#![cfg_attr(not(any(feature = "watch", feature = "x86_64", feature = "aarch64-paging")), forbid(unsafe_code))]
#![cfg_attr(any(feature = "watch", feature = "x86_64", feature = "aarch64-paging"), deny(unsafe_code))]
#![deny(missing_docs)]

#[cfg(feature = "adapters")]
pub mod adapters;
mod adversary;
pub mod arch;
mod bbm;
mod config;
mod cpus;
mod expect;
mod frames;
mod hash;
mod history;
mod leftovers;
mod memory;
mod mmu;
mod operations;
mod report;
mod sanitizer;
mod session;
mod shared;
mod tables;
mod translation;
mod walk;
#[cfg(feature = "watch")]
pub mod watch;
mod why;

pub use adversary::Adversary;
pub use arch::{Access, AccessKind, Arch, Canonical, Entry, Granule, Level, Perms, StructureScope};
pub use config::{Config, Stats};
pub use expect::{Expected, Tree};
pub use history::{Happened, HistoryEvent};
pub use memory::Memory;
pub use mmu::{CpuState, Flush, Target};
pub use operations::Operation;
pub use report::{
    Allow, Finding, Kind, Origins, Place, Rule, SuppressionError, Suppressions, Trace, TraceFrame,
};
pub use sanitizer::Sanitizer;
pub use session::Session;
pub use shared::Shared;
pub use tables::Content;
pub use translation::{Fault, Translation};
