//! The registers of programs, as `trap.s` leaves them, and the reasons of traps.

use ptarmigan::format::Access;

use crate::tasks::{self, Trap};

/// The user's registers while the kernel runs. The assembly knows the layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers {
    /// x0 to x31, of which x0 is not used.
    pub x: [u64; 32],
    /// The next instruction.
    pub pc: u64,
    kernel_sp: u64,
}

/// The stack pointer.
pub const SP: usize = 2;
/// The register of the first argument of a call, and of its result.
pub const A0: usize = 10;
/// The register that has the number of a call.
pub const A7: usize = 17;

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
pub struct Raised {
    /// `scause`.
    pub cause: u64,
    /// The address of a fault (`stval`).
    pub value: u64,
}

impl Raised {
    /// Returns the reason why a program came back.
    #[inline]
    pub fn trap(&self) -> Trap {
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
    /// Runs the user from its registers until it traps. Interrupts are masked before, and after.
    ///
    /// # Safety
    ///
    /// 1. The image has the assembly of `trap.s`.
    /// 2. The space that is loaded maps for the user what the user may reach.
    pub fn enter_user(registers: &mut Registers) -> Raised;
}
