//! Calls into the firmware (Arm Power State Coordination Interface): starting CPUs.

use core::arch::asm;

const CPU_ON: u64 = 0xc400_0003;

/// An error code of the firmware's.
#[derive(Clone, Copy, Debug)]
pub struct PsciError(pub i64);

/// Starts a CPU at the physical address `start` with `argument` in x0. Earlier stores of this CPU
/// are visible to it.
///
/// # Errors
///
/// [`PsciError`]
///
/// # Safety
///
/// 1. The code at `start` may be run by that CPU.
pub unsafe fn start_cpu(cpu: u64, start: u64, argument: u64) -> Result<(), PsciError> {
    let error: i64;
    // SAFETY: the firmware keeps what a call keeps; point 1 of the caller's.
    unsafe {
        asm!("dsb ish", "hvc #0", inout("x0") CPU_ON => error, in("x1") cpu, in("x2") start, in("x3") argument,
            clobber_abi("C"));
    }
    if error == 0 { Ok(()) } else { Err(PsciError(error)) }
}
