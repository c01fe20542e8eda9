//! Describes the high memory of a machine, and the errors of its setup and its end.
use crate::host::HostError;
use ptarmigan::bootmem::BootMemoryShort;
use ptarmigan::cpu::WrongMachine;
use ptarmigan::highmem::local::LocalSetupError;
use ptarmigan::highmem::pool::{PoolError, PoolSetupError};
use std::fmt;

/// The implementation that maps frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kmap {
    /// [Local maps](ptarmigan::highmem::local).
    Local,
    /// The [pool](ptarmigan::highmem::pool).
    Pool,
    /// The pool [as Linux has it](ptarmigan_linux::LinuxPool), with the flushes of Linux 6.1.
    Linux,
    /// The same with the flushes of Linux 2.4: one each round, even if no slot is stale.
    Linux24,
}

/// The kind of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    /// Mappings of the host: [`RealSlots`](super::RealSlots). The host's
    /// [high memory](crate::HostConfig::high_file) has to be a file.
    Real,
    /// Entries of an array: [`StoreSlots`](super::StoreSlots).
    Store,
}

/// How a machine reaches its high memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighConfig {
    /// The implementation that maps frames.
    pub kmap: Kmap,
    /// The kind of slots.
    pub slots: SlotKind,
    /// Slots of the pool: 16 for each CPU at the least. Local maps have [16](Self::DEPTH) for each
    /// CPU, whatever this says.
    pub pool_slots: usize,
}

impl HighConfig {
    /// Slots of each CPU for local maps, as on Linux.
    pub const DEPTH: usize = 16;
    /// Slots for each CPU that a pool has at the least: a copy takes two at a time, and other CPUs
    /// may have some at hand.
    pub const LEAST: usize = 16;
    /// Real slots at the most: each may take two mappings, of which a process has some 65,000.
    pub const MOST_REAL: usize = 16384;
}

/// Why high memory cannot be set up, or was not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HighError {
    /// The host has no high memory.
    NoHighMemory,
    /// Real slots are pages of a file, and the host's high memory is not a file.
    NoFile,
    /// So many slots do not do.
    Slots {
        /// Slots asked for.
        slots: usize,
        /// The least.
        least: usize,
        /// The most.
        most: usize,
    },
    /// The slots were made for another host.
    WrongMachine(WrongMachine),
    /// The host gave no addresses.
    Host(String),
    /// The library's own arrays did not fit (a defect of this module).
    Boot(BootMemoryShort),
    /// The pool was refused.
    Pool(PoolSetupError),
    /// The local maps were refused.
    Local(LocalSetupError),
    /// At the end, the pool could not be swept.
    Sweep(PoolError),
    /// At the end, slots were in use.
    InUse {
        /// How many.
        slots: usize,
    },
}

impl fmt::Display for HighError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HighError::NoHighMemory => f.write_str("the machine has no high memory: give it less low memory"),
            HighError::NoFile => f.write_str("real slots are pages of a file, and high memory is none"),
            HighError::Slots { slots, least, most } => write!(f, "{slots} slots: {least} to {most} will do"),
            HighError::Host(e) => write!(f, "the host gave no addresses for slots: {e}"),
            HighError::WrongMachine(e) => e.fmt(f),
            HighError::Boot(e) => e.fmt(f),
            HighError::Pool(e) => e.fmt(f),
            HighError::Local(e) => e.fmt(f),
            HighError::Sweep(e) => write!(f, "the pool could not be swept at the end: {e}"),
            HighError::InUse { slots } => write!(f, "{slots} slot(s) are in use at the end"),
        }
    }
}

impl std::error::Error for HighError {}

impl From<HostError> for HighError {
    fn from(e: HostError) -> Self {
        HighError::Host(e.to_string())
    }
}

impl From<BootMemoryShort> for HighError {
    fn from(e: BootMemoryShort) -> Self {
        HighError::Boot(e)
    }
}

impl From<PoolSetupError> for HighError {
    fn from(e: PoolSetupError) -> Self {
        HighError::Pool(e)
    }
}

impl From<LocalSetupError> for HighError {
    fn from(e: LocalSetupError) -> Self {
        HighError::Local(e)
    }
}
