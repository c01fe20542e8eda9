//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=flush`). A run in which something is left out must fail, but for ASIDs: a kernel works
//! without, as long as it fences when it changes roots.

ptarmigan_kernel_base::negative_controls! {
    /// Harts do not flush.
    Flush = "flush",
    /// Software interrupts are not sent.
    Ipi = "ipi",
    /// The interrupt's handler answers without a flush.
    Remote = "remote",
    /// All spaces have the kernel's number, 0.
    Asids = "asids",
    /// The fences when a space's root is loaded.
    LoadFence = "load-fence",
    /// The fence when the kernel's root is loaded.
    UnloadFence = "unload-fence",
    /// The size in an entry of a group of pages.
    Size = "size",
    /// The frame in an entry that was of a group of pages.
    Unfold = "unfold",
}
