//! The places of registers in `struct sigcontext` of Linux.

use super::registers::RESULT;
use crate::registers::Registers;

/// Words of `struct sigcontext`.
pub const CONTEXT_WORDS: usize = 32;
/// The first of them that is a general register.
pub const FIRST_GENERAL: usize = 0;
/// Places of those in [`Registers::general`]: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx.
pub const ORDER: [usize; 15] = [9, 8, 7, 6, 3, 2, 1, 0, 14, 13, 4, 5, 12, RESULT, 11];
/// The word of the stack pointer.
pub const STACK_POINTER: usize = 15;
/// The word of the next instruction.
pub const INSTRUCTION: usize = 16;
/// The word of the flags.
pub const FLAGS: usize = 17;

/// Returns the words of `struct sigcontext` that have a value.
pub fn context(registers: &Registers, vectors: usize, mask: usize) -> [usize; 24] {
    let [vector, code, address] = registers.trap;
    let (sp, ip, flags) = (registers.sp, registers.ip, registers.flags);
    // The code segment is the number that Linux has.
    let rest = [sp, ip, flags, 0x33, code, vector, mask, address, vectors];
    let (mut words, general) = ([0; 24], ORDER.map(|place| registers.general[place]));
    words.iter_mut().zip(general.into_iter().chain(rest)).for_each(|(word, value)| *word = value);
    words
}

/// Returns the bytes of a frame that a handler has taken off the stack when it returns: `ret` has
/// taken the return address.
pub fn taken(_: &Registers) -> usize {
    8
}
