//! The PC, as the kernel sees it.

use core::arch::asm;

use ptarmigan::addr::Pfn;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Access;
use ptarmigan::frames::NoFrame;
use ptarmigan_kernel::Kernel;
use ptarmigan_kernel::arch::{Abi, Arch, Context, Trap};
use ptarmigan_kernel::signal::exception;
use ptarmigan_kernel_x86::{clock, lapic, port, rtc, serial};

use crate::arch::{self, CALL, SAVED};
use crate::mmu::{self, Hardware};
use crate::registers::Registers;
use crate::{KERNEL, cpu, smp};

/// A PC with the CPUs of the target.
pub struct Pc;

unsafe extern "C" {
    fn enter_user(context: *mut Registers) -> usize;
}

const PAGE_FAULT: usize = 14;
const TIMER: usize = lapic::TIMER as usize;
const IPI: usize = lapic::IPI as usize;
/// Error code of a page fault: a write, and a fetch of an instruction.
const WRITE: usize = 2;
const FETCH: usize = 16;

fn fault_address() -> u64 {
    let at: usize;
    // SAFETY: 1. Reading the register has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at as u64
}

/// Ends an interrupt, and serves it; `None` if the vector is an exception's.
fn interrupt(vector: usize) -> Option<Trap> {
    match vector {
        TIMER => {
            lapic::end();
            Some(Trap::Timer)
        }
        IPI => {
            lapic::end();
            KERNEL.serve();
            Some(Trap::Interrupt)
        }
        0..32 => None,
        _ => Some(Trap::Interrupt),
    }
}

#[cold]
#[inline(never)]
fn other_trap(vector: usize, context: &mut Registers) -> Trap {
    interrupt(vector).unwrap_or_else(|| {
        if vector == 13 {
            return Trap::Protection;
        }
        Pc::save(context);
        let (signal, info) = exception::signal(vector as u8, context.instruction(), &context.vectors.0);
        Trap::Signal { signal, info }
    })
}

// SAFETY: 1. `cpu::init` has made a segment lead to the number of the CPU. 2. There is one static.
// 3. `enter_user` goes to ring 3 with the segments of programs, and saves registers to the context.
// 4. to 6. The direct map shows low frames, which are below its limit, and windows any other.
unsafe impl Arch for Pc {
    type Format = arch::Format;
    type Window = arch::Window;
    type Hardware = Hardware;
    type Context = Registers;
    const ABI: Abi = arch::ABI;
    const STACK_END: u64 = arch::STACK_END;
    const MACHINE: &'static str = arch::MACHINE;
    const HIGH_TABLES: bool = arch::HAS_HIGH;
    const PAGE_INSTRUCTIONS: &'static str = arch::PAGE_INSTRUCTIONS;

    fn print_counts() {
        arch::print_counts();
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
        // of programs and the CPU can return to its next instruction (`set_instruction`).
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
        arch::load(context);
    }

    fn save(context: &mut Registers) {
        arch::save(context);
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

    fn wall_clock() -> u64 {
        rtc::seconds()
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

    #[inline]
    fn page<R>(pin: &Pinned<'_>, pfn: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
        if !arch::HAS_HIGH || pfn.addr().0 < arch::tables::limit() {
            return Ok(f(mmu::direct(pfn.addr().0)));
        }
        arch::with_high(pin, pfn, f)
    }

    #[inline]
    unsafe fn clear_page(at: *mut u8) {
        // SAFETY: 1. Point 1 of the caller's.
        unsafe { arch::clear_page(at) };
    }

    #[inline]
    unsafe fn copy_page(from: *const u8, to: *mut u8) {
        // SAFETY: 1. and 2. Points 1 and 2 of the caller's.
        unsafe { arch::copy_page(from, to) };
    }
}

/// Registers that the stub of a trap in the kernel saved.
#[repr(C)]
struct KernelFrame {
    saved: [usize; SAVED],
    vector: usize,
    error: usize,
    ip: usize,
}

/// Called by the stub of a trap in the kernel: an interrupt while it waits for one, or a defect.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(frame: &KernelFrame) {
    if interrupt(frame.vector).is_none() {
        let KernelFrame { vector, error, ip, .. } = frame;
        let address = fault_address();
        panic!("exception {vector} in the kernel, error {error:#x}, at {ip:#x}, address {address:#x}");
    }
}
