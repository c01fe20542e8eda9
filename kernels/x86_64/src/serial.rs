//! The first serial port, polled.

use core::fmt;

use crate::exit::{inb, outb};

const PORT: u16 = 0x3f8;
const READY: u8 = 0x20;

/// The port as a text sink.
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: reading the status register and writing to the data register of a serial port
            // touch no memory.
            unsafe {
                while inb(PORT + 5) & READY == 0 {}
                outb(PORT, byte);
            }
        }
        Ok(())
    }
}

/// Prints a line on the serial port.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {{
        // The port cannot fail.
        let _ = ::core::fmt::Write::write_fmt(
            &mut $crate::serial::Serial,
            ::core::format_args!("{}\n", ::core::format_args!($($argument)*)),
        );
    }};
}
