//! Describes page-table formats as the hardware that walks them sees them.
//!
//! An [`Arch`] is a table of data and one function, [`Arch::decode`]; the software MMU needs only
//! these. Levels are numbered from the leaves: level 0 holds the smallest pages, the last level is
//! the root.
mod aarch64;
mod format;
mod hashed;
mod names;
mod nested;
mod perms;
mod ppc32;
mod refilled;
mod riscv;
mod x86;
mod x86_32;

pub use aarch64::Granule;
pub use format::{
    Arch, ByGuestAddress, Canonical, Contiguous, Entry, HardwareBits, Level, MAX_LEVELS, MemoryType,
    SecondStage, StoreOrdering, StructureScope,
};
pub(crate) use hashed::{HashEntry, SEGMENTS, Tag, segment_of};
pub use hashed::{HashLayout, HashTable};
pub(crate) use names::level_name;
pub use perms::{Access, AccessKind, Perms};
