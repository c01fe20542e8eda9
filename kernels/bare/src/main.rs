//! The library on the MMU of a board, without Linux programs. Each architecture has a directory.
//!
//! | directory | CPUs | MMU |
//! | --- | --- | --- |
//! | `aarch64` | several | a tree for user and kernel each, broadcast invalidations |
//! | `riscv64` | several | one tree, shootdowns by interrupt |
//! | `loongarch64` | one | a TLB that a handler of misses fills |
//! | `ppc32` | one | a hash table that handlers of faults fill |
//! | `x86_64` | one | the library's trees alone, without programs |
//!
//! The first four run a [program](cpus) with page faults, fork and copy-on-write. QEMU keeps stale
//! translations as hardware does, so the program notices a flush that is missing.
#![no_std]
#![no_main]

#[cfg_attr(target_arch = "aarch64", path = "aarch64/mod.rs")]
#[cfg_attr(target_arch = "loongarch64", path = "loongarch64/mod.rs")]
#[cfg_attr(target_arch = "powerpc", path = "ppc32/mod.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64/mod.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64/mod.rs")]
mod arch;
#[cfg(not(target_arch = "x86_64"))]
#[cfg_attr(any(target_arch = "aarch64", target_arch = "riscv64"), path = "several_cpus.rs")]
#[cfg_attr(any(target_arch = "loongarch64", target_arch = "powerpc"), path = "one_cpu.rs")]
mod cpus;
#[cfg(not(target_arch = "x86_64"))]
mod machine;
#[cfg(any(target_arch = "loongarch64", target_arch = "powerpc"))]
mod serial;

ptarmigan_kernel_base::panic_handler!();
