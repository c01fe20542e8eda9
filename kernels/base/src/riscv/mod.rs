//! RISC-V machines with OpenSBI: harts, interrupts, traps, calls into the firmware, and the devices
//! of QEMU's `virt`. An image takes the assembly of its entry (`boot.s`) and of traps (`trap.s`)
//! from here.

pub mod harts;
pub mod irq;
pub mod sbi;
pub mod trap;
pub mod virt;
