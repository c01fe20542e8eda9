//! The PC, as the kernel sees it.

use core::arch::asm;

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Access, X86_64};
use ptarmigan::frames::NoFrame;
use ptarmigan::window::DirectMap;
use ptarmigan_kernel::Kernel;
use ptarmigan_kernel::arch::{Abi, Arch, Context, Trap};
use ptarmigan_kernel::signal::exception;
use ptarmigan_kernel_x86::{clock, lapic, port, serial, smp};

use crate::mmu::{self, Hardware};
use crate::registers::{CALL, Registers};
use crate::{KERNEL, cpu};

/// A PC with 64-bit CPUs.
pub struct Pc;

unsafe extern "C" {
    fn enter_user(context: *mut Registers) -> u64;
}

const PAGE_FAULT: u64 = 14;
const TIMER: u64 = lapic::TIMER as u64;
const IPI: u64 = lapic::IPI as u64;
/// Error code of a page fault: a write, and a fetch of an instruction.
const WRITE: u64 = 2;
const FETCH: u64 = 16;

fn fault_address() -> u64 {
    let at: u64;
    // SAFETY: 1. Reading the register has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

#[cold]
#[inline(never)]
fn other_trap(vector: u64, context: &mut Registers) -> Trap {
    match vector {
        TIMER => {
            lapic::end();
            Trap::Timer
        }
        IPI => {
            lapic::end();
            KERNEL.serve();
            Trap::Interrupt
        }
        13 => Trap::Protection,
        0..32 => {
            Pc::save(context);
            let (signal, info) = exception::signal(vector as u8, context.instruction(), &context.vectors);
            Trap::Signal { signal, info }
        }
        _ => Trap::Interrupt,
    }
}

// SAFETY: 1. `gs` holds the number that the CPU got when it was started. 2. There is one static.
// 3. `enter_user` goes to ring 3 with the segments of programs, and saves registers to the context.
// 4. The direct map shows all frames, which are below its limit. 5. and 6. Likewise.
unsafe impl Arch for Pc {
    type Format = X86_64;
    type Window = DirectMap;
    type Tables = DirectMap;
    type Hardware = Hardware;
    type Context = Registers;
    const ABI: Abi = Abi::X86_64;
    const STACK_END: u64 = 0x7fff_ffff_0000;
    const MACHINE: &'static str = "x86_64";
    const PAGE_INSTRUCTIONS: &'static str = "rep stosq and rep movsq, 512 repetitions each";

    fn tables_bytes(_: usize) -> usize {
        0
    }

    unsafe fn tables(_: &mut BootMemory, _: usize) -> Option<DirectMap> {
        Some(mmu::direct_map())
    }

    fn kernel() -> &'static Kernel<Pc> {
        &KERNEL
    }

    #[inline]
    fn cpu() -> usize {
        cpu::number()
    }

    #[inline]
    fn enter(context: &mut Registers) -> Trap {
        // SAFETY: 1. The context is the program's and borrowed exclusively; its segments are those
        // of programs and its next instruction is an address of programs, so that the return to
        // user mode cannot fail.
        let vector = unsafe { enter_user(context) };
        if vector == PAGE_FAULT {
            // Faults have to be fast.
            let access = match context.error & (WRITE | FETCH) {
                0 => Access::Read,
                FETCH => Access::Exec,
                _ => Access::Write,
            };
            return Trap::Fault { at: fault_address(), access };
        }
        if vector == CALL { Trap::Call } else { other_trap(vector, context) }
    }

    fn load(context: &Registers) {
        let (fs, gs) = context.bases();
        // SAFETY: 1. The bases are addresses of programs. 2. The bytes were written by `fxsave`, or
        // checked by `set_vectors`; they are aligned to 16.
        unsafe {
            cpu::write_msr(cpu::FS_BASE, fs);
            cpu::write_msr(cpu::OTHER_GS_BASE, gs);
            asm!("fxrstor64 [{}]", in(reg) context.vectors.as_ptr(), options(nostack, preserves_flags));
        }
    }

    fn save(context: &mut Registers) {
        // SAFETY: 1. The place has 512 bytes and is aligned to 16.
        unsafe {
            asm!("fxsave64 [{}]", in(reg) context.vectors.as_mut_ptr(), options(nostack, preserves_flags));
        }
    }

    fn put(byte: u8) {
        serial::put(byte);
    }

    fn typed() -> Option<u8> {
        serial::take()
    }

    fn now() -> u64 {
        clock::now()
    }

    fn wait_for_interrupt() {
        // SAFETY: 1. The handlers of interrupts in the kernel end the interrupt and serve requests,
        // and touch no other state. `sti` takes effect after `hlt`, so no interrupt is missed.
        unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
    }

    fn interrupt(cpu: usize) {
        smp::interrupt(cpu);
    }

    fn exit(status: u8) -> ! {
        port::exit(status)
    }

    fn kernel_entry(index: usize) -> u64 {
        mmu::kernel_top().get(index)
    }

    #[inline]
    fn page<R>(_: &Pinned<'_>, pfn: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
        Ok(f(mmu::direct(pfn.addr().0)))
    }

    #[inline]
    unsafe fn clear_page(at: *mut u8) {
        // SAFETY: 1. 512 words of 8 bytes are the page (point 1).
        unsafe {
            asm!("rep stosq", inout("rcx") 512_u64 => _, inout("rdi") at => _, in("rax") 0_u64,
                options(nostack, preserves_flags));
        }
    }

    #[inline]
    unsafe fn copy_page(from: *const u8, to: *mut u8) {
        // SAFETY: 1. 512 words of 8 bytes are the page (points 1 and 2).
        unsafe {
            asm!("rep movsq", inout("rcx") 512_u64 => _, inout("rsi") from => _, inout("rdi") to => _,
                options(nostack, preserves_flags));
        }
    }
}

/// Registers that the stub of a trap in the kernel saved.
#[repr(C)]
struct KernelFrame {
    saved: [u64; 10],
    vector: u64,
    error: u64,
    rip: u64,
}

/// Called by the stub of a trap in the kernel: an interrupt while it waits for one, or a defect.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(frame: &KernelFrame) {
    match frame.vector {
        TIMER => lapic::end(),
        IPI => {
            lapic::end();
            KERNEL.serve();
        }
        vector if vector >= 32 => {}
        vector => panic!(
            "exception {vector} in the kernel, error {:#x}, at {:#x}, address {:#x}",
            frame.error,
            frame.rip,
            fault_address()
        ),
    }
}
