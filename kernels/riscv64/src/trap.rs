//! To user mode and back, and interrupts that come while the kernel runs.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan_kernel_base::fail;

use crate::memory::{self, Cause as Fault};
use crate::{irq, machine};

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

impl Registers {
    /// All zero.
    pub const ZERO: Registers = Registers { x: [0; 32], pc: 0, kernel_sp: 0 };

    /// Those of a program that begins at `pc` with a stack that ends at `sp`.
    pub fn at(pc: u64, sp: u64, arguments: [u64; 3]) -> Self {
        let mut registers = Registers { pc, ..Registers::ZERO };
        registers.x[SP] = sp;
        registers.x[A0..A0 + 3].copy_from_slice(&arguments);
        registers
    }

    /// The number of a call.
    pub fn call(&self) -> u64 {
        self.x[A7]
    }

    /// Its arguments.
    pub fn arguments(&self) -> [u64; 3] {
        [self.x[A0], self.x[A0 + 1], self.x[A0 + 2]]
    }

    /// Sets the result of the call.
    pub fn set_result(&mut self, value: u64) {
        self.x[A0] = value;
    }

    /// The task goes on after its call.
    pub fn skip_call(&mut self) {
        self.pc = self.pc.wrapping_add(4);
    }
}

/// Why a hart came into the kernel.
#[repr(C)]
pub struct Trap {
    cause: u64,
    /// The address of a fault.
    pub value: u64,
}

/// The cause of a trap.
pub enum Cause {
    /// A call of the user's.
    Call,
    /// A page fault at [`Trap::value`].
    PageFault(Fault),
    /// An interrupt from another hart.
    Software,
    /// The timer.
    Timer,
    /// Anything else.
    Other,
}

const INTERRUPT: u64 = 1 << 63;

impl Trap {
    /// Returns the cause.
    pub fn cause(&self) -> Cause {
        const SOFTWARE: u64 = INTERRUPT | 1;
        const TIMER: u64 = INTERRUPT | 5;
        match self.cause {
            8 => Cause::Call,
            12 => Cause::PageFault(Fault::Execute),
            13 => Cause::PageFault(Fault::Read),
            15 => Cause::PageFault(Fault::Write),
            SOFTWARE => Cause::Software,
            TIMER => Cause::Timer,
            _ => Cause::Other,
        }
    }
}

unsafe extern "C" {
    fn enter_user(registers: *mut Registers) -> Trap;
}

/// Runs the user until it traps. The space is loaded; interrupts are masked.
pub fn enter(registers: &mut Registers) -> Trap {
    memory::check_fenced("a space's");
    irq::allow(irq::SOFTWARE | irq::TIMER);
    // SAFETY: user mode reaches only memory that its space maps for it; the assembly preserves the
    // registers that the compiler expects.
    unsafe { enter_user(registers) }
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
    match (Trap { cause, value }).cause() {
        Cause::Software => {
            irq::take_software();
            machine::answer();
            SOFTWARE_IN_CALLS.fetch_add(1, Ordering::Relaxed);
        }
        // The time slice is over: the task is preempted as soon as it is entered again.
        Cause::Timer => irq::hold_timer(),
        _ => fail(format_args!("trap {cause:#x} in the kernel, address {value:#x}, pc {pc:#x}")),
    }
}
