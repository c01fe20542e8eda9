//! RISC-V harts: Sv39. Every space has the program in its lower half, and the kernel's direct map
//! in the upper one.

mod mmu;
mod sigcontext;

use core::arch::{asm, global_asm};
use core::ptr;

use ptarmigan_kernel::arch::{Abi, Trap};
use ptarmigan_kernel::signal::info::{BUS_ADRALN, ILL_ILLOPC, SEGV_ACCERR, SignalInfo, TRAP_BRKPT};
use ptarmigan_kernel::signal::number;
use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::riscv::trap::{A0, A7, Raised, SP, enter_user};
use ptarmigan_kernel_base::riscv::{harts, sbi};
use ptarmigan_kernel_base::tasks;

use crate::context::SavedRegisters;
use crate::virt::{set_timer, trap};

pub use mmu::{COSTS, Hardware, asids, hardware, kernel_half};
pub use ptarmigan::format::Sv39 as Format;
pub use ptarmigan_kernel_base::riscv::harts::interrupt;
pub use ptarmigan_kernel_base::riscv::irq::{self, is_due};
pub use ptarmigan_kernel_base::riscv::sbi as clock;
pub use ptarmigan_kernel_base::riscv::trap::Registers;
pub use ptarmigan_kernel_base::riscv::virt::{VIRT, listen, seconds, typed};
pub use sigcontext::{CONTEXT_BYTES, FRAME_BYTES};

global_asm!(include_str!("../../../../kernels/base/src/riscv/boot.s"));
global_asm!(include_str!("../../../../kernels/base/src/riscv/trap.s"));
global_asm!(include_str!("floats.s"));

/// The calling convention of programs.
pub const ABI: Abi = Abi::Riscv64;
/// Where the stack of a program ends.
pub const STACK_END: u64 = 0x3f_ffff_0000;
/// The name of the machine for `uname`.
pub const MACHINE: &str = "riscv64";
/// The name of its page tables.
pub const TABLES: &str = "Sv39";
/// The instructions that clear and copy pages.
pub const PAGE_INSTRUCTIONS: &str = "ld and sd, eight words at a time";
/// The register of the number of a call.
pub const NUMBER: usize = A7;
/// The register of the first argument, and of results.
pub const FIRST: usize = A0;
/// The register that has the address that a function returns to.
pub const LINK: usize = 1;
/// The register of the base of the thread's memory.
const THREAD: usize = 4;

/// Returns the stack pointer.
pub fn stack(registers: &Registers) -> u64 {
    registers.x[SP]
}

/// Sets the stack pointer.
pub fn set_stack(registers: &mut Registers, at: u64) {
    registers.x[SP] = at;
}

/// Where the first hart comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(hart: u64, device_tree: u64) -> ! {
    harts::set(0, hart);
    crate::begin(hart, device_tree)
}

/// Where the other harts come from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_other(_hart: u64) -> ! {
    crate::begin_other()
}

/// Called by the assembly for a trap in the kernel, which masks interrupts.
#[unsafe(no_mangle)]
extern "C" fn kernel_interrupt(cause: u64, value: u64, pc: u64) {
    fail(format_args!("trap {cause:#x} in the kernel, at {pc:#x}, address {value:#x}"));
}

/// Prepares the calling hart: for interrupts, for floating point and for programs that read the
/// time.
pub fn init_cpu() {
    // SAFETY: 1. `sstatus.FS`: the kernel's own code uses no floating point, so that the registers
    // are programs' throughout. `scounteren`: the counters that programs may read.
    unsafe {
        asm!("csrs sstatus, {}", "csrw scounteren, {}", in(reg) 1 << 13, in(reg) 7, options(nostack));
    }
    irq::allow(irq::SOFTWARE | irq::TIMER);
    set_timer();
}

/// Starts CPU `cpu`, hart `id` for the firmware.
pub fn start_cpu(cpu: usize, id: u64) {
    unsafe extern "C" {
        /// Defined by the assembly.
        static start_other: u8;
    }
    harts::set(cpu, id);
    // SAFETY: 1. The code at `start_other` is for that.
    if let Err(e) = unsafe { sbi::start_hart(id, physical(&raw const start_other), cpu as u64) } {
        fail(format_args!("hart {id}, CPU {cpu}, does not start: {e:?}"));
    }
}

