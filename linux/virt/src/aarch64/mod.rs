//! AArch64 CPUs: 4 KiB granule, 48-bit addresses, EL1. Programs have the tree below `TTBR0`, the
//! kernel the tables that it booted on below `TTBR1`.

mod mmu;
mod sigcontext;

use core::arch::{asm, global_asm};

use ptarmigan_kernel::arch::{Abi, Trap};
use ptarmigan_kernel::signal::info::{BUS_ADRALN, ILL_ILLOPC, SEGV_ACCERR, SignalInfo, TRAP_BRKPT};
use ptarmigan_kernel::signal::number;
use ptarmigan_kernel_base::aarch64::trap::{SYNCHRONOUS, Syndrome, enter_user};
use ptarmigan_kernel_base::aarch64::{psci, virt};
use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::fail;

use crate::context::SavedRegisters;
use crate::virt::{interrupts, set_timer, trap};

pub use mmu::{COSTS, Hardware, asids, hardware, kernel_half};
pub use ptarmigan::format::Aarch64 as Format;
pub use ptarmigan_kernel_base::aarch64::clock::{self, is_due};
pub use ptarmigan_kernel_base::aarch64::irq::{self, send as interrupt};
pub use ptarmigan_kernel_base::aarch64::trap::{NUMBER, Registers};
pub use ptarmigan_kernel_base::aarch64::virt::{VIRT, listen, seconds, typed};
pub use sigcontext::{CONTEXT_BYTES, FRAME_BYTES};

global_asm!(include_str!("../../../../kernels/base/src/aarch64/boot.s"), mair = const Format::MAIR);
global_asm!(include_str!("../../../../kernels/base/src/aarch64/trap.s"));

/// The calling convention of programs.
pub const ABI: Abi = Abi::Aarch64;
/// Where the stack of a program ends.
pub const STACK_END: u64 = 0xffff_ffff_0000;
/// The name of the machine for `uname`.
pub const MACHINE: &str = "aarch64";
/// The name of its page tables.
pub const TABLES: &str = "AArch64";
/// The instructions that clear and copy pages.
pub const PAGE_INSTRUCTIONS: &str = "dc zva, and ldp and stp of four vector registers at a time";
/// The register of the first argument, and of results.
pub const FIRST: usize = 0;
/// The register that has the address that a function returns to.
pub const LINK: usize = 30;

/// Returns the stack pointer.
pub fn stack(registers: &Registers) -> u64 {
    registers.sp
}

/// Sets the stack pointer.
pub fn set_stack(registers: &mut Registers, at: u64) {
    registers.sp = at;
}

/// Where the first CPU comes from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_main() -> ! {
    // The board starts CPU 0.
    crate::begin(0, virt::DEVICE_TREE)
}

/// Where the other CPUs come from the assembly.
#[unsafe(no_mangle)]
extern "C" fn kernel_other() -> ! {
    crate::begin_other()
}

/// Called by the assembly for an exception in the kernel, which masks interrupts.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(cause: u64) {
    let (Syndrome { esr, far }, pc): (_, u64) = (Syndrome::read(), elr());
    fail(format_args!("exception {cause} in the kernel: ESR {esr:#x}, at {pc:#x}, address {far:#x}"));
}

