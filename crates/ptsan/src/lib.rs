#![doc = include_str!("../README.md")]
// The only unsafe code is what catches stores, and it is not there unless asked for.
#![cfg_attr(not(feature = "watch"), forbid(unsafe_code))]
#![cfg_attr(feature = "watch", deny(unsafe_code))]
#![deny(missing_docs)]

pub mod arch;
mod frames;
mod hash;
mod history;
mod memory;
mod mmu;
mod report;
mod sanitizer;
mod tables;
mod walk;
#[cfg(feature = "watch")]
pub mod watch;

pub use arch::{Access, AccessKind, Arch, Canonical, Entry, Level, Perms, StructureScope};
pub use history::{Happened, HistoryEvent};
pub use memory::Memory;
pub use mmu::{CpuState, Flush, Target};
pub use report::{Finding, Kind, Place, Rule};
pub use sanitizer::{Config, Sanitizer, Stats};
pub use tables::Content;
pub use walk::{Fault, Translation};
