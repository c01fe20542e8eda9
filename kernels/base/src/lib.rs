//! Shared by images of several architectures: lines on the serial port, ends of runs, parts that
//! are left out on purpose, programs in the image with their tasks and spaces, a spin lock, device
//! trees; what images with several CPUs have in common, and the boards of RISC-V and AArch64.
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(target_arch = "aarch64")]
pub mod aarch64;
pub mod board;
#[cfg(any(
    target_arch = "aarch64",
    target_arch = "loongarch64",
    target_arch = "powerpc",
    target_arch = "riscv64"
))]
pub mod direct;
pub mod fdt;
pub mod lock;
pub mod machine;
pub mod negative_controls;
pub mod once_cell;
pub mod program;
pub mod raw;
#[cfg(target_arch = "riscv64")]
pub mod riscv;
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
pub mod smp;
pub mod tasks;
pub mod user;

pub use board::{BoardOutput, Failed, fail, fail_if, must, pass};

/// Returns the little-endian number of 2, 4 or 8 bytes at `at`; `None` if the bytes end before it.
#[inline]
pub fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let rest = bytes.get(at..)?;
    Some(match size {
        2 => u16::from_le_bytes(*rest.first_chunk()?).into(),
        4 => u32::from_le_bytes(*rest.first_chunk()?).into(),
        _ => u64::from_le_bytes(*rest.first_chunk()?),
    })
}
