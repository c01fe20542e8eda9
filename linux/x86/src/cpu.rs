//! Prepares each CPU for user mode: segments, vectors, the entry of system calls.

use core::arch::asm;

use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel_x86::segments::{OfCpu, TaskState, load_segments, load_vectors};

use crate::arch::segments::{self, Gate, TASK};

/// Data at the segment that leads to them while the kernel runs. The assembly knows the layout.
#[repr(C)]
struct Local {
    kernel_stack: usize,
    context_end: usize,
    user_stack: usize,
    cpu: usize,
    tss: usize,
}

// Each is written by its own CPU, in `init`; afterwards by the assembly and the processor of that
// CPU alone.
static TSS: [OfCpu<TaskState>; CPUS] = [const { OfCpu::new([0; 26]) }; CPUS];
static GDT: [OfCpu<[u64; 8]>; CPUS] = [const { OfCpu::new([0; 8]) }; CPUS];
static LOCAL: [OfCpu<Local>; CPUS] =
    [const { OfCpu::new(Local { kernel_stack: 0, context_end: 0, user_stack: 0, cpu: 0, tss: 0 }) }; CPUS];
static IDT: OfCpu<[Gate; 256]> = OfCpu::new([segments::NO_GATE; 256]);

/// Returns the number of this CPU.
#[inline]
pub fn number() -> usize {
    let number: usize;
    // SAFETY: 1. `init` has made the segment lead to this CPU's `Local`.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, gs:[24]", out(reg) number, options(nostack, preserves_flags, readonly, pure));
        #[cfg(target_arch = "x86")]
        asm!("mov {}, fs:[12]", out(reg) number, options(nostack, preserves_flags, readonly, pure));
    }
    number
}

/// Sets the descriptor of a segment of this CPU.
///
/// # Safety
///
/// 1. No segment register of the kernel's holds it, and programs may use what it describes.
#[cfg(target_arch = "x86")]
pub unsafe fn set_segment(selector: usize, descriptor: u64) {
    // SAFETY: 1. The CPU's own table, of which the kernel uses other entries (point 1).
    unsafe { (*GDT[number() % CPUS].get())[selector >> 3] = descriptor };
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
    let stubs = (&raw const trap_stubs).addr();
    let (tss, gdt, idt, local) = (TSS[cpu].get(), GDT[cpu].get(), IDT.get(), LOCAL[cpu].get());
    // SAFETY: 1. The statics of this CPU are its own, and it does not use them yet (point 1); CPU 0
    // writes the vectors before others run.
    unsafe {
        *tss = segments::task_state(cpu);
        *gdt = segments::descriptors(tss.addr(), local.addr());
        if cpu == 0 {
            for vector in 0..256 {
                (*idt)[vector] = segments::vector(stubs + vector * 16, vector);
            }
        }
        *local = Local { kernel_stack: 0, context_end: 0, user_stack: 0, cpu, tss: tss.addr() };
    }
    // SAFETY: 1. and 2. The tables have just been filled in and are statics; the kernel's code and
    // data segments keep their selectors. 3. `local` is this CPU's.
    unsafe {
        load_segments(gdt);
        load_vectors(idt, TASK);
        segments::load(local.addr());
    }
}
