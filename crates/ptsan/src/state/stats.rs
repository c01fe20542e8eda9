//! Counts of the work done.

/// Work done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Hooks called, each CPU of [`crate::Sanitizer::flush_everywhere`] counted.
    pub hooks: u64,
    /// Moments at which the adversary did something.
    pub adversary_steps: u64,
    /// Time spent in hooks, if [`crate::Config::timed`] is set.
    pub nanoseconds: u64,
    /// Accesses translated, with or without success.
    pub translations: u64,
    /// Of these, those that the TLB answered.
    pub tlb_hits: u64,
    /// Walks of the tables, probes included.
    pub walks: u64,
    /// Of these, those that began at a cached paging-structure entry.
    pub structure_hits: u64,
    /// Flushes that CPUs owed beyond [`crate::Config::debts`], which were not checked.
    pub debts_dropped: u64,
    /// Flushes of spaces that nobody had loaded or announced. They are legal, and may show that a
    /// hook is given wrong numbers.
    pub unknown_spaces_flushed: u64,
    /// Faults on cached entries that memory contradicts. They are legal: the handler retries.
    pub spurious_faults: u64,
}
