//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=tlbie`). A run in which something is left out must fail.

use ptarmigan_kernel_base::{machine, without};

use crate::mmu;

/// A part that can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// Pages of spaces are removed from the hash table, and TLBs keep them.
    Tlbie = 2,
    /// TLBs forget pages of spaces, and the hash table keeps them.
    Remove,
    /// As `Tlbie`, for pages of the kernel's half.
    KernelTlbie,
    /// As `Remove`, for pages of the kernel's half.
    KernelRemove,
    /// Pages are put into the hash table without noting it in the software's entry.
    Bit,
}

/// Names of parts, in the order of their numbers: first those of the machine.
const PARTS: [&str; 7] = ["clear", "copy", "tlbie", "remove", "kernel-tlbie", "kernel-remove", "bit"];
const _: () = assert!(machine::CLEAR == 0 && machine::COPY == 1);

/// Where the boot arguments are put. There is no firmware to hand them over.
const ARGUMENTS: u64 = 0x8000;

/// The boot arguments, up to the first zero.
pub fn arguments() -> &'static str {
    // SAFETY: 1. Memory between the vectors and the image, which is never written to.
    unsafe { without::arguments(mmu::direct(ARGUMENTS)) }
}

/// Reads the boot arguments; false if they name something that is not known.
pub fn read(arguments: &str) -> bool {
    arguments.split_ascii_whitespace().all(|word| word.starts_with("without="))
        && without::read(arguments, &PARTS)
}

/// Whether `part` is left out.
pub fn leaves_out(part: Part) -> bool {
    without::leaves_out(part as u32)
}
