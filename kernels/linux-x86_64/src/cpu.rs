//! Prepares each CPU for user mode: segments, vectors, the entry of system calls.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use ptarmigan_kernel::arch::CPUS;

global_asm!(include_str!("trap.s"));

/// Data at `gs` while the kernel runs. The assembly knows the layout.
#[repr(C)]
pub struct Local {
    kernel_stack: u64,
    context_end: u64,
    user_stack: u64,
    cpu: u64,
    tss: u64,
}

/// Memory that the processor reads and writes by itself.
#[repr(C, align(128))]
struct PerCpu<T>(UnsafeCell<T>);

// SAFETY: 1. Each is written by its own CPU, in `init`; afterwards by the assembly and the
// processor of that CPU alone.
unsafe impl<T> Sync for PerCpu<T> {}

const STACK: usize = 0x2000;
/// Task state segments: 104 bytes each.
static TSS: [PerCpu<[u32; 26]>; CPUS] = [const { PerCpu(UnsafeCell::new([0; 26])) }; CPUS];
static GDT: [PerCpu<[u64; 8]>; CPUS] = [const { PerCpu(UnsafeCell::new([0; 8])) }; CPUS];
static LOCAL: [PerCpu<Local>; CPUS] = [const {
    PerCpu(UnsafeCell::new(Local { kernel_stack: 0, context_end: 0, user_stack: 0, cpu: 0, tss: 0 }))
}; CPUS];
/// Stacks for events that must not happen: double faults, machine checks, interrupts that are not
/// masked.
static STACKS: [PerCpu<[u8; STACK]>; CPUS] = [const { PerCpu(UnsafeCell::new([0; STACK])) }; CPUS];
static IDT: PerCpu<[[u64; 2]; 256]> = PerCpu(UnsafeCell::new([[0; 2]; 256]));

/// The data segment of programs.
pub const USER_DATA: u64 = 0x23;
/// The code segment of programs.
pub const USER_CODE: u64 = 0x2b;
const KERNEL_CODE: u64 = 0x08;
const KERNEL_DATA: u64 = 0x10;
const TASK: u64 = 0x30;

const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SFMASK: u32 = 0xc000_0084;
/// The base of `fs`: the program's thread.
pub const FS_BASE: u32 = 0xc000_0100;
const GS_BASE: u32 = 0xc000_0101;
/// The base of `gs` that is not in use: the program's, while the kernel runs.
pub const OTHER_GS_BASE: u32 = 0xc000_0102;
/// Flags that the entry of system calls clears: interrupts, direction, trap, alignment checks,
/// nested task.
const MASKED_FLAGS: u64 = 0x4_4700;

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

/// Returns the number of this CPU.
#[inline]
pub fn number() -> usize {
    let number: usize;
    // SAFETY: 1. `init` has made `gs` lead to this CPU's `Local`.
    unsafe { asm!("mov {}, gs:[24]", out(reg) number, options(nostack, preserves_flags, readonly, pure)) };
    number
}

fn gate(handler: u64, stack: u64, ring: u64) -> [u64; 2] {
    [
        (handler & 0xffff)
            | KERNEL_CODE << 16
            | stack << 32
            | (0x8e00 | ring << 13) << 32
            | (handler >> 16 & 0xffff) << 48,
        handler >> 32,
    ]
}

/// Sets this CPU up.
///
/// # Safety
///
/// 1. `cpu` is the number of the calling CPU, below [`CPUS`], and it calls this once.
pub unsafe fn init(cpu: usize) {
    unsafe extern "C" {
        static trap_stubs: u8;
        static call_entry: u8;
    }
    let stubs = (&raw const trap_stubs).addr() as u64;
    let (tss, gdt, idt) = (TSS[cpu].0.get(), GDT[cpu].0.get(), IDT.0.get());
    let local = LOCAL[cpu].0.get();
    let base = tss.addr() as u64;
    let stack = STACKS[cpu].0.get().addr() as u64 + STACK as u64;
    // SAFETY: 1. The statics of this CPU are its own, and it does not use them yet (point 1); CPU 0
    // writes the vectors before others run.
    unsafe {
        // Interrupt stack 1 is at byte 36. No ports are allowed.
        ((*tss)[9], (*tss)[10], (*tss)[25]) = (stack as u32, (stack >> 32) as u32, 104 << 16);
        *gdt = [
            0,
            0x00af_9a00_0000_ffff,
            0x00cf_9200_0000_ffff,
            0,
            0x00cf_f200_0000_ffff,
            0x00af_fa00_0000_ffff,
            103 | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56,
            base >> 32,
        ];
        if cpu == 0 {
            for vector in 0..256 {
                let on_own_stack = matches!(vector, 2 | 8 | 18);
                // Breakpoints and overflows may be raised by programs.
                let ring = if matches!(vector, 3 | 4) { 3 } else { 0 };
                (*idt)[vector] = gate(stubs + vector as u64 * 16, u64::from(on_own_stack), ring);
            }
        }
        *local = Local { kernel_stack: 0, context_end: 0, user_stack: 0, cpu: cpu as u64, tss: base };
    }
    let words = |at: u64, len: usize| {
        let limit = (len - 1) as u16;
        [limit, at as u16, (at >> 16) as u16, (at >> 32) as u16, (at >> 48) as u16]
    };
    let gdt_words = words(gdt.addr() as u64, 64);
    let idt_words = words(idt.addr() as u64, 4096);
    // SAFETY: 1. The tables have just been filled in and are statics; the kernel's code and data
    // segments keep their selectors. 2. The registers take these values: entries of system calls in
    // the kernel's code, `gs` for this CPU.
    unsafe {
        asm!("lgdt [{}]", in(reg) gdt_words.as_ptr(), options(nostack, preserves_flags));
        asm!("lidt [{}]", in(reg) idt_words.as_ptr(), options(nostack, preserves_flags));
        asm!("ltr {0:x}", in(reg) TASK as u16, options(nostack, preserves_flags));
        write_msr(STAR, (KERNEL_DATA | 3) << 48 | KERNEL_CODE << 32);
        write_msr(LSTAR, (&raw const call_entry).addr() as u64);
        write_msr(SFMASK, MASKED_FLAGS);
        write_msr(GS_BASE, local.addr() as u64);
        write_msr(OTHER_GS_BASE, 0);
    }
}
