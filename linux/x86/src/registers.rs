//! The registers of programs, as traps and handlers of signals leave them.

use core::mem::offset_of;

use ptarmigan::format::Format as _;

use crate::arch::registers::{
    CHECKS_INSTRUCTION, FRESH_SEGMENTS, Format, GENERAL, SEGMENTS, USER_CODE, USER_DATA, VECTORS,
};

/// Floating point and vectors, as `fxsave` has them.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Vectors(pub [u8; 512]);

/// The registers of a program that does not run. The assembly knows the layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers {
    /// Segments that are the program's own.
    pub segments: [usize; SEGMENTS],
    /// Registers, in the order of the architecture's.
    pub general: [usize; GENERAL],
    /// The vector of the trap.
    pub vector: usize,
    /// Its error code, or the number of the system call.
    pub error: usize,
    /// The next instruction.
    pub ip: usize,
    cs: usize,
    /// Flags.
    pub flags: usize,
    /// The stack pointer.
    pub sp: usize,
    ss: usize,
    /// Floating point and vectors.
    pub vectors: Vectors,
    /// The processor's report of the last trap that was answered with a signal: the vector, the
    /// error code, the address of the last access.
    pub trap: [usize; 3],
    /// The base of the thread's memory.
    pub thread: usize,
}

const _: () = assert!(offset_of!(Registers, vectors) == VECTORS);

/// Flags that programs may set: arithmetic, direction, trap, alignment checks, identification.
const USER_FLAGS: usize = 0x24_0dd5;
/// Interrupts are on in programs.
const INTERRUPTS: usize = 0x202;
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
        segments: FRESH_SEGMENTS,
        general: [0; GENERAL],
        vector: 0,
        error: 0,
        ip: 0,
        cs: USER_CODE,
        flags: INTERRUPTS,
        sp: 0,
        ss: USER_DATA,
        vectors: Vectors(fresh_vectors()),
        trap: [0; 3],
        thread: 0,
    };

    /// Sets flags, as far as programs may.
    pub fn set_flags(&mut self, flags: usize) {
        self.flags = flags & USER_FLAGS | INTERRUPTS;
    }

    /// Sets the next instruction. A place to which the CPU could not return becomes 0, where no
    /// page is mapped.
    pub fn set_instruction(&mut self, at: usize) {
        self.ip = if CHECKS_INSTRUCTION && at as u64 >= Format::USER_END { 0 } else { at };
    }

    /// Sets floating point and vectors to a program's values.
    pub fn set_vectors(&mut self, bytes: &[u8; 512]) {
        let mxcsr = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) & MXCSR;
        self.vectors = Vectors(*bytes);
        self.vectors.0[24..28].copy_from_slice(&mxcsr.to_le_bytes());
    }
}
