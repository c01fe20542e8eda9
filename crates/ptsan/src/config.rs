//! What to simulate and how much to keep.
use crate::arch::Arch;

/// What to simulate and how much to keep.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many CPUs there are, at most 65,535.
    pub cpus: usize,
    /// The page-table format.
    pub arch: Arch,
    /// Cached entries are tagged with their address space and survive a switch to another (PCID, ASID).
    ///
    /// A table may then be given back while a CPU that has *another* space loaded holds it: what counts is that it
    /// is flushed before that CPU uses the space again, and a walk that shows it was not is reported.
    pub asids: bool,
    /// Frames may stand at several levels: an entry of the top points at the top itself.
    pub recursive: bool,
    /// When a table is first reached by a walk and nothing told of its linking, report entries in it that equal what
    /// was there at its allocation. Code that clears a table and then happens to write the very same entries
    /// looks the same, so this is off unless asked for.
    pub infer_leftovers: bool,
    /// Whenever an access makes one CPU walk, every other CPU that has the same root loaded, active or lazy, walks
    /// speculatively for the same address. Hardware may; so a test that accesses memory from one CPU finds the
    /// shootdowns that the others miss.
    pub eager_walkers: bool,
    /// How many findings are kept in full; all are counted.
    pub keep: usize,
}

impl Config {
    /// One CPU, no ASIDs, 64 findings kept.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        Self {
            cpus: 1,
            arch,
            asids: false,
            recursive: false,
            infer_leftovers: false,
            eager_walkers: false,
            keep: 64,
        }
    }
}

/// Work done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Accesses translated, with or without success.
    pub translations: u64,
    /// Of these, answered by the TLB.
    pub tlb_hits: u64,
    /// Walks of the tables, probes included.
    pub walks: u64,
    /// Of these, begun at a cached paging-structure entry.
    pub structure_hits: u64,
    /// Faults on cached entries that memory answers otherwise: legal, the handler retries.
    pub spurious_faults: u64,
}
