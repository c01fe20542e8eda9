//! The result of a translation.
use crate::arch::Perms;
use std::fmt;

/// Where an access ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Physical address of the byte accessed.
    pub phys: u64,
    /// What the translation allows.
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPresent { level } => write!(f, "not present at level {level}"),
            Self::Permission => write!(f, "not permitted"),
            Self::NotAccessed { level } => write!(f, "access flag clear at level {level}"),
            Self::Malformed { level } => write!(f, "reserved bits set at level {level}"),
            Self::OutsideMemory { level } => write!(f, "table of level {level} outside memory"),
            Self::NotHashed => write!(f, "not in the hash table"),
            Self::NonCanonical => write!(f, "address not canonical"),
            Self::NoRoot => write!(f, "no root loaded"),
        }
    }
}

impl std::error::Error for Fault {}
