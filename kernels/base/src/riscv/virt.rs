//! QEMU's `virt`: the serial port, polled, and the device that ends the machine. The direct map
//! reaches both.

use core::ptr;

use crate::board::{BoardOutput, forever};
use crate::direct::direct;

const DATA: u64 = 0x1000_0000;
const STATUS: u64 = DATA + 5;
const READY: u8 = 0x20;
/// A byte was typed.
const TYPED: u8 = 1;
/// Bytes wait in a queue.
const QUEUE: u64 = DATA + 2;
/// The register of the Goldfish clock that has the lower half of the nanoseconds since 1970. A read
/// keeps the upper half in the register behind it.
const NANOSECONDS: u64 = 0x10_1000;
const FINISHER: u64 = 0x10_0000;
const PASS: u32 = 0x5555;
/// QEMU's exit status is the upper half.
const FAIL: u32 = 1 << 16 | 0x3333;

/// The board of an image that has the direct map.
pub static VIRT: BoardOutput = BoardOutput { put, exit };

fn put(byte: u8) {
    // SAFETY: registers of the machine's 16550, which the direct map reaches; they touch no memory.
    unsafe {
        while ptr::read_volatile(direct::<u8>(STATUS)) & READY == 0 {}
        ptr::write_volatile(direct::<u8>(DATA), byte);
    }
}

/// Has the port keep bytes that are typed.
pub fn listen() {
    // SAFETY: a register of the machine's 16550; it touches no memory.
    unsafe { ptr::write_volatile(direct::<u8>(QUEUE), 1) };
}

/// Takes a byte that was typed.
pub fn typed() -> Option<u8> {
    // SAFETY: registers of the machine's 16550; they touch no memory.
    unsafe {
        let is_typed = ptr::read_volatile(direct::<u8>(STATUS)) & TYPED != 0;
        is_typed.then(|| ptr::read_volatile(direct::<u8>(DATA)))
    }
}

/// Returns the seconds since 1970 by the board's clock.
pub fn seconds() -> u64 {
    // SAFETY: registers of the machine's clock, which the direct map reaches; they touch no memory.
    let (low, high) = unsafe {
        let low = ptr::read_volatile(direct::<u32>(NANOSECONDS));
        (low, ptr::read_volatile(direct::<u32>(NANOSECONDS + 4)))
    };
    (u64::from(high) << 32 | u64::from(low)) / 1_000_000_000
}

fn exit(passed: bool) -> ! {
    let word = if passed { PASS } else { FAIL };
    // SAFETY: the register of the machine's test finisher, which the direct map reaches.
    unsafe { ptr::write_volatile(direct::<u32>(FINISHER), word) };
    forever()
}
