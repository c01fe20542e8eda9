//! The registers of programs, as traps and handlers of signals leave them.

use ptarmigan::format::{Format, X86Pae};

use crate::cpu::{USER_CODE, USER_DATA};

/// The registers of a program that does not run. The assembly knows the layout.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Registers {
    /// The selector of the thread's memory.
    pub gs: u32,
    fs: u32,
    es: u32,
    ds: u32,
    /// edi esi ebp (esp) ebx edx ecx eax.
    pub general: [u32; 8],
    /// The vector of the trap.
    pub vector: u32,
    /// Its error code, or the number of the system call.
    pub error: u32,
    /// The next instruction.
    pub eip: u32,
    cs: u32,
    /// Flags.
    pub eflags: u32,
    /// The stack pointer.
    pub esp: u32,
    ss: u32,
    _pad: u32,
    /// Floating point and vectors, as `fxsave` has them.
    pub vectors: [u8; 512],
    /// The processor's report of the last trap that was answered with a signal: the vector, the
    /// error code, the address of the last access.
    pub trap: [u32; 3],
    /// The base of the thread's memory.
    pub thread: u32,
}

const _: () = assert!(core::mem::offset_of!(Registers, vectors) == 80);
const _: () = assert!(core::mem::offset_of!(Registers, ss) + 4 == 76);

/// The place of eax in [`Registers::general`].
pub const EAX: usize = 7;
/// The place of ecx.
pub const ECX: usize = 6;
/// The place of edx.
pub const EDX: usize = 5;
/// The place of ebx.
pub const EBX: usize = 4;
/// The place of ebp.
pub const EBP: usize = 2;
/// The place of esi.
pub const ESI: usize = 1;
/// The place of edi.
pub const EDI: usize = 0;
/// Flags that programs may set: arithmetic, direction, trap, alignment checks, identification.
const USER_FLAGS: u32 = 0x24_0dd5;
/// Interrupts are on in programs.
const INTERRUPTS: u32 = 0x202;
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
        gs: 0,
        fs: 0,
        es: USER_DATA,
        ds: USER_DATA,
        general: [0; 8],
        vector: 0,
        error: 0,
        eip: 0,
        cs: USER_CODE,
        eflags: INTERRUPTS,
        esp: 0,
        ss: USER_DATA,
        _pad: 0,
        vectors: fresh_vectors(),
        trap: [0; 3],
        thread: 0,
    };

    /// Sets flags, as far as programs may.
    pub fn set_flags(&mut self, flags: u32) {
        self.eflags = flags & USER_FLAGS | INTERRUPTS;
    }

    /// Keeps the processor's report of a trap.
    pub fn note_trap(&mut self, address: Option<u64>) {
        /// Of a page fault: the tables do not allow it. Addresses that programs cannot have are
        /// said to be mapped, as Linux says it.
        const PROTECTION: u32 = 1;
        let beyond = address.is_some_and(|at| at >= X86Pae::USER_END);
        let code = self.error | if beyond { PROTECTION } else { 0 };
        self.trap = [self.vector, code, address.map_or(self.trap[2], |at| at as u32)];
    }

    /// Sets floating point and vectors to a program's values.
    pub fn set_vectors(&mut self, bytes: &[u8; 512]) {
        self.vectors = *bytes;
        let mxcsr = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) & MXCSR;
        self.vectors[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    }

    /// Keeps the number of a call that begins.
    pub fn begin_call(&mut self) {
        self.error = self.general[EAX];
    }
}
