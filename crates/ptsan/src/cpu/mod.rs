//! The caches of one CPU's MMU, what drops entries from them, and what a translation comes to.
//!
//! Entries are kept until something drops them, which is the nastiest that hardware may do.
mod context;
mod flush;
mod node;
mod processor;
mod translation;

pub(crate) use context::Context;
pub(crate) use flush::Strides;
pub use flush::{Flush, Target};
pub(crate) use node::{Table, TlbEntry};
pub use processor::CpuState;
pub(crate) use processor::{Cpu, Flight, Loaded, Register};
pub use translation::{Fault, Translation};
