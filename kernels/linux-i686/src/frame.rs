//! The frame of a signal on a program's stack, as Linux has it on i386 (`struct rt_sigframe`), for
//! handlers of both kinds.

use ptarmigan_kernel::arch::{Abi, SIGNAL_FRAME};
use ptarmigan_kernel::signal::action::Left;
use ptarmigan_kernel::signal::info::INFO_BYTES;
use ptarmigan_kernel::signal::{Delivery, SignalStack};

use crate::cpu::{USER_CODE, USER_DATA};
use crate::registers::{EAX, ECX, EDX, Registers};

/// Where parts of the frame are: the return address, the three arguments, `ucontext`, in it the
/// registers and the mask, then `siginfo`, then floating point and vectors.
const UCONTEXT: usize = 16;
/// The stack for handlers.
const STACK: usize = UCONTEXT + 8;
const REGISTERS: usize = UCONTEXT + 20;
const MASK: usize = REGISTERS + 88;
const SIGINFO: usize = MASK + 8;
/// Aligned to 16 in memory: the frame begins 4 below a multiple of 16.
const VECTORS: usize = SIGINFO + 128;
/// Bytes of the frame.
pub const BYTES: usize = VECTORS + 512;
const _: () = assert!(BYTES <= SIGNAL_FRAME && (VECTORS + 12).is_multiple_of(16));
/// Words of `struct sigcontext` that are general registers, in the order of [`Registers::general`]:
/// edi, esi, ebp, esp, ebx, edx, ecx, eax.
const FIRST_GENERAL: usize = 4;

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn get(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Has the registers enter a handler; returns where the frame lies, and its length.
pub fn enter(registers: &mut Registers, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
    let top = delivery.top.map_or(registers.esp, |top| top as u32);
    let at = (top.wrapping_sub(BYTES as u32) & !15).wrapping_sub(4);
    put(bytes, 0, delivery.action.restorer as u32);
    put(bytes, 4, delivery.signal.into());
    put(bytes, 8, at.wrapping_add(SIGINFO as u32));
    put(bytes, 12, at.wrapping_add(UCONTEXT as u32));
    for (i, value) in registers.general.iter().enumerate() {
        put(bytes, REGISTERS + 4 * (FIRST_GENERAL + i), *value);
    }
    put(bytes, REGISTERS + 28, registers.esp);
    let [vector, code, address] = registers.trap;
    let rest = [
        vector,
        code,
        registers.eip,
        USER_CODE,
        registers.eflags,
        registers.esp,
        USER_DATA,
        at.wrapping_add(VECTORS as u32),
        delivery.mask as u32,
        address,
    ];
    for (i, value) in rest.iter().enumerate() {
        put(bytes, REGISTERS + 48 + 4 * i, *value);
    }
    put(bytes, MASK, delivery.mask as u32);
    put(bytes, MASK + 4, (delivery.mask >> 32) as u32);
    for (i, value) in
        [delivery.stack.at as u32, delivery.stack.flags, delivery.stack.size as u32].into_iter().enumerate()
    {
        put(bytes, STACK + 4 * i, value);
    }
    if let Some(place) = bytes.get_mut(SIGINFO..SIGINFO + INFO_BYTES) {
        place.copy_from_slice(&delivery.info.bytes(Abi::I386, delivery.signal));
    }
    if let Some(place) = bytes.get_mut(VECTORS..BYTES) {
        place.copy_from_slice(&registers.vectors);
    }
    registers.eip = delivery.action.handler as u32;
    registers.esp = at;
    registers.set_flags(0);
    registers.general[EAX] = delivery.signal.into();
    registers.general[EDX] = at.wrapping_add(SIGINFO as u32);
    registers.general[ECX] = at.wrapping_add(UCONTEXT as u32);
    (at.into(), BYTES)
}

/// Takes the registers from a frame; returns the mask of signals and the stack for handlers.
/// Segments stay as they are.
pub fn leave(registers: &mut Registers, bytes: &[u8]) -> Left {
    for (i, value) in registers.general.iter_mut().enumerate() {
        *value = get(bytes, REGISTERS + 4 * (FIRST_GENERAL + i));
    }
    registers.eip = get(bytes, REGISTERS + 56);
    registers.set_flags(get(bytes, REGISTERS + 64));
    registers.esp = get(bytes, REGISTERS + 68);
    if let Some(Ok(vectors)) = bytes.get(VECTORS..BYTES).map(<&[u8; 512]>::try_from) {
        registers.set_vectors(vectors);
    }
    let stack = SignalStack {
        at: get(bytes, STACK).into(),
        size: get(bytes, STACK + 8).into(),
        flags: get(bytes, STACK + 4),
    };
    Left { mask: u64::from(get(bytes, MASK + 4)) << 32 | u64::from(get(bytes, MASK)), stack }
}
