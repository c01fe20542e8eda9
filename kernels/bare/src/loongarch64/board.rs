//! The serial port, polled, and the register that ends the machine.

use core::ptr;

use ptarmigan_kernel_base::board::{BoardOutput, forever};

/// Where devices are reached, not cached.
const DEVICES: usize = 0x8000_0000_0000_0000;
const DATA: usize = DEVICES + 0x1fe0_01e0;
const STATUS: usize = DATA + 5;
const READY: u8 = 0x20;
/// The ACPI sleep register, and a value that ends the machine: sleep state 5, now.
const SLEEP: usize = DEVICES + 0x100e_001c;
const OFF: u8 = 5 << 2 | 1 << 5;

/// The board.
pub static BOARD: BoardOutput = BoardOutput { put, exit };

fn register(at: usize) -> *mut u8 {
    ptr::with_exposed_provenance_mut(at)
}

fn put(byte: u8) {
    // SAFETY: registers of the machine's 16550, which the window shows; they touch no memory.
    unsafe {
        while ptr::read_volatile(register(STATUS)) & READY == 0 {}
        ptr::write_volatile(register(DATA), byte);
    }
}

/// Ends the machine. It has no exit status: the line that was printed last has the result.
fn exit(_: bool) -> ! {
    // SAFETY: a register of the board, which the window shows.
    unsafe { ptr::write_volatile(register(SLEEP), OFF) };
    forever()
}
