//! Segments and vectors of a CPU, and the registers that lead to its data and to the entry of
//! system calls.

use core::arch::asm;

use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel_x86::segments::{KERNEL_CODE, KERNEL_DATA, OfCpu, TaskState, gate, task_descriptor};

use super::registers::{USER_CODE, USER_DATA};

/// A gate: two words.
pub type Gate = [u64; 2];
/// A vector that is not set.
pub const NO_GATE: Gate = [0; 2];
/// The segment of the task state.
pub const TASK: u16 = 0x30;
const _: () = assert!(USER_DATA == 0x23 && USER_CODE == 0x2b);

const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SFMASK: u32 = 0xc000_0084;
/// The base of `fs`: the program's thread.
pub const FS_BASE: u32 = 0xc000_0100;
const GS_BASE: u32 = 0xc000_0101;
/// The base of `gs` that is not in use: the program's, while the kernel runs.
const OTHER_GS_BASE: u32 = 0xc000_0102;
/// Flags that the entry of system calls clears: interrupts, direction, trap, alignment checks,
/// nested task.
const MASKED_FLAGS: u64 = 0x4_4700;

const STACK: usize = 0x2000;
/// Stacks for events that must not happen: double faults, machine checks, interrupts that are not
/// masked.
static STACKS: [OfCpu<[u8; STACK]>; CPUS] = [const { OfCpu::new([0; STACK]) }; CPUS];

/// Writes a model-specific register.
///
/// # Safety
///
/// 1. The register must take the value, and the caller must accept its effect.
#[inline]
pub unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: 1. Point 1 is passed on.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Returns the task state of a CPU.
pub fn task_state(cpu: usize) -> TaskState {
    let stack = STACKS[cpu].get().addr() + STACK;
    let mut tss = [0; 26];
    // Interrupt stack 1 is at byte 36. No ports are allowed.
    (tss[9], tss[10], tss[25]) = (stack as u32, (stack >> 32) as u32, 104 << 16);
    tss
}

/// Returns the segments of a CPU whose task state is at `tss`.
pub fn descriptors(tss: usize, _: usize) -> [u64; 8] {
    let [low, high] = task_descriptor(tss as u64);
    [
        0,
        0x00af_9a00_0000_ffff,
        0x00cf_9200_0000_ffff,
        0,
        0x00cf_f200_0000_ffff,
        0x00af_fa00_0000_ffff,
        low,
        high,
    ]
}

/// Returns the gate of a vector to its stub.
pub fn vector(stub: usize, vector: usize) -> Gate {
    let on_own_stack = matches!(vector, 2 | 8 | 18);
    // Breakpoints and overflows may be raised by programs.
    gate(stub as u64, on_own_stack.into(), if matches!(vector, 3 | 4) { 3 } else { 0 })
}

/// Has `gs` lead to the CPU's data while the kernel runs, and system calls to their entry.
///
/// # Safety
///
/// 1. The segments of [`descriptors`] are loaded.
/// 2. `local` is where the calling CPU's data are.
pub unsafe fn load(local: usize) {
    unsafe extern "C" {
        static call_entry: u8;
    }
    // SAFETY: 1. The registers take these values: entries of system calls in the kernel's code
    // (point 1), `gs` for this CPU (point 2).
    unsafe {
        write_msr(STAR, (KERNEL_DATA | 3) << 48 | KERNEL_CODE << 32);
        write_msr(LSTAR, (&raw const call_entry).addr() as u64);
        write_msr(SFMASK, MASKED_FLAGS);
        write_msr(GS_BASE, local as u64);
        write_msr(OTHER_GS_BASE, 0);
    }
}
