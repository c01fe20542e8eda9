//! The virtual timer of each CPU (Arm ARM, "The Generic Timer in AArch64 state").

use core::arch::asm;

const ENABLED: u64 = 1;
/// Its interrupt is held back.
const HELD: u64 = 1 << 1;
/// The time has come.
const DUE: u64 = 1 << 2;

fn control() -> u64 {
    let control;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mrs {}, cntv_ctl_el0", out(reg) control, options(nomem, nostack, preserves_flags)) };
    control
}

fn set_control(to: u64) {
    // SAFETY: the kernel takes the timer's interrupt.
    unsafe { asm!("msr cntv_ctl_el0, {}", "isb", in(reg) to, options(nostack, preserves_flags)) };
}

/// The time, in ticks.
pub fn time() -> u64 {
    let now;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) now, options(nostack, preserves_flags)) };
    now
}

/// Ticks of [`time`] in a millisecond.
pub fn ticks_per_ms() -> u64 {
    let hertz: u64;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack, preserves_flags)) };
    (hertz / 1000).max(1)
}

/// Sets the time of this CPU's next timer interrupt.
pub fn set_timer(time: u64) {
    // SAFETY: the kernel takes the timer's interrupt.
    unsafe { asm!("msr cntv_cval_el0, {}", in(reg) time, options(nostack, preserves_flags)) };
    set_control(ENABLED);
}

/// Returns whether the timer's interrupt is pending.
pub fn is_due() -> bool {
    control() & (ENABLED | HELD | DUE) == ENABLED | DUE
}

/// Holds the timer's interrupt back until [`allow`] lets it in again.
pub fn hold() {
    set_control(ENABLED | HELD);
}

/// Lets the timer's interrupt in, if one is set.
pub fn allow() {
    set_control(control() & ENABLED);
}

/// Takes the timer's interrupt back.
pub fn stop() {
    set_control(0);
}
