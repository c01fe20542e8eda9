//! The caches of one CPU's MMU, the invalidations that drop entries from them, and the result of a
//! translation.
//!
//! Entries stay until something drops them: the worst that hardware may do.
mod combined;
mod context;
mod entry;
mod flush;
mod hashed;
mod processor;
mod slots;
mod translation;
mod visits;

pub(crate) use combined::CombinedEntry;
pub use combined::GuestPage;
pub(crate) use context::Context;
pub(crate) use entry::{Invalid, Table, TlbEntry};
pub(crate) use flush::Strides;
pub use flush::{ExceptionLevel, Flush, Target};
pub(crate) use hashed::HashedEntry;
pub use processor::CpuState;
pub(crate) use processor::{Cpu, Flight, Loaded, Register};
pub use translation::{Fault, Translation};