/// Waits until an interrupt is pending.
pub fn wait() {
    // SAFETY: 1. Waiting has no effect on memory.
    unsafe { asm!("wfi", options(nostack)) };
}

/// Runs a program until it traps.
#[inline]
pub fn enter(context: &mut SavedRegisters) -> Trap {
    // SAFETY: 1. It is above. 2. The space that is loaded is the program's.
    let raised = unsafe { enter_user(&mut context.registers) };
    let reason = raised.trap();
    if let tasks::Trap::Call = reason {
        context.registers.pc = context.registers.pc.wrapping_add(4);
    }
    trap(context, reason, |pc| exception(&raised, pc))
}

/// Returns the signal for an exception that is no fault of a page, of an instruction at `pc`.
#[cold]
#[inline(never)]
fn exception(raised: &Raised, pc: u64) -> (u8, SignalInfo) {
    match raised.cause {
        // Not aligned: instructions, loads, stores.
        0 | 4 | 6 => (number::SIGBUS, SignalInfo::at(BUS_ADRALN, raised.value)),
        3 => (number::SIGTRAP, SignalInfo::at(TRAP_BRKPT, pc)),
        // No memory there: instructions, loads, stores.
        1 | 5 | 7 => (number::SIGSEGV, SignalInfo::at(SEGV_ACCERR, raised.value)),
        _ => (number::SIGILL, SignalInfo::at(ILL_ILLOPC, pc)),
    }
}

/// The registers that the assembly leaves alone: floating point. The assembly knows the layout.
#[repr(C)]
#[derive(Clone)]
pub struct Rest {
    /// f0 to f31.
    pub f: [u64; 32],
    /// Control and status.
    pub fcsr: u64,
}

unsafe extern "C" {
    /// Has this hart take the registers.
    ///
    /// # Safety
    ///
    /// 1. `from` leads to some; the kernel uses no floating point.
    fn load_floats(from: *const Rest);
    /// Takes the registers from this hart.
    ///
    /// # Safety
    ///
    /// 1. `to` leads to a place for them, which is the caller's.
    fn save_floats(to: *mut Rest);
}

impl Rest {
    /// Those of a program that has not begun.
    pub const NEW: Rest = Rest { f: [0; 32], fcsr: 0 };

    /// Sets the base of the thread's memory.
    pub fn set_thread(&mut self, registers: &mut Registers, at: u64) {
        registers.x[THREAD] = at;
    }

    /// Returns the base of the thread's memory.
    pub fn thread(&self, registers: &Registers) -> u64 {
        registers.x[THREAD]
    }

    /// Has this hart take them.
    pub fn load(&self) {
        // SAFETY: 1. They are `self`.
        unsafe { load_floats(ptr::from_ref(self)) };
    }

    /// Takes them from this hart.
    pub fn save(&mut self) {
        // SAFETY: 1. The place is `self`, borrowed exclusively.
        unsafe { save_floats(ptr::from_mut(self)) };
    }
}

/// Clears a page.
///
/// # Safety
///
/// 1. `at` is a page-aligned page of memory, and the caller is its only user meanwhile.
#[inline]
pub unsafe fn clear_page(at: *mut u8) {
    // SAFETY: 1. Eight words a turn, from the first to the last one of the page (point 1).
    unsafe {
        asm!(
            "2: sd zero, 0({at})",
            "sd zero, 8({at})",
            "sd zero, 16({at})",
            "sd zero, 24({at})",
            "sd zero, 32({at})",
            "sd zero, 40({at})",
            "sd zero, 48({at})",
            "sd zero, 56({at})",
            "addi {at}, {at}, 64",
            "bltu {at}, {end}, 2b",
            at = inout(reg) at => _, end = in(reg) at.wrapping_add(4096), options(nostack),
        );
    }
}

/// Copies a page.
///
/// # Safety
///
/// 1. `to` is a page-aligned page of memory, and the caller is its only user meanwhile.
/// 2. `from` is another page-aligned page of memory.
#[inline]
pub unsafe fn copy_page(from: *const u8, to: *mut u8) {
    let (mut from, mut to) = (from.cast::<[u64; 8]>(), to.cast::<[u64; 8]>());
    for _ in 0..64 {
        // SAFETY: 64 times 64 bytes are the page (points 1 and 2).
        unsafe {
            to.write_volatile(from.read_volatile());
            (from, to) = (from.add(1), to.add(1));
        }
    }
}
