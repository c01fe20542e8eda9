#![doc = include_str!("../README.md")]
// Without adapters there is none; they need it for the traits of the crates that they adapt.
#![cfg_attr(not(any(feature = "x86_64", feature = "page_table_multiarch", feature = "page-table-generic", feature = "aarch64-paging")), forbid(unsafe_code))]
#![cfg_attr(any(feature = "x86_64", feature = "page_table_multiarch", feature = "page-table-generic", feature = "aarch64-paging"), deny(unsafe_code))]
#![deny(missing_docs)]

#[cfg(any(feature = "x86_64", feature = "page_table_multiarch", feature = "page-table-generic", feature = "aarch64-paging"))]
#[allow(unsafe_code)]
pub mod adapters;
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
