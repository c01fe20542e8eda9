//! QEMU's board `virt` with AArch64 CPUs at EL1: serial port and exit, interrupt controller, timer,
//! calls into the firmware.

pub mod clock;
pub mod irq;
pub mod psci;
pub mod virt;
