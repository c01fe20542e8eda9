//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=flush`). A run in which something is left out must fail, but for ASIDs: a kernel works
//! without, as long as CPUs forget the space before when they load another one.
//!
//! QEMU walks tables as they are in memory, keeps no entry that denies an access, and has no caches
//! of links: what is wrong without barriers, without breaks, or without forgetting these, the
//! sanitizer finds (`crates/ptarmigan-ptsan/tests`).

ptarmigan_kernel_base::negative_controls! {
    /// CPUs keep pages of spaces.
    Flush = "flush",
    /// CPUs keep pages of the kernel's half.
    KernelFlush = "kernel-flush",
    /// Invalidations stay on the CPU that makes them.
    Remote = "remote",
    /// Interrupts are not sent.
    Ipi = "ipi",
    /// All spaces have the kernel's number, 0.
    Asids = "asids",
    /// CPUs keep what they know of the space before when they load another one.
    Load = "load",
    /// The frame in an entry that was of a group of pages.
    Unfold = "unfold",
}
