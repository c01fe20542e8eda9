//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=tlbie`). A run in which something is left out must fail.

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
