//! The serial port, polled, and the device that ends the machine.

use core::fmt::{self, Write};
use core::ptr;

use crate::mmu::DEVICES;

const DATA: u32 = DEVICES + 0x3f8;
const STATUS: u32 = DATA + 5;
const READY: u8 = 0x20;
/// The keyboard controller's port for commands, and the one that resets the machine.
const KEYBOARD: u32 = DEVICES + 0x64;
const RESET: u8 = 0xfe;

struct Serial;

fn register(at: u32) -> *mut u8 {
    ptr::with_exposed_provenance_mut(at as usize)
}

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: registers of the machine's 16550, which the kernel's half shows; they touch
            // no memory.
            unsafe {
                while ptr::read_volatile(register(STATUS)) & READY == 0 {}
                ptr::write_volatile(register(DATA), byte);
            }
        }
        Ok(())
    }
}

/// Prints a line.
pub fn line(text: fmt::Arguments<'_>) {
    // The port cannot fail.
    let _ = Serial.write_fmt(text);
    let _ = Serial.write_str("\n");
}

/// Prints a line on the serial port.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::serial::line(::core::format_args!($($argument)*)) };
}

/// Ends the machine. It has no status to give: what was printed last tells.
pub fn end() -> ! {
    // SAFETY: the register of the machine's keyboard controller, which the kernel's half shows.
    unsafe { ptr::write_volatile(register(KEYBOARD), RESET) };
    loop {
        core::hint::spin_loop();
    }
}
