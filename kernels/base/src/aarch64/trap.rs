//! The registers of programs, as `trap.s` leaves them, and the reasons of exceptions.

use core::arch::asm;

use ptarmigan::format::Access;

use crate::tasks::{self, Trap};

/// The user's registers while the kernel runs. The assembly knows the layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers {
    /// x0 to x30.
    pub x: [u64; 31],
    /// The stack pointer.
    pub sp: u64,
    /// The next instruction.
    pub pc: u64,
    /// The state of the processor, as `SPSR_EL1` has it.
    pub spsr: u64,
    /// Control of floating point.
    pub fpcr: u64,
    /// Status of floating point.
    pub fpsr: u64,
    /// q0 to q31.
    pub q: [u128; 32],
}

/// The register that has the number of a call.
pub const NUMBER: usize = 8;

impl tasks::Registers for Registers {
    const ZERO: Registers = Registers { x: [0; 31], sp: 0, pc: 0, spsr: 0, fpcr: 0, fpsr: 0, q: [0; 32] };

    fn at(pc: u64, sp: u64, arguments: [u64; 3]) -> Self {
        let mut registers = Registers { pc, sp, ..Registers::ZERO };
        registers.x[..3].copy_from_slice(&arguments);
        registers
    }

    fn call(&self) -> u64 {
        self.x[NUMBER]
    }

    fn arguments(&self) -> [u64; 3] {
        [self.x[0], self.x[1], self.x[2]]
    }

    fn set_result(&mut self, value: u64) {
        self.x[0] = value;
    }
}

unsafe extern "C" {
    /// Runs the user from its registers until an exception; returns [`SYNCHRONOUS`] or
    /// [`INTERRUPT`]. Interrupts are masked before, and after.
    ///
    /// # Safety
    ///
    /// 1. The image has the assembly of `trap.s`.
    /// 2. The space that is loaded maps for the user what the user may reach.
    pub fn enter_user(registers: &mut Registers) -> u64;
}

/// Causes that the assembly tells apart.
pub const SYNCHRONOUS: u64 = 0;
/// An interrupt.
pub const INTERRUPT: u64 = 1;

/// The syndrome of a synchronous exception, and the address of a fault.
pub struct Syndrome {
    /// `ESR_EL1`.
    pub esr: u64,
    /// `FAR_EL1`.
    pub far: u64,
}

/// Classes of exceptions (Arm ARM, "ESR_EL1").
const CALL: u64 = 0x15;
const FETCH: u64 = 0x20;
const DATA: u64 = 0x24;
/// A data abort of the kernel.
pub const DATA_OF_KERNEL: u64 = 0x25;
/// Of a data abort: a store; an instruction on caches, which says that it is a store.
const STORE: u64 = 1 << 6;
const CACHES: u64 = 1 << 8;

impl Syndrome {
    /// Reads that of this CPU's last exception.
    #[inline]
    pub fn read() -> Self {
        let (esr, far);
        // SAFETY: reading the registers has no effect.
        unsafe {
            asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) esr, out(reg) far,
                options(nomem, nostack, preserves_flags));
        }
        Syndrome { esr, far }
    }

    /// Returns its class.
    #[inline]
    pub fn class(&self) -> u64 {
        self.esr >> 26
    }

    /// Returns the kind of a fault: 1 for no translation, 2 for one that was not accessed, 3 for a
    /// denial.
    #[inline]
    pub fn fault(&self) -> u64 {
        self.esr >> 2 & 0xf
    }

    /// Returns the reason why a program came back.
    #[inline]
    pub fn trap(&self) -> Trap {
        let access = match self.class() {
            CALL => return Trap::Call,
            FETCH => Access::Exec,
            DATA if self.esr & (STORE | CACHES) == STORE => Access::Write,
            DATA => Access::Read,
            _ => return Trap::Other,
        };
        match self.fault() {
            1..=3 => Trap::Page { at: self.far, access, protected: false },
            _ => Trap::Other,
        }
    }
}
