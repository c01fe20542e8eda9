//! Ports.

use core::arch::asm;

/// Writes a byte to a port.
///
/// # Safety
///
/// 1. The caller must accept the effect on the device behind the port.
pub unsafe fn write(port: u16, value: u8) {
    // SAFETY: 1. The instruction touches neither memory nor stack; the caller answers for the
    // device (point 1).
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) };
}

/// Reads a byte from a port.
///
/// # Safety
///
/// 1. Reading has no effect on the device that the caller does not want.
pub unsafe fn read(port: u16) -> u8 {
    let value;
    // SAFETY: 1. As for `write`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Ends the machine through QEMU's isa-debug-exit device at port 0xf4: QEMU's exit status is 2 *
/// `status` + 1. The CPU stops if there is no such device.
pub fn exit(status: u8) -> ! {
    // SAFETY: 1. The port belongs to the exit device, or to nobody.
    unsafe { write(0xf4, status) };
    loop {
        // SAFETY: 1. Stopping the CPU, interrupts masked, is all that is left to do.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Masks all interrupts of the two 8259 controllers, which the kernel does not use.
pub fn mask_old_controllers() {
    // SAFETY: 1. These are the mask registers of the two controllers.
    unsafe {
        write(0x21, 0xff);
        write(0xa1, 0xff);
    }
}
