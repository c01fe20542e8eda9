//! The kernel's half: the entries that every root has, and ranges whose owners map pages in them.
mod claims;
mod fill;
mod range;
mod roots;
mod slots;

pub use claims::{ClaimError, MAX_RANGES};
pub use range::{KernelRange, KernelRangeError};
pub use roots::{KernelMap, KernelMapError, MemoryTooHigh, check_memory};
pub use slots::{KernelSlots, SlotsError};
