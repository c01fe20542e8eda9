//! Records the events of a table frame.
use crate::arch::level_name;
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
    /// The event.
    pub what: Happened,
}

impl Happened {
    /// Describes the event, with these names of levels.
    pub(super) fn text(self, names: &[&str]) -> String {
        match self {
            Self::Allocated => "allocated".to_owned(),
            Self::Freed => "freed".to_owned(),
            Self::Linked { entry } => format!("linked by the entry at {entry:#x}"),
            Self::Unhooked { entry } => format!("unhooked by a store to the entry at {entry:#x}"),
            Self::Walked { cpu, level, va } => {
                format!("walked by CPU {cpu} at {} for {va:#x}", level_name(names, level))
            }
            Self::RootLoaded { cpu } => format!("loaded as root by CPU {cpu}"),
        }
    }
}

impl fmt::Display for HistoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.what.text(&[]))
    }
}
