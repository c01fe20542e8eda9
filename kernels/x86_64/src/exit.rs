//! Ports, and leaving the machine through QEMU's isa-debug-exit device.

use core::arch::asm;

/// Writes a byte to an I/O port.
///
/// # Safety
///
/// The caller must accept the effect on the device behind the port.
pub unsafe fn outb(port: u16, value: u8) {
    // SAFETY: the caller answers for the device; the instruction touches neither memory nor stack.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

/// Reads a byte from an I/O port.
///
/// # Safety
///
/// Reading has no effect on the device that the caller does not want.
pub unsafe fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as for `outb`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// How it ended. QEMU exits with 2 * value + 1.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Outcome {
    /// Exit status 33.
    Pass = 0x10,
    /// Exit status 35.
    Fail = 0x11,
}

/// Ends the machine.
pub fn exit(outcome: Outcome) -> ! {
    // SAFETY: the port belongs to isa-debug-exit, or to nobody.
    unsafe { outb(0xf4, outcome as u8) };
    loop {
        // SAFETY: interrupts are never enabled, so this stops the CPU, which is all that is left to
        // do.
        unsafe { asm!("hlt", options(nomem, nostack)) };
    }
}
