//! The kinds of findings.
use std::fmt;

/// The kind of a defect.
/// ```
/// use ptsan::{Arch, Kind, Session};
///
/// let mut s = Session::new(Arch::x86_64(), vec![0u8; 1 << 16]);
/// s.free(0x1000);                                        // was never allocated
/// assert_eq!(s.sanitizer.count(Kind::ForeignFree), 1);
/// assert_eq!(Kind::ForeignFree.name(), "foreign-free");  // as reports and suppressions have it
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// An access used a cached translation that memory no longer gives or no longer allows.
    StaleUse,
    /// The code under test and its tables disagree about an address.
    Disagreement,
    /// A table was freed while a CPU could still walk it.
    FreeBeforeFlush,
    /// A frame was allocated again while a CPU could still walk the table that it held.
    ReuseBeforeFlush,
    /// A right was taken away, and a CPU that may have cached it has not flushed it when it was
    /// due.
    FlushMissing,
    /// A data frame was freed while a CPU could still translate to it.
    DataFreedBeforeFlush,
    /// A data frame was handed out again, or made a table, while a CPU could still translate to it.
    DataReusedBeforeFlush,
    /// A root was loaded with the number of another one, or was given one that another has.
    WrongNumber,
    /// A table was freed while software that walks without a lock could still read it.
    FreeUnderReader,
    /// An entry of several words was changed in pieces while a device could read it.
    TornEntry,
    /// An entry was stored to without the lock of its tables.
    UnlockedWrite,
    /// A page table is mapped writable to user mode.
    TableMapped,
    /// A frame may be written at one address and executed at another.
    WriteExecute,
    /// A store may have lost a bit that hardware set.
    BitLost,
    /// A table was freed while the live tree still pointed at it.
    FreeWhileLinked,
    /// A walk read a table after it was freed.
    UseAfterFree,
    /// A valid entry that a CPU may hold was replaced by another that must not be cached beside it.
    BreakBeforeMake,
    /// Entries of a run that hardware may cache as one translation contradict each other.
    ContiguousRange,
    /// The hash table, or a bit that bounds its content, contradicts the tables.
    HashTable,
    /// A table became reachable with entries in it that are older than its allocation.
    LinkedBeforeCleared,
    /// A frame announced as zero holds something.
    NotZero,
    /// A walk reached a frame that was never announced as a table.
    UnknownTable,
    /// An entry points outside memory.
    OutsideMemory,
    /// An entry with reserved bits set.
    MalformedEntry,
    /// One frame serves as a table of two levels.
    WalkLoop,
    /// A frame was announced while it already was a table.
    DoubleAllocate,
    /// A table was freed twice.
    DoubleFree,
    /// Something was freed that was never announced.
    ForeignFree,
    /// A table was never freed.
    Leak,
    /// A hook was called with arguments that make no sense.
    Misuse,
}

impl Kind {
    /// All kinds, the worst first.
    pub const ALL: [Self; 30] = [
        Self::StaleUse,
        Self::Disagreement,
        Self::FreeBeforeFlush,
        Self::ReuseBeforeFlush,
        Self::FlushMissing,
        Self::DataFreedBeforeFlush,
        Self::DataReusedBeforeFlush,
        Self::WrongNumber,
        Self::FreeUnderReader,
        Self::TornEntry,
        Self::UnlockedWrite,
        Self::TableMapped,
        Self::WriteExecute,
        Self::BitLost,
        Self::FreeWhileLinked,
        Self::UseAfterFree,
        Self::BreakBeforeMake,
        Self::ContiguousRange,
        Self::HashTable,
        Self::LinkedBeforeCleared,
        Self::NotZero,
        Self::UnknownTable,
        Self::OutsideMemory,
        Self::MalformedEntry,
        Self::WalkLoop,
        Self::DoubleAllocate,
        Self::DoubleFree,
        Self::ForeignFree,
        Self::Leak,
        Self::Misuse,
    ];

    /// Returns the name that reports print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StaleUse => "stale-use",
            Self::Disagreement => "disagreement",
            Self::FreeBeforeFlush => "free-before-flush",
            Self::ReuseBeforeFlush => "reuse-before-flush",
            Self::FlushMissing => "flush-missing",
            Self::DataFreedBeforeFlush => "data-freed-before-flush",
            Self::DataReusedBeforeFlush => "data-reused-before-flush",
            Self::WrongNumber => "wrong-number",
            Self::FreeUnderReader => "free-under-reader",
            Self::TornEntry => "torn-entry",
            Self::UnlockedWrite => "unlocked-write",
            Self::TableMapped => "table-mapped",
            Self::WriteExecute => "write-execute",
            Self::BitLost => "bit-lost",
            Self::FreeWhileLinked => "free-while-linked",
            Self::UseAfterFree => "use-after-free",
            Self::BreakBeforeMake => "break-before-make",
            Self::ContiguousRange => "contiguous-range",
            Self::HashTable => "hash-table",
            Self::LinkedBeforeCleared => "linked-before-cleared",
            Self::NotZero => "not-zero",
            Self::UnknownTable => "unknown-table",
            Self::OutsideMemory => "outside-memory",
            Self::MalformedEntry => "malformed-entry",
            Self::WalkLoop => "walk-loop",
            Self::DoubleAllocate => "double-allocate",
            Self::DoubleFree => "double-free",
            Self::ForeignFree => "foreign-free",
            Self::Leak => "leak",
            Self::Misuse => "misuse",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
