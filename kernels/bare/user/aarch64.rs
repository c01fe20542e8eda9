//! Calls of the kernel, and instructions.

use core::arch::asm;

/// Addresses of the kernel's half.
pub const KERNEL: [u64; 1] = [0xffff_0000_4020_0000];

/// Makes a call of the kernel.
pub fn call(number: u64, a0: u64, a1: u64, a2: u64) -> u64 {
    let result;
    // SAFETY: the kernel keeps all registers but x0; memory may change.
    unsafe {
        asm!("svc #0", inlateout("x0") a0 => result, in("x1") a1, in("x2") a2, in("x8") number, options(nostack));
    }
    result
}

/// Executes the memory at an address as instructions.
pub fn jump(at: u64) {
    // SAFETY: the test expects the kernel to end the task before the first instruction.
    unsafe { asm!("blr {}", in(reg) at, clobber_abi("C")) };
}

/// Orders the memory accesses of the tasks of one space.
pub fn fence() {
    // SAFETY: a barrier changes no memory.
    unsafe { asm!("dmb ish", options(nostack)) };
}
