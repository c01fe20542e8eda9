//! The caches of one CPU's MMU.
//!
//! Entries are kept until something drops them, which is the nastiest that hardware may do.
mod context;
mod cpu;
mod flush;

pub(crate) use context::{Context, Table, TlbEntry};
pub use cpu::CpuState;
pub(crate) use cpu::{Cpu, Flight, Loaded, Register};
pub(crate) use flush::Strides;
pub use flush::{Flush, Target};
