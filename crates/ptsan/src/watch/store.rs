//! The stores of one instruction.

/// One instruction that stored to watched memory.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// Address of the instruction.
    pub rip: usize,
    /// Physical address of the first byte that faulted: the start of the store, except for
    /// instructions that store backwards.
    pub phys: u64,
    /// The 8-byte words that it changed, sorted by address. Empty if it stored the former value.
    pub changed: &'a [Changed],
}

/// An 8-byte word that a store changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Physical address, a multiple of 8.
    pub phys: u64,
    /// The old content.
    pub old: u64,
    /// The new content.
    pub new: u64,
}
