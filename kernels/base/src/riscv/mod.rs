//! RISC-V machines with OpenSBI: interrupts, calls into the firmware, and the devices of QEMU's
//! `virt`.

pub mod irq;
pub mod sbi;
pub mod virt;
