//! The frame of a signal on a program's stack, as Linux has it on x86-64 (`struct rt_sigframe`).

use ptarmigan_kernel::arch::{Abi, SIGNAL_FRAME};
use ptarmigan_kernel::signal::action::Left;
use ptarmigan_kernel::signal::info::INFO_BYTES;
use ptarmigan_kernel::signal::{Delivery, SignalStack};

use crate::registers::{RAX, Registers};

/// Where parts of the frame are: the return address, `ucontext`, in it the registers and the mask,
/// then `siginfo`, then floating point and vectors.
const UCONTEXT: usize = 8;
/// The stack for handlers.
const STACK: usize = UCONTEXT + 16;
const REGISTERS: usize = UCONTEXT + 40;
const MASK: usize = REGISTERS + 256;
const SIGINFO: usize = MASK + 8;
/// Aligned to 16 in memory: the frame begins 8 below a multiple of 16.
const VECTORS: usize = SIGINFO + 128;
/// Bytes of the frame.
pub const BYTES: usize = VECTORS + 512;
const _: () = assert!(BYTES <= SIGNAL_FRAME && (VECTORS + 8).is_multiple_of(16));
/// Bytes below the stack pointer of a program that belong to it.
const RED_ZONE: u64 = 128;
/// Places of r8 to rcx in [`Registers::general`], in the order of `struct sigcontext`: r8 to r15,
/// rdi, rsi, rbp, rbx, rdx, rax, rcx.
const ORDER: [usize; 15] = [9, 8, 7, 6, 3, 2, 1, 0, 14, 13, 4, 5, 12, RAX, 11];

fn put(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn get(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Has the registers enter a handler; returns where the frame lies, and its length.
pub fn enter(registers: &mut Registers, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
    let top = delivery.top.unwrap_or(registers.rsp.wrapping_sub(RED_ZONE));
    let at = (top.wrapping_sub(BYTES as u64) & !15).wrapping_sub(8);
    put(bytes, 0, delivery.action.restorer);
    for (i, place) in ORDER.iter().enumerate() {
        put(bytes, REGISTERS + 8 * i, registers.general[*place]);
    }
    put(bytes, REGISTERS + 120, registers.rsp);
    put(bytes, REGISTERS + 128, registers.rip);
    put(bytes, REGISTERS + 136, registers.rflags);
    put(bytes, REGISTERS + 144, 0x33);
    let [vector, code, address] = registers.trap;
    put(bytes, REGISTERS + 152, code);
    put(bytes, REGISTERS + 160, vector);
    put(bytes, REGISTERS + 168, delivery.mask);
    put(bytes, REGISTERS + 176, address);
    put(bytes, REGISTERS + 184, at + VECTORS as u64);
    put(bytes, MASK, delivery.mask);
    for (i, value) in
        [delivery.stack.at, delivery.stack.flags.into(), delivery.stack.size].into_iter().enumerate()
    {
        put(bytes, STACK + 8 * i, value);
    }
    if let Some(place) = bytes.get_mut(SIGINFO..SIGINFO + INFO_BYTES) {
        place.copy_from_slice(&delivery.info.bytes(Abi::X86_64, delivery.signal));
    }
    if let Some(place) = bytes.get_mut(VECTORS..BYTES) {
        place.copy_from_slice(&registers.vectors);
    }
    registers.set_instruction(delivery.action.handler);
    registers.rsp = at;
    registers.set_flags(0);
    registers.general[14] = u64::from(delivery.signal);
    registers.general[13] = at + SIGINFO as u64;
    registers.general[12] = at + UCONTEXT as u64;
    registers.general[RAX] = 0;
    (at, BYTES)
}

/// Takes the registers from a frame; returns the mask of signals and the stack for handlers.
pub fn leave(registers: &mut Registers, bytes: &[u8]) -> Left {
    for (i, place) in ORDER.iter().enumerate() {
        registers.general[*place] = get(bytes, REGISTERS + 8 * i);
    }
    registers.rsp = get(bytes, REGISTERS + 120);
    registers.set_instruction(get(bytes, REGISTERS + 128));
    registers.set_flags(get(bytes, REGISTERS + 136));
    if let Some(Ok(vectors)) = bytes.get(VECTORS..BYTES).map(<&[u8; 512]>::try_from) {
        registers.set_vectors(vectors);
    }
    let flags = get(bytes, STACK + 8) as u32;
    let stack = SignalStack { at: get(bytes, STACK), size: get(bytes, STACK + 16), flags };
    Left { mask: get(bytes, MASK), stack }
}
