//! The program that runs in user mode: it maps, touches, forks and unmaps memory, and checks the
//! content. It knows only the kernel's calls. With several CPUs it runs wherever it is mapped, with
//! one where it is linked.
#![no_std]
#![no_main]

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "loongarch64", path = "loongarch64.rs")]
#[cfg_attr(target_arch = "powerpc", path = "ppc32.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64.rs")]
mod arch;
mod common;
#[cfg_attr(any(target_arch = "aarch64", target_arch = "riscv64"), path = "two_cpus.rs")]
#[cfg_attr(any(target_arch = "loongarch64", target_arch = "powerpc"), path = "one_cpu.rs")]
mod cpus;

#[allow(dead_code, reason = "a program uses some of the calls")]
mod abi {
    /// A register.
    #[cfg(target_pointer_width = "64")]
    pub type Word = u64;
    /// A register.
    #[cfg(target_pointer_width = "32")]
    pub type Word = u32;

    include!("../../base/user/abi.rs");
}
