//! RISC-V machines with OpenSBI: the direct map that all images here use, the device tree, calls
//! into the firmware, and the devices of QEMU's `virt`.

pub mod direct;
pub mod fdt;
#[cfg(target_arch = "riscv64")]
pub mod sbi;
#[cfg(target_arch = "riscv64")]
pub mod virt;
