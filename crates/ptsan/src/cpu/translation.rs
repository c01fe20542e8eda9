//! The result of a translation.
use crate::arch::{Perms, level_name};
use std::fmt;

/// Where an access ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Physical address of the byte accessed.
    pub phys: u64,
    /// The rights of the translation.
    pub perms: Perms,
    /// The level whose entry maps the page; 0 is the smallest page size.
    pub level: u8,
    /// Whether it holds in every address space.
    pub global: bool,
    /// The memory type, as the format numbers it.
    pub memory_type: u8,
    /// Whether a walk may use it: see [`crate::Entry::Leaf`].
    pub accessed: bool,
    /// Whether the TLB answered.
    pub from_tlb: bool,
}

/// Why an access cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The entry at this level is empty.
    NotPresent {
        /// Level of the entry.
        level: u8,
    },
    /// The page is mapped, but not for this access.
    Permission,
    /// The page is mapped, and its access flag is clear: the walk faults.
    NotAccessed {
        /// Level of the entry.
        level: u8,
    },
    /// Reserved bits are set in an entry of this level.
    Malformed {
        /// Level of the entry.
        level: u8,
    },
    /// The table of this level lies outside memory.
    OutsideMemory {
        /// Level of the table.
        level: u8,
    },
    /// The page is not in the hash table: the handler of the miss puts it in.
    NotHashed,
    /// The address is not canonical.
    NonCanonical,
    /// The CPU does not exist or has no root loaded.
    NoRoot,
}

impl Fault {
    /// Describes the fault, with these names of levels.
    pub(crate) fn text(self, names: &[&str]) -> String {
        match self {
            Self::NotPresent { level } => format!("not present at {}", level_name(names, level)),
            Self::Permission => "not permitted".to_owned(),
            Self::NotAccessed { level } => format!("access flag clear at {}", level_name(names, level)),
            Self::Malformed { level } => format!("reserved bits set at {}", level_name(names, level)),
            Self::OutsideMemory { level } => {
                format!("table of {} outside memory", level_name(names, level))
            }
            Self::NotHashed => "not in the hash table".to_owned(),
            Self::NonCanonical => "address not canonical".to_owned(),
            Self::NoRoot => "no root loaded".to_owned(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&[]))
    }
}

impl std::error::Error for Fault {}
