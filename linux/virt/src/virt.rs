//! The board, as the kernel sees it.

use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::frames::NoFrame;
use ptarmigan::tlb::Ipi;
use ptarmigan::window::DirectMap;
use ptarmigan_kernel::Kernel;
use ptarmigan_kernel::arch::{Abi, Arch, Trap};
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel::memory::code::Fetched;
use ptarmigan_kernel::negative_controls::{NegativeControl, leaves_out};
use ptarmigan_kernel::report::PASS;
use ptarmigan_kernel::signal::SignalInfo;
use ptarmigan_kernel_base::direct::direct;
use ptarmigan_kernel_base::{smp, tasks};

use crate::KERNEL;
use crate::arch::{self, clock, irq};
use crate::context::{HANDLER_RETURN, SavedRegisters};

/// The board with CPUs of the target.
pub struct Virt;

/// `rt_sigreturn`.
const SIGRETURN: u64 = 139;
/// Milliseconds between two interrupts of a CPU's timer.
const TICK: u64 = 4;

/// Sets the time of this CPU's next timer interrupt.
pub fn set_timer() {
    clock::set_timer(clock::time() + TICK * clock::ticks_per_ms());
}

/// Serves the interrupts of this CPU that are pending.
pub fn interrupts() -> Trap {
    let is_tick = arch::is_due();
    if is_tick {
        set_timer();
    }
    if irq::take_software() {
        KERNEL.serve();
    }
    if is_tick { Trap::Timer } else { Trap::Interrupt }
}

/// Returns the reason why a program came back. `signal` tells the signal for an exception, of an
/// instruction at this address, that is neither a call nor a fault of a page.
#[inline]
pub fn trap(
    context: &mut SavedRegisters,
    trap: tasks::Trap,
    signal: impl FnOnce(u64) -> (u8, SignalInfo),
) -> Trap {
    let registers = &mut context.registers;
    match trap {
        tasks::Trap::Call => Trap::Call,
        tasks::Trap::Page { at: HANDLER_RETURN, .. } if registers.pc == HANDLER_RETURN => {
            registers.x[arch::NUMBER] = SIGRETURN;
            Trap::Call
        }
        tasks::Trap::Page { at, access, .. } => Trap::Fault { at, access },
        tasks::Trap::Timer | tasks::Trap::Interrupt => interrupts(),
        tasks::Trap::Other => {
            let (signal, info) = signal(registers.pc);
            Trap::Signal { signal, info }
        }
    }
}

/// The interrupts between CPUs.
pub struct Interrupts;

impl Ipi for Interrupts {
    fn send(&self, _: &Pinned<'_>, cpus: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {
        if !leaves_out(NegativeControl::Ipi) {
            for cpu in cpus.iter() {
                KERNEL.count(Count::Ipis);
                arch::interrupt(cpu.0.into());
            }
        }
    }

    fn wait(&self, pin: &Pinned<'_>, turn: u32) {
        smp::wait(pin, turn);
    }
}

// SAFETY: 1. The assembly has put the number of each CPU in a register of its own; `start` starts
// no more than the kernel is set up for. 2. There is one static. 3. `arch::enter` goes to user mode
// with the registers of the context, and saves them there. 4. to 6. The direct map shows all
// frames: the library gets memory below its limit.
unsafe impl Arch for Virt {
    type Format = arch::Format;
    type Window = DirectMap;
    type Hardware = arch::Hardware;
    type Context = SavedRegisters;
    const ABI: Abi = arch::ABI;
    const STACK_END: u64 = arch::STACK_END;
    const MACHINE: &'static str = arch::MACHINE;
    const PAGE_INSTRUCTIONS: &'static str = arch::PAGE_INSTRUCTIONS;

    fn kernel() -> &'static Kernel<Virt> {
        &KERNEL
    }

    #[inline]
    fn fetched() -> Option<&'static Fetched> {
        static FETCHED: Fetched = Fetched::new();
        Some(&FETCHED)
    }

    #[inline]
    fn cpu() -> usize {
        irq::cpu()
    }

    #[inline]
    fn enter(context: &mut SavedRegisters) -> Trap {
        arch::enter(context)
    }

    #[inline]
    fn load(context: &SavedRegisters) {
        context.rest.load();
    }

    #[inline]
    fn save(context: &mut SavedRegisters) {
        context.rest.save();
    }

    fn put(byte: u8) {
        (arch::VIRT.put)(byte);
    }

    fn typed() -> Option<u8> {
        arch::typed()
    }

    fn now() -> u64 {
        let (ticks, each) = (clock::time(), clock::ticks_per_ms());
        ticks / each * 1_000_000 + ticks % each * 1_000_000 / each
    }

    fn wall_clock() -> u64 {
        arch::seconds()
    }

    fn wait_for_interrupt() {
        // The kernel masks interrupts; one that is pending ends the wait nevertheless.
        arch::wait();
        interrupts();
    }

    fn interrupt(cpu: usize) {
        arch::interrupt(cpu);
    }

    fn exit(status: u8) -> ! {
        (arch::VIRT.exit)(status == PASS)
    }

    #[inline]
    fn page<R>(_: &Pinned<'_>, pfn: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
        Ok(f(direct(pfn.addr().0)))
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
