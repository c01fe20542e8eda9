//! The smallest kernel on the library, for x86-64, RISC-V and AArch64: one CPU, which is user and
//! kernel at once. [`library`] is all that it has to say to the library; the architecture's
//! directory is boot code, exceptions and the serial line.
#![no_std]
#![no_main]

#[cfg_attr(target_arch = "x86_64", path = "x86_64/mod.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64/mod.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/mod.rs")]
mod arch;
mod library;
mod user;

use ptarmigan::frames::MemoryRun;
use ptarmigan_kernel_base::{pass, say};

ptarmigan_kernel_base::panic_handler!();

/// Comes from the architecture's boot code: `memory` is free, and `kernel_root` the physical
/// address of the root that is loaded, which maps the kernel; on AArch64 of an empty one, as the
/// kernel has another.
fn start(memory: &[MemoryRun], kernel_root: u64) -> ! {
    let frames: u32 = memory.iter().map(|run| run.frames).sum();
    say!("{}, {frames} frames of memory", arch::NAME);
    let Ok(()) = library::run(memory, kernel_root);
    pass()
}
