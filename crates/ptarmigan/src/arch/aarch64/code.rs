//! Has instruction fetches find what was stored.
use super::instructions::{Barrier, Instructions};
use crate::cpu::Pinned;

/// `CTR_EL0`: caches need not be cleaned for fetches, or not be invalidated.
const IDC: u64 = 1 << 28;
const DIC: u64 = 1 << 29;

/// Cleans the lines of the data cache that hold `bytes` bytes at `at`.
///
/// # Safety
///
/// 1. The bytes can be read.
pub(super) unsafe fn clean<I: Instructions>(cpu: &I, pin: &Pinned<'_>, at: *const u8, bytes: usize) {
    let ctr = cpu.ctr(pin);
    if ctr & IDC != 0 || bytes == 0 {
        return;
    }
    // DminLine: the smallest line, as a logarithm of words.
    let line = 4usize << (ctr >> 16 & 0xf);
    let before = at.addr() & (line - 1);
    for offset in (0..bytes + before).step_by(line) {
        let at = at.wrapping_add(offset.saturating_sub(before));
        // SAFETY: 1. of the caller's: the address is one of the bytes.
        unsafe { cpu.dc_cvau(pin, at) };
    }
}

/// Has all CPUs fetch instructions anew.
pub(super) fn invalidate<I: Instructions>(cpu: &I, pin: &Pinned<'_>) {
    cpu.barrier(pin, Barrier::DsbIsh);
    if cpu.ctr(pin) & DIC == 0 {
        cpu.ic_ialluis(pin);
        cpu.barrier(pin, Barrier::DsbIsh);
    }
    cpu.barrier(pin, Barrier::Isb);
}
