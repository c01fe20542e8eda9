//! The first serial port, polled in both directions.

use ptarmigan_kernel_base::BoardOutput;

use crate::port;

const PORT: u16 = 0x3f8;
const STATUS: u16 = PORT + 5;
/// Status bit: a byte has come.
const RECEIVED: u8 = 1;
/// Status bit: a byte can be sent.
const READY: u8 = 0x20;

/// The console and the exit of a PC. QEMU's exit status is 33 or 35.
pub static PC: BoardOutput = BoardOutput { put, exit: |passed| port::exit(if passed { 0x10 } else { 0x11 }) };

/// Turns the port's queues on, so that bytes typed between two looks are not lost.
pub fn init() {
    // SAFETY: 1. Registers of the serial port: no interrupts, queues on and empty.
    unsafe {
        port::write(PORT + 1, 0);
        port::write(PORT + 2, 0x07);
    }
}

/// Sends a byte.
pub fn put(byte: u8) {
    // SAFETY: 1. Registers of the serial port; reading its status has no effect.
    unsafe {
        while port::read(STATUS) & READY == 0 {}
        port::write(PORT, byte);
    }
}

/// Takes a byte that has come.
pub fn take() -> Option<u8> {
    // SAFETY: 1. Registers of the serial port; the byte is read only if there is one, to be taken.
    unsafe { (port::read(STATUS) & RECEIVED != 0).then(|| port::read(PORT)) }
}
