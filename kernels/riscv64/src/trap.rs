//! To user mode and back, and interrupts that come while the kernel runs.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::riscv::irq;
use ptarmigan_kernel_base::riscv::trap::{Raised, enter_user};
use ptarmigan_kernel_base::tasks::Trap;

use crate::{machine, mmu};

pub use ptarmigan_kernel_base::riscv::trap::Registers;

global_asm!(include_str!("../../base/src/riscv/trap.s"));

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

/// Answers other harts, if one has sent an interrupt.
pub fn answer() {
    if irq::take_software() {
        machine::answer();
    }
}

/// Interrupts from other harts that came while the library was at work for a task.
static SOFTWARE_IN_CALLS: AtomicU64 = AtomicU64::new(0);

/// Says how many interrupts from other harts came while the library was at work for a task.
pub fn software_in_calls() -> u64 {
    SOFTWARE_IN_CALLS.load(Ordering::Relaxed)
}

/// Called by the assembly for a trap in the kernel.
#[unsafe(no_mangle)]
extern "C" fn kernel_interrupt(cause: u64, value: u64, pc: u64) {
    match (Raised { cause, value }).trap() {
        Trap::Interrupt => {
            answer();
            SOFTWARE_IN_CALLS.fetch_add(1, Ordering::Relaxed);
        }
        // The time slice is over: the task is preempted as soon as it is entered again.
        Trap::Timer => irq::hold_timer(),
        // A hart may keep the entry from before a page was mapped.
        Trap::Page { at, access, .. } if machine::serve_fault(at, access) => {}
        _ => fail(format_args!("trap {cause:#x} in the kernel, address {value:#x}, pc {pc:#x}")),
    }
}
