//! To user mode and back, and exceptions in the kernel.

use core::arch::global_asm;

use ptarmigan_kernel_base::aarch64::clock;
use ptarmigan_kernel_base::aarch64::trap::{DATA_OF_KERNEL, INTERRUPT, SYNCHRONOUS, Syndrome, enter_user};
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::smp::kernel_half;
use ptarmigan_kernel_base::tasks::Trap;

pub use ptarmigan_kernel_base::aarch64::trap::Registers;

use crate::cpus;

global_asm!(include_str!("../../../base/src/aarch64/trap.s"));

/// Runs the user until it traps. The space is loaded; interrupts are masked.
pub fn enter(registers: &mut Registers) -> Trap {
    clock::allow();
    // SAFETY: 1. The assembly is this image's. 2. User mode reaches only memory that its space maps
    // for it.
    match unsafe { enter_user(registers) } {
        SYNCHRONOUS => Syndrome::read().trap(),
        _ if clock::is_due() => Trap::Timer,
        _ => Trap::Interrupt,
    }
}

/// Called by the assembly for an exception in the kernel.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(cause: u64) {
    if cause == INTERRUPT {
        if clock::is_due() {
            // The time slice is over: the task is preempted as soon as it is entered again.
            return clock::hold();
        }
        return cpus::interrupted();
    }
    let syndrome = Syndrome::read();
    let Syndrome { esr, far } = syndrome;
    // Between the break of its entry and the new one, the page has no translation: once more.
    let changes = cause == SYNCHRONOUS && syndrome.class() == DATA_OF_KERNEL && syndrome.fault() == 1;
    if !changes || far != kernel_half::PAGE {
        fail(format_args!("exception {cause} in the kernel: ESR {esr:#x}, address {far:#x}"));
    }
}
