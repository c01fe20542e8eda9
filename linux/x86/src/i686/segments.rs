//! Segments and vectors of a CPU.

use core::arch::asm;

use ptarmigan_kernel_x86::segments::{KERNEL_DATA, TaskState, gate, task_descriptor};

use super::registers::{CALL, USER_CODE, USER_DATA, USER_THREAD};

/// A gate.
pub type Gate = u64;
/// A vector that is not set.
pub const NO_GATE: Gate = 0;
/// The segment of the task state.
pub const TASK: u16 = 0x38;
const LOCAL_DATA: u32 = 0x28;
const _: () = assert!(USER_CODE == 0x1b && USER_DATA == 0x23 && USER_THREAD == 0x33);

/// Returns a descriptor of a segment with a base, 4 GiB long.
fn segment(base: usize, access: u64) -> u64 {
    let base = base as u64;
    0x00cf_0000_0000_ffff | access << 40 | (base & 0xff_ffff) << 16 | (base >> 24) << 56
}

/// Returns the descriptor of the segment of a program's thread.
pub fn thread(base: usize) -> u64 {
    segment(base, 0xf2)
}

/// Returns the task state of a CPU: the kernel's stack segment; no ports are allowed.
pub fn task_state(_: usize) -> TaskState {
    let mut tss = [0; 26];
    (tss[2], tss[25]) = (KERNEL_DATA as u32, 104 << 16);
    tss
}

/// Returns the segments of a CPU whose task state is at `tss`, and its data at `local`.
pub fn descriptors(tss: usize, local: usize) -> [u64; 8] {
    [
        0,
        segment(0, 0x9a),
        segment(0, 0x92),
        segment(0, 0xfa),
        segment(0, 0xf2),
        segment(local, 0x92),
        thread(0),
        task_descriptor(tss as u64)[0],
    ]
}

/// Returns the gate of a vector to its stub.
pub fn vector(stub: usize, vector: usize) -> Gate {
    // Breakpoints, overflows and system calls may be raised by programs.
    gate(stub as u64, 0, if matches!(vector, 3 | 4 | CALL) { 3 } else { 0 })[0]
}

/// Has `fs` lead to the CPU's data while the kernel runs.
///
/// # Safety
///
/// 1. The segments of [`descriptors`] are loaded.
pub unsafe fn load(_: usize) {
    // SAFETY: 1. These are segments of data, or none (point 1).
    unsafe {
        asm!("mov fs, {0:x}", in(reg) LOCAL_DATA, options(nostack, preserves_flags));
        asm!("mov gs, {0:x}", in(reg) 0u32, options(nostack, preserves_flags));
    }
}
