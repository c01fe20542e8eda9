//! The places of registers in `struct sigcontext` of Linux.

use super::registers::{RESULT, USER_CODE, USER_DATA};
use crate::registers::Registers;

/// Words of `struct sigcontext`.
pub const CONTEXT_WORDS: usize = 22;
/// The first of them that is a general register.
pub const FIRST_GENERAL: usize = 4;
/// Places of those in [`Registers::general`]: edi, esi, ebp, esp, ebx, edx, ecx, eax.
pub const ORDER: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, RESULT];
/// The word of the stack pointer.
pub const STACK_POINTER: usize = 17;
/// The word of the next instruction.
pub const INSTRUCTION: usize = 14;
/// The word of the flags.
pub const FLAGS: usize = 16;
/// `sigreturn`, which has taken the signal's number off the stack; `rt_sigreturn` has not.
const OLD_RETURN: usize = 119;

/// Returns the words of `struct sigcontext`. Segments of data are left out.
pub fn context(registers: &Registers, vectors: usize, mask: usize) -> [usize; CONTEXT_WORDS] {
    let [vector, code, address] = registers.trap;
    let (sp, ip, flags) = (registers.sp, registers.ip, registers.flags);
    let [edi, esi, ebp, _, ebx, edx, ecx, eax] = registers.general;
    let (cs, ss) = (USER_CODE, USER_DATA);
    [
        0, 0, 0, 0, edi, esi, ebp, sp, ebx, edx, ecx, eax, vector, code, ip, cs, flags, sp, ss, vectors,
        mask, address,
    ]
}

/// Returns the bytes of a frame that a handler has taken off the stack when it returns: `ret` has
/// taken the return address.
pub fn taken(registers: &Registers) -> usize {
    if registers.error == OLD_RETURN { 8 } else { 4 }
}
