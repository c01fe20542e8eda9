//! QEMU's `virt`: the serial port, and the call that ends the machine. The direct map reaches the
//! port.

use core::arch::asm;
use core::ptr;

use crate::board::{BoardOutput, forever};
use crate::direct::direct;

/// Registers of the PL011, and its transmitter's being full.
const DATA: u64 = 0x0900_0000;
const FLAGS: u64 = DATA + 0x18;
const LINE: u64 = DATA + 0x2c;
/// The receiver has no byte.
const EMPTY: u32 = 1 << 4;
const FULL: u32 = 1 << 5;
/// Bytes have eight bits, and wait in a queue.
const QUEUE: u32 = 1 << 4 | 3 << 5;
/// The register of the PL031 that has the seconds since 1970.
const SECONDS: u64 = 0x0901_0000;
/// Semihosting: the call that ends the machine, and the reason that has an exit status.
const EXIT: u64 = 0x18;
const APPLICATION_EXIT: u64 = 0x2_0026;

/// Where the board puts the device tree, if the image is no Linux.
pub const DEVICE_TREE: u64 = 0x4000_0000;

/// The board of an image that has the direct map.
pub static VIRT: BoardOutput = BoardOutput { put, exit };

fn put(byte: u8) {
    // SAFETY: registers of the machine's PL011, which the direct map reaches; they touch no memory.
    unsafe {
        while ptr::read_volatile(direct::<u32>(FLAGS)) & FULL != 0 {}
        ptr::write_volatile(direct::<u32>(DATA), byte.into());
    }
}

/// Has the port keep bytes that are typed.
pub fn listen() {
    // SAFETY: a register of the machine's PL011; it touches no memory.
    unsafe { ptr::write_volatile(direct::<u32>(LINE), QUEUE) };
}

/// Takes a byte that was typed.
pub fn typed() -> Option<u8> {
    // SAFETY: registers of the machine's PL011; they touch no memory.
    unsafe {
        let is_empty = ptr::read_volatile(direct::<u32>(FLAGS)) & EMPTY != 0;
        (!is_empty).then(|| ptr::read_volatile(direct::<u32>(DATA)) as u8)
    }
}

/// Returns the seconds since 1970 by the board's clock.
pub fn seconds() -> u64 {
    // SAFETY: a register of the machine's PL031, which the direct map reaches; no memory changes.
    unsafe { ptr::read_volatile(direct::<u32>(SECONDS)) }.into()
}

fn exit(passed: bool) -> ! {
    let block = [APPLICATION_EXIT, u64::from(!passed)];
    // SAFETY: the machine ends.
    unsafe { asm!("hlt #0xf000", in("x0") EXIT, in("x1") &raw const block) };
    forever()
}
