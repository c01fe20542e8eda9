//! To user mode and back, and interrupts that come while the kernel runs.

use core::arch::global_asm;

use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::riscv::irq;
use ptarmigan_kernel_base::riscv::trap::{Raised, enter_user};
use ptarmigan_kernel_base::tasks::Trap;

use super::{machine, mmu};
use crate::cpus;

pub use ptarmigan_kernel_base::riscv::trap::Registers;

global_asm!(include_str!("../../../base/src/riscv/trap.s"));

/// Runs the user until it traps. The space is loaded; interrupts are masked.
pub fn enter(registers: &mut Registers) -> Trap {
    mmu::check_fenced("a space's");
    irq::allow(irq::SOFTWARE | irq::TIMER);
    // SAFETY: 1. The assembly is this image's. 2. User mode reaches only memory that its space maps
    // for it.
    let trap = unsafe { enter_user(registers) }.trap();
    if let Trap::Call = trap {
        registers.pc = registers.pc.wrapping_add(4);
    }
    trap
}

/// Called by the assembly for a trap in the kernel.
#[unsafe(no_mangle)]
extern "C" fn kernel_interrupt(cause: u64, value: u64, pc: u64) {
    match (Raised { cause, value }).trap() {
        Trap::Interrupt => cpus::interrupted(),
        // The time slice is over: the task is preempted as soon as it is entered again.
        Trap::Timer => irq::hold_timer(),
        // A hart may keep the entry from before a page was mapped.
        Trap::Page { at, access, .. } if machine::serve_fault(at, access) => {}
        _ => fail(format_args!("trap {cause:#x} in the kernel, address {value:#x}, pc {pc:#x}")),
    }
}
