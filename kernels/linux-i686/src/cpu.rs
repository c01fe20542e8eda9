//! Prepares each CPU for user mode: segments and vectors.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use ptarmigan_kernel::arch::CPUS;

global_asm!(include_str!("trap.s"));

/// Data at `fs` while the kernel runs. The assembly knows the layout.
#[repr(C)]
pub struct Local {
    kernel_stack: u32,
    cpu: u32,
    tss: u32,
}

/// Memory that the processor reads and writes by itself.
#[repr(C, align(128))]
struct PerCpu<T>(UnsafeCell<T>);

// SAFETY: 1. Each is written by its own CPU; the processor and the assembly of that CPU use it
// besides.
unsafe impl<T> Sync for PerCpu<T> {}

/// Task state segments: 104 bytes each.
static TSS: [PerCpu<[u32; 26]>; CPUS] = [const { PerCpu(UnsafeCell::new([0; 26])) }; CPUS];
static GDT: [PerCpu<[u64; 8]>; CPUS] = [const { PerCpu(UnsafeCell::new([0; 8])) }; CPUS];
static LOCAL: [PerCpu<Local>; CPUS] =
    [const { PerCpu(UnsafeCell::new(Local { kernel_stack: 0, cpu: 0, tss: 0 })) }; CPUS];
static IDT: PerCpu<[u64; 256]> = PerCpu(UnsafeCell::new([0; 256]));

/// The code segment of programs.
pub const USER_CODE: u32 = 0x1b;
/// The data segment of programs.
pub const USER_DATA: u32 = 0x23;
/// The segment of a program's thread: entry 6, as Linux has it.
pub const USER_THREAD: u32 = 0x33;
const KERNEL_CODE: u64 = 0x08;
const KERNEL_DATA: u32 = 0x10;
const LOCAL_DATA: u32 = 0x28;
const TASK: u16 = 0x38;
/// The vector of system calls.
pub const CALL: u32 = 0x80;

/// Returns the number of this CPU.
#[inline]
pub fn number() -> usize {
    let number: usize;
    // SAFETY: 1. `init` has made `fs` lead to this CPU's `Local`.
    unsafe { asm!("mov {}, fs:[4]", out(reg) number, options(nostack, preserves_flags, readonly, pure)) };
    number
}

/// Returns a descriptor of a segment with a base, 4 GiB long.
const fn segment(base: u32, access: u64) -> u64 {
    let base = base as u64;
    0x00cf_0000_0000_ffff | access << 40 | (base & 0xff_ffff) << 16 | (base >> 24) << 56
}

/// Sets the base of the segment of the program's thread on this CPU.
pub fn set_thread(base: u32) {
    let entry = segment(base, 0xf2);
    // SAFETY: 1. The CPU's own table; no segment register of the kernel's holds this entry.
    unsafe { (*GDT[number() % CPUS].0.get())[6] = entry };
}

/// Sets this CPU up.
///
/// # Safety
///
/// 1. `cpu` is the number of the calling CPU, below [`CPUS`], and it calls this once.
pub unsafe fn init(cpu: usize) {
    unsafe extern "C" {
        static trap_stubs: u8;
    }
    let stubs = (&raw const trap_stubs).addr() as u64;
    let (tss, gdt, idt) = (TSS[cpu].0.get(), GDT[cpu].0.get(), IDT.0.get());
    let local = LOCAL[cpu].0.get();
    let base = tss.addr() as u32;
    // SAFETY: 1. The statics of this CPU are its own, and it does not use them yet (point 1); CPU 0
    // writes the vectors before others run.
    unsafe {
        // The kernel's stack segment; no ports are allowed.
        ((*tss)[2], (*tss)[25]) = (KERNEL_DATA, 104 << 16);
        *gdt = [
            0,
            segment(0, 0x9a),
            segment(0, 0x92),
            segment(0, 0xfa),
            segment(0, 0xf2),
            segment(local.addr() as u32, 0x92),
            segment(0, 0xf2),
            103 | (u64::from(base) & 0xff_ffff) << 16 | 0x89 << 40 | (u64::from(base) >> 24) << 56,
        ];
        if cpu == 0 {
            for vector in 0..256u64 {
                let stub = stubs + vector * 16;
                // Breakpoints, overflows and system calls may be raised by programs.
                let ring = if matches!(vector, 3 | 4 | 0x80) { 3 } else { 0 };
                (*idt)[vector as usize] =
                    (stub & 0xffff) | KERNEL_CODE << 16 | (0x8e00 | ring << 13) << 32 | (stub >> 16) << 48;
            }
        }
        *local = Local { kernel_stack: 0, cpu: cpu as u32, tss: base };
    }
    let words = |at: u32, len: usize| [(len - 1) as u16, at as u16, (at >> 16) as u16];
    let gdt_words = words(gdt.addr() as u32, 64);
    let idt_words = words(idt.addr() as u32, 2048);
    // SAFETY: 1. The tables have just been filled in and are statics; the kernel's code and data
    // segments keep their selectors.
    unsafe {
        asm!("lgdt [{}]", in(reg) gdt_words.as_ptr(), options(nostack, preserves_flags));
        asm!("lidt [{}]", in(reg) idt_words.as_ptr(), options(nostack, preserves_flags));
        asm!("ltr {0:x}", in(reg) TASK, options(nostack, preserves_flags));
        asm!("mov fs, {0:x}", in(reg) LOCAL_DATA, options(nostack, preserves_flags));
        asm!("mov gs, {0:x}", in(reg) 0u32, options(nostack, preserves_flags));
    }
}
