//! The registers of programs, as traps and handlers of signals leave them.

use ptarmigan::format::{Format, X86_64};

use crate::cpu::{USER_CODE, USER_DATA};

/// The registers of a program that does not run. The assembly knows the layout of the first part.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Registers {
    /// r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi.
    pub general: [u64; 15],
    /// The vector of the trap.
    pub vector: u64,
    /// Its error code, or the number of the system call.
    pub error: u64,
    /// The next instruction.
    pub rip: u64,
    cs: u64,
    /// Flags.
    pub rflags: u64,
    /// The stack pointer.
    pub rsp: u64,
    ss: u64,
    /// Floating point and vectors, as `fxsave` has them.
    pub vectors: [u8; 512],
    /// The processor's report of the last trap that was answered with a signal: the vector, the
    /// error code, the address of the last access.
    pub trap: [u64; 3],
    /// The base of `fs`.
    pub fs: u64,
    gs: u64,
}

/// The place of rax in [`Registers::general`].
pub const RAX: usize = 10;
/// The place of rdx.
pub const RDX: usize = 12;
/// The place of rsi.
pub const RSI: usize = 13;
/// The place of rdi.
pub const RDI: usize = 14;
/// The place of r8.
pub const R8: usize = 9;
/// The place of r9.
pub const R9: usize = 8;
/// The place of r10.
pub const R10: usize = 7;
/// The vector of system calls, which the processor does not use.
pub const CALL: u64 = 0x100;
/// Flags that programs may set: arithmetic, direction, trap, alignment checks, identification.
const USER_FLAGS: u64 = 0x24_0dd5;
/// Interrupts are on in programs.
const INTERRUPTS: u64 = 0x202;
/// Bits of MXCSR that there are.
const MXCSR: u32 = 0xffff;

const fn fresh_vectors() -> [u8; 512] {
    let mut all = [0; 512];
    // FCW 0x37f, MXCSR 0x1f80: all exceptions masked.
    (all[0], all[1], all[24], all[25]) = (0x7f, 0x03, 0x80, 0x1f);
    all
}

impl Registers {
    /// Those of a program that has not begun.
    pub const FRESH: Self = Registers {
        general: [0; 15],
        vector: 0,
        error: 0,
        rip: 0,
        cs: USER_CODE,
        rflags: INTERRUPTS,
        rsp: 0,
        ss: USER_DATA,
        vectors: fresh_vectors(),
        trap: [0; 3],
        fs: 0,
        gs: 0,
    };

    /// Sets flags, as far as programs may.
    pub fn set_flags(&mut self, flags: u64) {
        self.rflags = flags & USER_FLAGS | INTERRUPTS;
    }

    /// Sets the next instruction. A place that is no address of programs becomes 0, where no page
    /// is mapped.
    pub fn set_instruction(&mut self, at: u64) {
        self.rip = if at < X86_64::USER_END { at } else { 0 };
    }

    /// Keeps the processor's report of a trap.
    pub fn note_trap(&mut self, address: Option<u64>) {
        /// Of a page fault: the tables do not allow it. Addresses that programs cannot have are
        /// said to be mapped, as Linux says it.
        const PROTECTION: u64 = 1;
        let beyond = address.is_some_and(|at| at >= X86_64::USER_END);
        let code = self.error | if beyond { PROTECTION } else { 0 };
        self.trap = [self.vector, code, address.unwrap_or(self.trap[2])];
    }

    /// Sets floating point and vectors to a program's values.
    pub fn set_vectors(&mut self, bytes: &[u8; 512]) {
        self.vectors = *bytes;
        let mxcsr = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) & MXCSR;
        self.vectors[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    }
}

impl Registers {
    /// Returns the bases of `fs` and `gs`.
    pub fn bases(&self) -> (u64, u64) {
        (self.fs, self.gs)
    }
}