fn elr() -> u64 {
    let at;
    // SAFETY: 1. Reading the register has no effect.
    unsafe { asm!("mrs {}, elr_el1", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// Prepares the calling CPU for interrupts.
pub fn init_cpu() {
    irq::allow();
    set_timer();
}

/// Starts CPU `cpu`, which the firmware numbers `id`.
pub fn start_cpu(cpu: usize, id: u64) {
    unsafe extern "C" {
        /// Defined by the assembly.
        static start_other: u8;
    }
    // SAFETY: 1. The code at `start_other` is for that.
    if let Err(e) = unsafe { psci::start_cpu(id, physical(&raw const start_other), cpu as u64) } {
        fail(format_args!("CPU {cpu} does not start: {e:?}"));
    }
}

/// Waits until an interrupt is pending.
pub fn wait() {
    // SAFETY: 1. Waiting has no effect on memory.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// Runs a program until it traps.
#[inline]
pub fn enter(context: &mut SavedRegisters) -> Trap {
    // SAFETY: 1. It is above. 2. The space that is loaded is the program's.
    if unsafe { enter_user(&mut context.registers) } != SYNCHRONOUS {
        return interrupts();
    }
    let syndrome = Syndrome::read();
    trap(context, syndrome.trap(), |pc| exception(&syndrome, pc))
}

/// Returns the signal for an exception that is no fault of a page, of an instruction at `pc`.
#[cold]
#[inline(never)]
fn exception(syndrome: &Syndrome, pc: u64) -> (u8, SignalInfo) {
    /// The kind of a data abort whose address is not aligned.
    const ALIGNMENT: u64 = 0x21;
    match syndrome.class() {
        0x22 => (number::SIGBUS, SignalInfo::at(BUS_ADRALN, syndrome.far)),
        0x24 if syndrome.esr & 0x3f == ALIGNMENT => {
            (number::SIGBUS, SignalInfo::at(BUS_ADRALN, syndrome.far))
        }
        // The stack pointer is not aligned.
        0x26 => (number::SIGBUS, SignalInfo::at(BUS_ADRALN, pc)),
        0x3c => (number::SIGTRAP, SignalInfo::at(TRAP_BRKPT, pc)),
        0x20 | 0x24 => (number::SIGSEGV, SignalInfo::at(SEGV_ACCERR, syndrome.far)),
        // No instruction, or one that programs may not execute.
        _ => (number::SIGILL, SignalInfo::at(ILL_ILLOPC, pc)),
    }
}

/// The registers that the assembly leaves alone.
#[derive(Clone)]
pub struct Rest {
    thread: u64,
}

impl Rest {
    /// Those of a program that has not begun.
    pub const NEW: Rest = Rest { thread: 0 };

    /// Sets the base of the thread's memory.
    pub fn set_thread(&mut self, _: &mut Registers, at: u64) {
        self.thread = at;
    }

    /// Returns the base of the thread's memory.
    pub fn thread(&self, _: &Registers) -> u64 {
        self.thread
    }

    /// Has this CPU take them.
    #[inline]
    pub fn load(&self) {
        // SAFETY: 1. The register is the program's.
        unsafe { asm!("msr tpidr_el0, {}", in(reg) self.thread, options(nomem, nostack, preserves_flags)) };
    }

    /// Takes them from this CPU.
    #[inline]
    pub fn save(&mut self) {
        // SAFETY: 1. Reading the register has no effect.
        unsafe {
            asm!("mrs {}, tpidr_el0", out(reg) self.thread, options(nomem, nostack, preserves_flags));
        }
    }
}

/// Clears a page.
///
/// # Safety
///
/// 1. `at` is a page-aligned page of memory, and the caller is its only user meanwhile.
#[inline]
pub unsafe fn clear_page(at: *mut u8) {
    // SAFETY: 1. Blocks of `dc zva`, whose size DCZID_EL0 has in words, up to the end of the page
    // (point 1).
    unsafe {
        asm!(
            "mrs {size}, dczid_el0",
            "and {size:w}, {size:w}, #15",
            "lsl {size}, {four}, {size}",
            "2: dc zva, {at}",
            "add {at}, {at}, {size}",
            "tst {at}, #4095",
            "b.ne 2b",
            size = out(reg) _, four = in(reg) 4_u64, at = inout(reg) at => _, options(nostack),
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
    // SAFETY: 1. 64 bytes a turn up to the end of the page (points 1 and 2).
    unsafe {
        asm!(
            "2: ldp {a:q}, {b:q}, [{from}]",
            "ldp {c:q}, {d:q}, [{from}, #32]",
            "stp {a:q}, {b:q}, [{to}]",
            "stp {c:q}, {d:q}, [{to}, #32]",
            "add {from}, {from}, #64",
            "add {to}, {to}, #64",
            "tst {to}, #4095",
            "b.ne 2b",
            from = inout(reg) from => _, to = inout(reg) to => _, a = out(vreg) _, b = out(vreg) _,
            c = out(vreg) _, d = out(vreg) _, options(nostack),
        );
    }
}
