//! Tables of segments and vectors, which a CPU reads by itself.

use core::arch::asm;
use core::cell::UnsafeCell;

/// Memory that a CPU reads and writes by itself.
#[repr(C, align(128))]
pub struct OfCpu<T>(UnsafeCell<T>);

// SAFETY: 1. It is written through `get` alone, of which the callers answer.
unsafe impl<T> Sync for OfCpu<T> {}

impl<T> OfCpu<T> {
    /// Holds a value.
    pub const fn new(value: T) -> Self {
        OfCpu(UnsafeCell::new(value))
    }

    /// Returns where it is.
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// A task state segment: 104 bytes.
pub type TaskState = [u32; 26];

/// The segment of the kernel's code.
pub const KERNEL_CODE: u64 = 0x08;
/// The segment of the kernel's data.
pub const KERNEL_DATA: u64 = 0x10;

/// Returns the gate of an interrupt to a handler in the kernel: `stack` is the number of an
/// interrupt stack, and code of `ring` and below may raise it. On 32 bits the first word is all of
/// it.
pub fn gate(handler: u64, stack: u64, ring: u64) -> [u64; 2] {
    let flags = stack | 0x8e00 | ring << 13;
    let low = (handler & 0xffff) | KERNEL_CODE << 16 | flags << 32 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// Returns the descriptor of a task state segment, likewise.
pub fn task_descriptor(base: u64) -> [u64; 2] {
    [103 | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56, base >> 32]
}

/// Returns the operand of an instruction that loads a table.
fn operand<T>(table: *const T) -> [u16; 5] {
    let at = table.addr() as u64;
    [(size_of::<T>() - 1) as u16, at as u16, (at >> 16) as u16, (at >> 32) as u16, (at >> 48) as u16]
}

/// Loads the table of segments.
///
/// # Safety
///
/// 1. It has descriptors, among them those of the segments that are loaded, and stays for good.
pub unsafe fn load_segments<T>(table: *const T) {
    let operand = operand(table);
    // SAFETY: 1. Point 1 is passed on.
    unsafe { asm!("lgdt [{}]", in(reg) operand.as_ptr(), options(nostack, preserves_flags)) };
}

/// Loads the table of vectors and the segment of the task state.
///
/// # Safety
///
/// 1. The table has gates to handlers, and stays for good.
/// 2. The segment describes a task state that stays for good, and is not loaded yet.
pub unsafe fn load_vectors<T>(table: *const T, task: u16) {
    let operand = operand(table);
    // SAFETY: 1. and 2. are passed on.
    unsafe {
        asm!("lidt [{}]", in(reg) operand.as_ptr(), options(nostack, preserves_flags));
        asm!("ltr {0:x}", in(reg) task, options(nostack, preserves_flags));
    }
}
