//! The serial port, polled, and the device that ends the machine.

use core::fmt::{self, Write};
use core::ptr;

use crate::direct::direct;
use crate::lock::Lock;

const DATA: u64 = 0x1000_0000;
const STATUS: u64 = DATA + 5;
const READY: u8 = 0x20;
const FINISHER: u64 = 0x10_0000;

struct Serial;

static PORT: Lock<Serial> = Lock::new(Serial);

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: registers of the machine's 16550, which the direct map reaches; they touch no
            // memory.
            unsafe {
                while ptr::read_volatile(direct::<u8>(STATUS)) & READY == 0 {}
                ptr::write_volatile(direct::<u8>(DATA), byte);
            }
        }
        Ok(())
    }
}

/// Prints a line as a whole.
pub fn line(text: fmt::Arguments<'_>) {
    let mut port = PORT.lock();
    // The port cannot fail.
    let _ = port.write_fmt(text);
    let _ = port.write_str("\n");
}

/// Prints a line although the port may be in use: the machine is about to end.
pub fn last_line(text: fmt::Arguments<'_>) {
    let _ = Serial.write_fmt(text);
    let _ = Serial.write_str("\n");
}

/// Prints a line on the serial port.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::serial::line(::core::format_args!($($argument)*)) };
}

/// How the run ended: QEMU's exit status is 0 or 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every check held.
    Pass,
    /// One did not.
    Fail,
}

/// Ends the machine.
pub fn exit(outcome: Outcome) -> ! {
    let word: u32 = if outcome == Outcome::Pass { 0x5555 } else { 1 << 16 | 0x3333 };
    // SAFETY: the register of the machine's test finisher, which the direct map reaches.
    unsafe { ptr::write_volatile(direct::<u32>(FINISHER), word) };
    loop {
        core::hint::spin_loop();
    }
}
