//! The serial port of boards without firmware, polled, and the register that ends the machine.

use core::ptr;

use ptarmigan_kernel_base::board::{BoardOutput, forever};

use crate::arch::{DATA, END, ENDS};

const STATUS: usize = DATA + 5;
const READY: u8 = 0x20;

/// The board.
pub static BOARD: BoardOutput = BoardOutput { put, exit };

fn register(at: usize) -> *mut u8 {
    ptr::with_exposed_provenance_mut(at)
}

fn put(byte: u8) {
    // SAFETY: registers of the machine's 16550, which the kernel's half shows; they touch no
    // memory.
    unsafe {
        while ptr::read_volatile(register(STATUS)) & READY == 0 {}
        ptr::write_volatile(register(DATA), byte);
    }
}

/// Ends the machine. It has no exit status: the line that was printed last has the result.
fn exit(_: bool) -> ! {
    // SAFETY: a register of the board, which the kernel's half shows.
    unsafe { ptr::write_volatile(register(END), ENDS) };
    forever()
}
