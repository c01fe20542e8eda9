//! Masks interrupts, reads and clears pending ones, and returns the number of this hart.

use core::arch::asm;

use super::sbi;

const SIE: u64 = 1 << 1;
/// Software interrupts, in `sie` and `sip`.
pub const SOFTWARE: u64 = 1 << 1;
/// Timer interrupts, in `sie` and `sip`.
pub const TIMER: u64 = 1 << 5;

/// Interrupts are masked while it exists, and afterwards as they were before.
pub struct Masked {
    were_enabled: bool,
}

impl Masked {
    /// Masks them.
    pub fn new() -> Self {
        let before: u64;
        // SAFETY: masking interrupts is always allowed to the kernel.
        unsafe { asm!("csrrci {}, sstatus, 2", out(reg) before, options(nostack)) };
        Masked { were_enabled: before & SIE != 0 }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        if self.were_enabled {
            // SAFETY: they were enabled when this began.
            unsafe { asm!("csrsi sstatus, 2", options(nostack)) };
        }
    }
}

/// Runs `f`, which works for a task, with interrupts enabled. The library leaves a request that
/// comes in the middle of a flush or a switch to the code that it interrupts.
pub fn enabled<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the kernel's handler only serves requests and puts the timer off.
    unsafe { asm!("csrsi sstatus, 2", options(nostack)) };
    let result = f();
    // SAFETY: masking interrupts is always allowed to the kernel.
    unsafe { asm!("csrci sstatus, 2", options(nostack)) };
    result
}

/// Which interrupts this hart takes from here on.
pub fn allow(which: u64) {
    // SAFETY: the kernel has handlers for those that it allows.
    unsafe { asm!("csrw sie, {}", in(reg) which, options(nostack)) };
}

/// Holds the timer's interrupt back, pending, until [`allow`] lets it in again.
pub fn hold_timer() {
    // SAFETY: masking interrupts is always allowed to the kernel.
    unsafe { asm!("csrc sie, {}", in(reg) TIMER, options(nostack)) };
}

/// Clears a pending software interrupt; returns whether there was one. Earlier stores of its sender
/// are visible.
pub fn take_software() -> bool {
    let pending: u64;
    // SAFETY: the one that clears it looks for mail afterwards.
    unsafe { asm!("csrrci {}, sip, 2", out(reg) pending, options(nostack)) };
    pending & SOFTWARE != 0
}

/// Returns whether the timer's interrupt is pending.
pub fn is_due() -> bool {
    let pending: u64;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("csrr {}, sip", out(reg) pending, options(nomem, nostack)) };
    pending & TIMER != 0
}

/// Sleeps until an interrupt is pending, whether it is masked or not; not the timer's.
pub fn sleep() {
    sbi::set_timer(u64::MAX);
    // SAFETY: waiting has no effect on memory.
    unsafe { asm!("wfi", options(nostack)) };
}

/// The number of this CPU: `tp` holds it in the kernel, from the first instruction.
pub fn cpu() -> usize {
    let cpu;
    // SAFETY: reading a register has no effect.
    unsafe { asm!("mv {}, tp", out(reg) cpu, options(nomem, nostack, preserves_flags)) };
    cpu
}
