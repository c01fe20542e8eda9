//! QEMU's board `virt` with AArch64 CPUs at EL1: serial port and exit, interrupt controller, timer,
//! calls into the firmware, traps, the tables that a kernel boots on. An image takes the assembly
//! of its entry (`boot.s`) and of traps (`trap.s`) from here.

use core::arch::global_asm;

pub mod clock;
pub mod irq;
pub mod memory;
pub mod psci;
pub mod trap;
pub mod virt;

global_asm!(include_str!("boot_tables.s"));
