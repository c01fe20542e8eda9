//! What happened to a table frame.
use std::fmt;

/// Something that happened to a table frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Announced as a table.
    Allocated,
    /// Given back.
    Freed,
    /// An entry at this physical address was found to point at it.
    Linked {
        /// Physical address of the entry.
        entry: u64,
    },
    /// The store to the entry at this physical address took it out of the tree.
    Unhooked {
        /// Physical address of the entry.
        entry: u64,
    },
    /// A CPU's walk went through it, and the CPU may hold it since.
    Walked {
        /// The CPU.
        cpu: usize,
        /// The level of the table in that walk.
        level: u8,
        /// The virtual address translated.
        va: u64,
    },
    /// A CPU loaded it as the root.
    RootLoaded {
        /// The CPU.
        cpu: usize,
    },
}

/// One remembered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEvent {
    /// Number of the hook call, counted from 1.
    pub event: u64,
    /// What happened.
    pub what: Happened,
}

impl fmt::Display for HistoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: ", self.event)?;
        match self.what {
            Happened::Allocated => write!(f, "allocated"),
            Happened::Freed => write!(f, "freed"),
            Happened::Linked { entry } => write!(f, "linked by the entry at {entry:#x}"),
            Happened::Unhooked { entry } => write!(f, "unhooked by a store to the entry at {entry:#x}"),
            Happened::Walked { cpu, level, va } => {
                write!(f, "walked by CPU {cpu} at level {level} for {va:#x}")
            }
            Happened::RootLoaded { cpu } => write!(f, "loaded as root by CPU {cpu}"),
        }
    }
}
