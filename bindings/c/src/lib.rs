//! Exports the library to kernels in C, as `include/ptarmigan.h` declares it.
//!
//! One configuration for each target: four levels and one direct map on x86-64, AArch64 and RISC-V;
//! PAE, a direct map of low memory and slots for the rest on i386. The C side allocates everything;
//! the functions check all arguments that can be checked cheaply, and return an error for it.
//!
//! `README.md` shows the use from C. The static library is built by `build`.
#![no_std]
#![cfg(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]

mod error;

mod arch;
pub mod attr;
mod hooks;
mod object;

mod config;
mod kmap;
mod machine;
mod states;

mod cpu;
mod lock;

pub mod face;

#[cfg(feature = "panic-handler")]
mod panic;

#[cfg(feature = "yardstick")]
pub mod yardstick;
