//! To user mode and back: the user's registers, and why the user stopped.

use core::arch::{asm, global_asm};

use ptarmigan::format::Access;
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::tasks::{self, Trap};

global_asm!(include_str!("trap.s"));

/// The user's registers while the kernel runs. The assembly knows the layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers {
    r: [u64; 32],
    pc: u64,
    kernel_sp: u64,
}

/// The registers that have the first argument, and the number of a call.
const A0: usize = 4;
const NUMBER: usize = 11;

impl tasks::Registers for Registers {
    const ZERO: Registers = Registers { r: [0; 32], pc: 0, kernel_sp: 0 };

    fn at(pc: u64, sp: u64, arguments: [u64; 3]) -> Self {
        let mut registers = Registers { pc, ..Registers::ZERO };
        registers.r[3] = sp;
        registers.r[A0..A0 + 3].copy_from_slice(&arguments);
        registers
    }

    fn call(&self) -> u64 {
        self.r[NUMBER]
    }

    fn arguments(&self) -> [u64; 3] {
        [self.r[A0], self.r[A0 + 1], self.r[A0 + 2]]
    }

    fn set_result(&mut self, value: u64) {
        self.r[A0] = value;
    }
}

/// Codes of exceptions (Reference Manual volume 1, 7.4.5): a page that is not valid, by access; one
/// that is not dirty; one that may not be read or executed; a call.
const LOAD: u64 = 1;
const STORE: u64 = 2;
const FETCH: u64 = 3;
const NOT_DIRTY: u64 = 4;
const NOT_READABLE: u64 = 5;
const NOT_EXECUTABLE: u64 = 6;
const CALL: u64 = 0xb;

/// Reads the code and the address of the last exception.
fn cause() -> (u64, u64) {
    let (estat, badv): (u64, u64);
    // SAFETY: reading the registers has no effect.
    unsafe {
        asm!("csrrd {}, 0x5", "csrrd {}, 0x7", out(reg) estat, out(reg) badv, options(nomem, nostack));
    }
    (estat >> 16 & 0x3f, badv)
}

unsafe extern "C" {
    fn enter_user(registers: *mut Registers);
}

/// Runs the user until it stops. The space is loaded.
pub fn enter(registers: &mut Registers) -> Trap {
    // SAFETY: user mode reaches only memory that its space maps for it; the assembly preserves the
    // registers that the compiler expects.
    unsafe { enter_user(registers) };
    let (code, at) = cause();
    let access = match code {
        CALL => {
            registers.pc += 4;
            return Trap::Call;
        }
        LOAD | NOT_READABLE => Access::Read,
        STORE | NOT_DIRTY => Access::Write,
        FETCH | NOT_EXECUTABLE => Access::Exec,
        _ => return Trap::Other,
    };
    Trap::Page { at, access, protected: code >= NOT_DIRTY }
}

/// Called by the assembly for an exception in the kernel, which has none that it goes on after.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap() -> ! {
    let (code, at) = cause();
    fail(format_args!("exception {code:#x} in the kernel, address {at:#x}"))
}
