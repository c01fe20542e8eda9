//! Names the formats that RISC-V harts walk.
use crate::format::{Format, Sv};

/// A format that the MMUs of 64-bit RISC-V harts walk below `satp`.
///
/// # Safety
///
/// 1. Harts whose `satp.MODE` is [`MODE`](Self::MODE), and that have the extensions of the format's
///    documentation enabled, walk trees of it.
pub unsafe trait Tables: Format {
    /// The mode in `satp`.
    const MODE: u8;
}

// SAFETY: 1. Sv39 is mode 8, Sv48 is 9, Sv57 is 10. There are no other numbers of levels.
unsafe impl<const LEVELS: u8, const PBMT: bool, const NAPOT: bool> Tables for Sv<LEVELS, PBMT, NAPOT> {
    const MODE: u8 = 5 + LEVELS;
}
