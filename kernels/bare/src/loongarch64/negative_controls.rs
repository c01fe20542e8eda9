//! Negative controls: parts that the kernel leaves out on purpose, by boot argument
//! (`without=flush`). A run in which something is left out must fail, but for ASIDs: a kernel works
//! without, as long as the CPU forgets the space before when it loads another one.

ptarmigan_kernel_base::negative_controls! {
    /// The CPU keeps pages of spaces.
    Flush = "flush",
    /// The TLB keeps entries that were not valid or not dirty when they became so.
    Valid = "valid",
    /// The refill goes on where a directory is empty.
    Test = "test",
    /// All spaces have the kernel's number, 0.
    Asids = "asids",
    /// The CPU keeps what it knows of the space before when it loads another one.
    Load = "load",
}
