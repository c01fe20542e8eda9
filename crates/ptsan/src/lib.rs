#![doc = include_str!("../README.md")]
// Unsafe code catches stores and implements the traits of two crates. Without their features the
// crate has no unsafe code.
#![cfg_attr(not(any(feature = "watch", feature = "x86_64", feature = "aarch64-paging")), forbid(unsafe_code))]
#![cfg_attr(any(feature = "watch", feature = "x86_64", feature = "aarch64-paging"), deny(unsafe_code))]
#![deny(missing_docs)]

// The rooms. Each uses only those above it.
mod hash;
mod memory;

pub mod arch;
mod report;
mod shadow;

mod cpu;
mod owed;
mod state;

mod checks;
mod walk;

mod face;
mod handles;

#[cfg(feature = "watch")]
pub mod watch;

#[cfg(feature = "adapters")]
pub mod adapters;

pub use arch::{
    Access, AccessKind, Arch, ByGuestAddress, Canonical, Contiguous, Entry, Granule, HardwareBits,
    HashLayout, HashTable, Level, MemoryType, Perms, SecondStage, StoreOrdering, StructureScope,
};
pub use cpu::{CpuState, ExceptionLevel, Fault, Flush, GuestPage, Target, Translation};
pub use face::{Barrier, Content, Expected, Tree};
pub use handles::{GuestMemory, Session, Shared, Test};
pub use memory::Memory;
pub use report::{
    Allow, Consequence, Finding, Format, Happened, HistoryEvent, Kind, Origins, Place, Recorded, Report,
    Rule, Severity, Spread, Summary, SuppressionError, Suppressions, Trace, TraceFrame,
};
pub use state::{Adversary, Config, DeviceEntry, Errata, Guard, Hold, Operation, Reader, Sanitizer, Stats};
