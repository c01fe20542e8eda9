//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=tlbie`). A run in which something is left out must fail.

use ptarmigan_kernel_base::negative_controls;

use crate::mmu;

ptarmigan_kernel_base::negative_controls! {
    /// Pages of spaces are removed from the hash table, and TLBs keep them.
    Tlbie = "tlbie",
    /// TLBs forget pages of spaces, and the hash table keeps them.
    Remove = "remove",
    /// As `Tlbie`, for pages of the kernel's half.
    KernelTlbie = "kernel-tlbie",
    /// As `Remove`, for pages of the kernel's half.
    KernelRemove = "kernel-remove",
    /// Pages are put into the hash table without noting it in the software's entry.
    Bit = "bit",
}

/// Where the boot arguments are put. There is no firmware to hand them over.
const ARGUMENTS: u64 = 0x8000;

/// The boot arguments, up to the first zero.
pub fn arguments() -> &'static str {
    // SAFETY: 1. Memory between the vectors and the image, which is never written to.
    unsafe { negative_controls::arguments(mmu::direct(ARGUMENTS)) }
}

/// Reads the boot arguments; false if they name something that is not known.
pub fn read_all(arguments: &str) -> bool {
    arguments.split_ascii_whitespace().all(|word| word.starts_with("without=")) && read(arguments)
}
