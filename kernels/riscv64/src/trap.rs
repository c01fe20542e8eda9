//! To user mode and back, and interrupts that come while the kernel runs.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::format::Access;
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::riscv::irq;
use ptarmigan_kernel_base::tasks::{self, Trap};

use crate::{machine, mmu};

global_asm!(include_str!("trap.s"));

/// The user's registers while the kernel runs. The assembly knows the layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers {
    x: [u64; 32],
    pc: u64,
    kernel_sp: u64,
}

const SP: usize = 2;
const A0: usize = 10;
const A7: usize = 17;

impl tasks::Registers for Registers {
    const ZERO: Registers = Registers { x: [0; 32], pc: 0, kernel_sp: 0 };

    fn at(pc: u64, sp: u64, arguments: [u64; 3]) -> Self {
        let mut registers = Registers { pc, ..Registers::ZERO };
        registers.x[SP] = sp;
        registers.x[A0..A0 + 3].copy_from_slice(&arguments);
        registers
    }

    fn call(&self) -> u64 {
        self.x[A7]
    }

    fn arguments(&self) -> [u64; 3] {
        [self.x[A0], self.x[A0 + 1], self.x[A0 + 2]]
    }

    fn set_result(&mut self, value: u64) {
        self.x[A0] = value;
    }
}

/// Why a hart came into the kernel.
#[repr(C)]
struct Raised {
    cause: u64,
    /// The address of a fault.
    value: u64,
}

impl Raised {
    fn trap(&self) -> Trap {
        const INTERRUPT: u64 = 1 << 63;
        const SOFTWARE: u64 = INTERRUPT | 1;
        const TIMER: u64 = INTERRUPT | 5;
        let page = |access| Trap::Page { at: self.value, access, protected: false };
        match self.cause {
            8 => Trap::Call,
            12 => page(Access::Exec),
            13 => page(Access::Read),
            15 => page(Access::Write),
            SOFTWARE => Trap::Interrupt,
            TIMER => Trap::Timer,
            _ => Trap::Other,
        }
    }
}

unsafe extern "C" {
    fn enter_user(registers: *mut Registers) -> Raised;
}

/// Runs the user until it traps. The space is loaded; interrupts are masked.
pub fn enter(registers: &mut Registers) -> Trap {
    mmu::check_fenced("a space's");
    irq::allow(irq::SOFTWARE | irq::TIMER);
    // SAFETY: user mode reaches only memory that its space maps for it; the assembly preserves the
    // registers that the compiler expects.
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
        _ => fail(format_args!("trap {cause:#x} in the kernel, address {value:#x}, pc {pc:#x}")),
    }
}
