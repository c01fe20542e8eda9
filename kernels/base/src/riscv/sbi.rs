//! Calls into the firmware (RISC-V Supervisor Binary Interface): starting harts, interrupting them,
//! fences on all of them, the timer.

use core::arch::asm;

const TIME: u64 = 0x5449_4d45;
const IPI: u64 = 0x0073_5049;
const HART_STATE: u64 = 0x0048_534d;
const REMOTE_FENCE: u64 = 0x5246_4e43;

/// An error code of the firmware's.
#[derive(Clone, Copy, Debug)]
pub struct SbiError(pub i64);

/// # Safety
///
/// 1. The caller must accept the effect of the SBI call.
unsafe fn call(extension: u64, function: u64, arguments: [u64; 3]) -> Result<u64, SbiError> {
    let [a0, a1, a2] = arguments;
    let (error, value): (i64, u64);
    // SAFETY: the firmware keeps all registers but a0 and a1; the caller answers for the call.
    unsafe {
        asm!("ecall", inlateout("a0") a0 => error, inlateout("a1") a1 => value, in("a2") a2,
            in("a6") function, in("a7") extension, options(nostack));
    }
    if error == 0 { Ok(value) } else { Err(SbiError(error)) }
}

/// Interrupts the harts in `mask` (bit n: hart n). Earlier stores of this hart are visible to them
/// when they take the interrupt.
pub fn interrupt(mask: u64) -> Result<(), SbiError> {
    // SAFETY: 1. an interrupt is taken by the kernel's own handlers. The fence orders stores to
    // memory before the store to the interrupt controller that the firmware makes.
    unsafe {
        asm!("fence rw, o", options(nostack, preserves_flags));
        call(IPI, 0, [mask, 0, 0]).map(|_| ())
    }
}

/// Has all running harts execute `FENCE.I`, so that they fetch the instructions that this hart has
/// stored. The firmware waits for them, whether they take interrupts of the kernel's or not.
pub fn fence_instructions() -> Result<(), SbiError> {
    // SAFETY: 1. a fence changes no memory. Stores of this hart are seen before the firmware's
    // interrupt is. A mask base of -1 stands for all harts.
    unsafe {
        asm!("fence rw, rw", options(nostack, preserves_flags));
        call(REMOTE_FENCE, 0, [0, u64::MAX, 0]).map(|_| ())
    }
}

/// Starts a hart at the physical address `start` with `argument` in a1.
///
/// # Safety
///
/// 1. The code at `start` may be run by that hart.
pub unsafe fn start_hart(hart: u64, start: u64, argument: u64) -> Result<(), SbiError> {
    // SAFETY: point 1 is passed on.
    unsafe { call(HART_STATE, 0, [hart, start, argument]).map(|_| ()) }
}

/// Sets the time of this hart's next timer interrupt.
pub fn set_timer(time: u64) {
    // SAFETY: 1. as for `interrupt`. A firmware without a timer leaves tasks to give way by
    // themselves.
    let _ = unsafe { call(TIME, 0, [time, 0, 0]) };
}

/// Ticks of [`time`] in a millisecond, on this machine.
pub const fn ticks_per_ms() -> u64 {
    10_000
}

/// The time, in ticks.
pub fn time() -> u64 {
    let now;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("rdtime {}", out(reg) now, options(nomem, nostack, preserves_flags)) };
    now
}
