//! The registers of programs.

use ptarmigan_kernel::arch::{Context, SIGNAL_FRAME};
use ptarmigan_kernel::signal::Delivery;

use crate::cpu::{USER_CODE, USER_DATA, USER_THREAD};
use crate::frame;

/// The registers of a program that does not run. The assembly knows the layout.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Registers {
    gs: u32,
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
    thread: u32,
}

const _: () = assert!(core::mem::offset_of!(Registers, vectors) == 80);
const _: () = assert!(core::mem::offset_of!(Registers, ss) + 4 == 76);

/// Places in [`Registers::general`].
pub const EAX: usize = 7;
/// The place of ecx.
pub const ECX: usize = 6;
/// The place of edx.
pub const EDX: usize = 5;
const EBX: usize = 4;
const EBP: usize = 2;
const ESI: usize = 1;
const EDI: usize = 0;
/// Flags that programs may set: arithmetic, direction, trap, alignment checks, identification.
const USER_FLAGS: u32 = 0x24_0dd5;
/// Interrupts are on in programs.
const INTERRUPTS: u32 = 0x202;
/// Bits of MXCSR that there are.
const MXCSR: u32 = 0xffff;
/// `sigreturn`, which has taken the signal's number off the stack; `rt_sigreturn` has not.
const OLD_RETURN: u32 = 119;

const fn fresh_vectors() -> [u8; 512] {
    let mut all = [0; 512];
    // FCW 0x37f, MXCSR 0x1f80: all exceptions masked.
    (all[0], all[1], all[24], all[25]) = (0x7f, 0x03, 0x80, 0x1f);
    all
}

impl Registers {
    /// Sets flags, as far as programs may.
    pub fn set_flags(&mut self, flags: u32) {
        self.eflags = flags & USER_FLAGS | INTERRUPTS;
    }

    /// Sets floating point and vectors to what a program wrote.
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

impl Context for Registers {
    const NEW: Self = Registers {
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
        thread: 0,
    };

    fn start(&mut self, entry: u64, stack: u64) {
        (self.eip, self.esp) = (entry as u32, stack as u32);
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        self.error.into()
    }

    #[inline(always)]
    fn argument(&self, n: usize) -> u64 {
        const PLACES: [usize; 6] = [EBX, ECX, EDX, ESI, EDI, EBP];
        PLACES.get(n).map_or(0, |place| self.general[*place].into())
    }

    #[inline(always)]
    fn set_result(&mut self, value: u64) {
        self.general[EAX] = value as u32;
    }

    fn repeat_call(&mut self) {
        self.general[EAX] = self.error;
        // `int 0x80` has two bytes.
        self.eip = self.eip.wrapping_sub(2);
    }

    fn stack(&self) -> u64 {
        self.esp.into()
    }

    fn set_stack(&mut self, at: u64) {
        self.esp = at as u32;
    }

    fn instruction(&self) -> u64 {
        self.eip.into()
    }

    fn skip(&mut self, bytes: u64) {
        self.eip = self.eip.wrapping_add(bytes as u32);
    }

    fn port_write(&self, bytes: &[u8]) -> Option<(u16, u8, u64)> {
        let value = self.general[EAX] as u8;
        match bytes {
            [0xee, ..] => Some((self.general[EDX] as u16, value, 1)),
            [0xe6, port, ..] => Some((u16::from(*port), value, 2)),
            _ => None,
        }
    }

    fn set_thread(&mut self, at: u64) -> bool {
        self.thread = at as u32;
        // The program loads the segment itself; a child of `clone` has it loaded already.
        if self.gs != 0 {
            self.gs = USER_THREAD;
        }
        true
    }

    fn thread(&self) -> u64 {
        self.thread.into()
    }

    fn enter_handler(&mut self, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
        frame::enter(self, delivery, bytes)
    }

    fn handler_frame(&self) -> (u64, usize) {
        // `ret` has taken the return address.
        let taken = if self.error == OLD_RETURN { 8 } else { 4 };
        (self.esp.wrapping_sub(taken).into(), frame::BYTES)
    }

    fn leave_handler(&mut self, bytes: &[u8]) -> u64 {
        frame::leave(self, bytes)
    }
}
