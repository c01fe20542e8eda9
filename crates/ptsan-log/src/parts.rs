//! The parts of records: contents, extents of invalidations, accesses, barriers.

/// The most bytes of a text mark. A longer one is cut at a character.
pub const MAX_TEXT: usize = 200;
/// The most bytes of one [`Record::Memory`](crate::Record::Memory). More take several records.
pub const MAX_BYTES: usize = 200;
/// The most bytes of one [`Record::Fill`](crate::Record::Fill).
pub const MAX_FILL: u64 = 1 << 16;
/// The most bytes of an entry that a device reads, and of one store to it.
pub const MAX_ENTRY: usize = 64;

codes! {
    /// The knowledge of a table's content when it is announced.
    pub enum Content {
        /// Zero, as the allocator promised. The sanitizer checks it.
        Zero = 0,
        /// Anything: the code clears the table before it links it.
        /// [`Record::Memory`](crate::Record::Memory) before the announcement gives its content.
        Unknown = 1,
        /// Anything, and not to be checked.
        Unchecked = 2,
    }
}

/// The extent of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The translations of one address.
    Page {
        /// The address space.
        space: u64,
        /// An address in the page.
        va: u64,
    },
    /// One invalidation by address at `start`, `start + stride` and so on below `end`.
    Range {
        /// The address space.
        space: u64,
        /// First address.
        start: u64,
        /// First address after the range.
        end: u64,
        /// Bytes from one invalidation to the next.
        stride: u64,
    },
    /// As [`Scope::Range`] in every address space, global translations too.
    EverySpace {
        /// First address.
        start: u64,
        /// First address after the range.
        end: u64,
        /// Bytes from one invalidation to the next.
        stride: u64,
    },
    /// All translations of one space that are not global.
    Space(u64),
    /// Everything, global translations too.
    All,
}

codes! {
    /// An exception level of AArch64 that has translations of its own. Instructions that invalidate
    /// name one: `TLBI VAE1` does not reach the translations of EL2.
    #[derive(Default)]
    pub enum ExceptionLevel {
        /// EL1 with EL0, and stage 2 below them.
        #[default]
        El1 = 1,
        /// EL2: a hypervisor without `HCR_EL2.E2H`.
        El2 = 2,
        /// EL3.
        El3 = 3,
    }
}

codes! {
    /// The kind of an access.
    pub enum AccessKind {
        /// A load.
        Read = 0,
        /// A store.
        Write = 1,
        /// An instruction fetch.
        Exec = 2,
    }
}

codes! {
    /// A barrier that a CPU carried out.
    pub enum BarrierKind {
        /// AArch64 `DSB`: earlier stores can be seen by walkers, earlier invalidations have taken
        /// effect.
        Data = 0,
        /// AArch64 `ISB`: a root that was loaded takes effect.
        Instruction = 1,
        /// RISC-V `FENCE RW, RW`: earlier stores can be seen by walkers of other CPUs.
        Fence = 2,
        /// AArch64 `DSB ISHST`: earlier stores can be seen by walkers. Invalidations may still be
        /// under way.
        Stores = 3,
    }
}
