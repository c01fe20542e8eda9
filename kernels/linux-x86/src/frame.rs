//! The frame of a signal on a program's stack, as Linux has it (`struct rt_sigframe`), for handlers
//! of both kinds.

use ptarmigan_kernel::arch::SIGNAL_FRAME;
use ptarmigan_kernel::signal::action::Left;
use ptarmigan_kernel::signal::info::INFO_BYTES;
use ptarmigan_kernel::signal::{Delivery, SignalStack};

use crate::arch::registers::{ABI, HANDLER, RED_ZONE, RESULT, STACK_ARGUMENTS};
use crate::arch::sigcontext::{
    CONTEXT_WORDS, FIRST_GENERAL, FLAGS, INSTRUCTION, ORDER, STACK_POINTER, context, taken,
};
use crate::registers::Registers;

const WORD: usize = size_of::<usize>();
/// Where parts of the frame are: the return address and the arguments, `ucontext`, in it the
/// registers (`struct sigcontext`) and the mask, then `siginfo`, then floating point and vectors.
const UCONTEXT: usize = WORD * (1 + STACK_ARGUMENTS);
/// The stack for handlers.
const STACK: usize = UCONTEXT + 2 * WORD;
const REGISTERS: usize = UCONTEXT + 5 * WORD;
const MASK: usize = REGISTERS + CONTEXT_WORDS * WORD;
const SIGINFO: usize = MASK + 8;
/// Aligned to 16 in memory: the frame begins a word below a multiple of 16.
const VECTORS: usize = SIGINFO + 128;
/// Bytes of the frame.
const BYTES: usize = VECTORS + 512;
const _: () = assert!(BYTES <= SIGNAL_FRAME && VECTORS % 16 == WORD);

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: &[u8; N]) {
    if let Some(place) = bytes.get_mut(at..at + N) {
        place.copy_from_slice(value);
    }
}

fn put_words(bytes: &mut [u8], at: usize, words: &[usize]) {
    for (i, word) in words.iter().enumerate() {
        put(bytes, at + i * WORD, &word.to_le_bytes());
    }
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|found| found.try_into().ok()).unwrap_or([0; N])
}

fn get_word(bytes: &[u8], at: usize) -> usize {
    usize::from_le_bytes(get(bytes, at))
}

/// Has the registers enter a handler; returns where the frame lies, and its length.
pub fn enter(registers: &mut Registers, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
    let top = delivery.top.map_or(registers.sp.wrapping_sub(RED_ZONE), |top| top as usize);
    let at = (top.wrapping_sub(BYTES) & !15).wrapping_sub(WORD);
    let arguments = [usize::from(delivery.signal), at.wrapping_add(SIGINFO), at.wrapping_add(UCONTEXT)];
    put_words(bytes, 0, &[delivery.action.restorer as usize]);
    put_words(bytes, WORD, &arguments[..STACK_ARGUMENTS]);
    let stack = &delivery.stack;
    put_words(bytes, STACK, &[stack.at as usize, stack.flags as usize, stack.size as usize]);
    put_words(bytes, REGISTERS, &context(registers, at.wrapping_add(VECTORS), delivery.mask as usize));
    put(bytes, MASK, &delivery.mask.to_le_bytes());
    put::<INFO_BYTES>(bytes, SIGINFO, &delivery.info.bytes(ABI, delivery.signal));
    put(bytes, VECTORS, &registers.vectors.0);
    registers.set_instruction(delivery.action.handler as usize);
    registers.sp = at;
    registers.set_flags(0);
    registers.general[RESULT] = 0;
    for (place, argument) in HANDLER.iter().zip(arguments) {
        registers.general[*place] = argument;
    }
    (at as u64, BYTES)
}

/// Returns where the frame lies that a handler has left, and its length.
pub fn of_handler(registers: &Registers) -> (u64, usize) {
    (registers.sp.wrapping_sub(taken(registers)) as u64, BYTES)
}

/// Takes the registers from a frame; returns the mask of signals and the stack for handlers.
/// Segments stay as they are.
pub fn leave(registers: &mut Registers, bytes: &[u8]) -> Left {
    let register = |word| get_word(bytes, REGISTERS + WORD * word);
    for (i, place) in ORDER.iter().enumerate() {
        registers.general[*place] = register(FIRST_GENERAL + i);
    }
    registers.sp = register(STACK_POINTER);
    registers.set_instruction(register(INSTRUCTION));
    registers.set_flags(register(FLAGS));
    if bytes.len() >= BYTES {
        registers.set_vectors(&get(bytes, VECTORS));
    }
    let [at, flags, size] = [0, 1, 2].map(|word| get_word(bytes, STACK + WORD * word));
    let stack = SignalStack { at: at as u64, flags: flags as u32, size: size as u64 };
    Left { mask: u64::from_le_bytes(get(bytes, MASK)), stack }
}
