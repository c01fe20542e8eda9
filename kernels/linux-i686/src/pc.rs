//! The PC, as the kernel sees it.

use core::arch::asm;

use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Access, X86Pae};
use ptarmigan::frames::NoFrame;
use ptarmigan::window::DirectMap;
use ptarmigan_kernel::Kernel;
use ptarmigan_kernel::arch::{Abi, Arch, Context, Trap};
use ptarmigan_kernel::say;
use ptarmigan_kernel::signal::exception;
use ptarmigan_kernel_x86::{clock, lapic, port, serial, smp};

use crate::cpu::CALL;
use crate::mmu::{self, Hardware};
use crate::registers::Registers;
use crate::{KERNEL, cpu, windows};

/// A PC with 32-bit CPUs and PAE.
pub struct Pc;

unsafe extern "C" {
    fn enter_user(context: *mut Registers) -> u32;
}

const PAGE_FAULT: u32 = 14;
const TIMER: u32 = lapic::TIMER as u32;
const IPI: u32 = lapic::IPI as u32;
/// Error code of a page fault: a write, and a fetch of an instruction.
const WRITE: u32 = 2;
const FETCH: u32 = 16;

fn fault_address() -> u64 {
    let at: u32;
    // SAFETY: 1. Reading the register has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at.into()
}

#[cold]
#[inline(never)]
fn other_trap(vector: u32, context: &mut Registers) -> Trap {
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

// SAFETY: 1. `fs` leads to the number that the CPU got when it was started. 2. There is one static.
// 3. `enter_user` goes to ring 3 with the segments of programs, and saves registers to the context.
// 4. The direct map shows low frames, and a window of this CPU's any other. 5. Low frames are below
//    the direct map's limit. 6. Other frames are shown by a window on tables.
unsafe impl Arch for Pc {
    type Format = X86Pae;
    type Window = DirectMap;
    type Tables = windows::Tables;
    type Hardware = Hardware;
    type Context = Registers;
    const ABI: Abi = Abi::I386;
    const STACK_END: u64 = 0xbfff_0000;
    const MACHINE: &'static str = "i686";
    // High frames would each need a window.
    const CLEARS_AHEAD: bool = false;
    const HIGH_TABLES: bool = true;
    const PAGE_INSTRUCTIONS: &'static str = "rep stosd and rep movsd, 1024 repetitions each";

    fn tables_bytes(cpus: usize) -> usize {
        windows::tables_bytes(cpus)
    }

    unsafe fn tables(boot: &mut BootMemory, cpus: usize) -> Option<windows::Tables> {
        // SAFETY: 1. Point 1 of the caller's.
        unsafe { windows::tables(boot, cpus) }
    }

    fn tables_opened() -> usize {
        windows::tables_opened()
    }

    fn print_counts() {
        if let Some(found) = windows::sweeps() {
            let (sweeps, idle, total) = (found.sweeps, found.idle_sweeps, found.total);
            say!(
                Pc,
                "kernel: Linux's pool: {sweeps} sweeps, {idle} of them with nothing stale; {} slots stale, {} in use",
                total.stale,
                total.pinned
            );
        }
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
        // of programs, so that the return to user mode cannot fail.
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
        if vector == CALL {
            context.begin_call();
            return Trap::Call;
        }
        other_trap(vector, context)
    }

    fn load(context: &Registers) {
        cpu::set_thread(context.thread() as u32);
    }

    // `enter` saves everything.
    fn save(_: &mut Registers) {}

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
        mmu::kernel_root().get(index)
    }

    #[inline]
    fn page<R>(pin: &Pinned<'_>, pfn: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
        if pfn.addr().0 < mmu::limit() {
            return Ok(f(mmu::direct(pfn.addr().0)));
        }
        windows::with(pin, pfn, f)
    }

    #[inline]
    unsafe fn clear_page(at: *mut u8) {
        // SAFETY: 1. 1024 words of 4 bytes are the page (point 1).
        unsafe {
            asm!("rep stosd", inout("ecx") 1024_u32 => _, inout("edi") at => _, in("eax") 0_u32,
                options(nostack, preserves_flags));
        }
    }

    #[inline]
    unsafe fn copy_page(from: *const u8, to: *mut u8) {
        // SAFETY: 1. 1024 words of 4 bytes are the page (points 1 and 2). The compiler keeps esi
        // for itself, so that it is exchanged.
        unsafe {
            asm!("xchg esi, {from}", "rep movsd", "xchg esi, {from}", from = inout(reg) from => _,
                inout("ecx") 1024_u32 => _, inout("edi") to => _, options(nostack, preserves_flags));
        }
    }
}

/// Registers that the stub of a trap in the kernel saved.
#[repr(C)]
struct KernelFrame {
    saved: [u32; 8],
    vector: u32,
    error: u32,
    rip: u32,
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
