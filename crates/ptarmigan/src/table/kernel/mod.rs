//! The kernel's half: the entries that every root has, and ranges whose owners map pages in them.
mod claims;
mod error;
mod fault;
mod fill;
mod groups;
mod large;
mod owner;
mod parts;
mod range;
mod roots;
mod slots;
mod stale;

pub use claims::{ClaimError, MAX_RANGES};
pub use error::KernelRangeError;
pub use range::KernelRange;
pub use roots::{KernelMap, KernelMapError, MemoryTooHigh, check_memory};
pub use slots::{KernelSlots, SlotsError};
