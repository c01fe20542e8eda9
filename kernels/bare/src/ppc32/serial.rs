//! The serial port, polled, and the device that ends the machine.

use core::ptr;

use ptarmigan_kernel_base::board::{BoardOutput, forever};

use super::mmu::DEVICES;

const DATA: u32 = DEVICES + 0x3f8;
const STATUS: u32 = DATA + 5;
const READY: u8 = 0x20;
/// The keyboard controller's port for commands, and the one that resets the machine.
const KEYBOARD: u32 = DEVICES + 0x64;
const RESET: u8 = 0xfe;

/// The board.
pub static BOARD: BoardOutput = BoardOutput { put, exit };

fn register(at: u32) -> *mut u8 {
    ptr::with_exposed_provenance_mut(at as usize)
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
    // SAFETY: the register of the machine's keyboard controller, which the kernel's half shows.
    unsafe { ptr::write_volatile(register(KEYBOARD), RESET) };
    forever()
}
