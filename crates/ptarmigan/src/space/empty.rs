//! Chooses the tables that a space gives back when they are left without entries.
use crate::table::Free;

/// Which empty tables a space gives back, with the flush of the pages that left last. All tables
/// go at its end.
///
/// A space that gives memory back in pieces, such as one with an allocator that calls
/// `madvise(MADV_DONTNEED)`, keeps each leaf table that it ever had unless they are
/// [`Freed`](Self::Freed): 2 MiB of tables for each GiB on x86-64. A table that is used again is
/// made again: one more table from the list, and one more entry above it to flush.
///
/// Every table counts its entries, so a test for emptiness is no search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyTables {
    /// As Linux 6.1: `munmap` and `mremap` give back tables whose aligned span holds no other area
    /// any more ([`Free::Span`]); `madvise` gives no table back.
    #[default]
    Kept,
    /// As Linux 6.14 with `CONFIG_PT_RECLAIM`: besides, [`Advice::DontNeed`](super::Advice) gives
    /// back leaf tables of which one call covers the whole span ([`Free::Covered`]).
    Covered,
    /// Every call that takes pages away gives back each table that it leaves empty
    /// ([`Free::Empty`]), whatever areas lie in its span.
    Freed,
}

impl EmptyTables {
    /// Returns the tables that go where pages go and their areas stay.
    #[inline]
    pub(super) fn below_areas(self) -> Free {
        match self {
            EmptyTables::Kept => Free::Never,
            EmptyTables::Covered => Free::Covered,
            EmptyTables::Freed => Free::Empty,
        }
    }
}
