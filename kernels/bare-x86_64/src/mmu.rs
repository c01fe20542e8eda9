//! Bits of entries.

/// Entry bit: present.
pub const PRESENT: u64 = 1;
/// Entry bit: writable.
pub const WRITABLE: u64 = 1 << 1;
/// Entry bit, set by the MMU: used.
pub const ACCESSED: u64 = 1 << 5;
/// Entry bit, set by the MMU: written through.
pub const DIRTY: u64 = 1 << 6;
/// Entry bit: not executable.
pub const NO_EXECUTE: u64 = 1 << 63;
