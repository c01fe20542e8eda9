//! The records of a log: one for each event.

/// The most bytes of a text mark. A longer one is cut at a character.
pub const MAX_TEXT: usize = 200;
/// The most bytes of one [`Record::Memory`]. More take several records.
pub const MAX_BYTES: usize = 200;
/// The most bytes of one [`Record::Fill`].
pub const MAX_FILL: u64 = 1 << 16;
/// The most bytes of an entry that a device reads, and of one store to it.
pub const MAX_ENTRY: usize = 64;

/// The field behind those of a store that was an atomic exchange.
pub(crate) const EXCHANGED: u64 = 1;

/// The knowledge of a table's content when it is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// Zero, as the allocator promised. The sanitizer checks it.
    Zero = 0,
    /// Anything: the code clears the table before it links it. [`Record::Memory`] before the
    /// announcement gives its content.
    Unknown = 1,
    /// Anything, and not to be checked.
    Unchecked = 2,
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

/// An exception level of AArch64 that has translations of its own. Instructions that invalidate
/// name one: `TLBI VAE1` does not reach the translations of EL2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ExceptionLevel {
    /// EL1 with EL0, and stage 2 below them.
    #[default]
    El1 = 1,
    /// EL2: a hypervisor without `HCR_EL2.E2H`.
    El2 = 2,
    /// EL3.
    El3 = 3,
}

impl ExceptionLevel {
    /// Returns the level of a number on the wire.
    pub(crate) const fn of(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::El1),
            2 => Some(Self::El2),
            3 => Some(Self::El3),
            _ => None,
        }
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AccessKind {
    /// A load.
    Read = 0,
    /// A store.
    Write = 1,
    /// An instruction fetch.
    Exec = 2,
}

/// A barrier that a CPU carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BarrierKind {
    /// AArch64 `DSB`: earlier stores can be seen by walkers, earlier invalidations have taken
    /// effect.
    Data = 0,
    /// AArch64 `ISB`: a root that was loaded takes effect.
    Instruction = 1,
    /// RISC-V `FENCE RW, RW`: earlier stores can be seen by walkers of other CPUs.
    Fence = 2,
    /// AArch64 `DSB ISHST`: earlier stores can be seen by walkers. Invalidations may still be under
    /// way.
    Stores = 3,
}

/// Something that happened. Addresses are physical unless they are called `va`.
///
/// A device is named by a number behind those of the CPUs ([`Header::device`]). The records
/// [`RootLoaded`](Self::RootLoaded) (a device is attached), [`Leave`](Self::Leave) (it is
/// detached), [`Invalidate`](Self::Invalidate) and [`Access`](Self::Access) take a device in place
/// of a CPU.
///
/// [`Header::device`]: crate::Header::device
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Memory was allocated to hold a table.
    TableAllocated {
        /// Where.
        phys: u64,
        /// Bytes; 0 is the usual size of the header.
        size: u64,
        /// The level, if it is known. Level 0 has the smallest pages.
        level: Option<u8>,
        /// Its content.
        content: Content,
    },
    /// A table was given back: from now on it may be allocated again.
    TableFreed {
        /// Where.
        phys: u64,
        /// Bytes; 0 is the usual size of the header.
        size: u64,
    },
    /// Code stored to memory that holds tables.
    Store {
        /// Where: a multiple of `bytes`.
        phys: u64,
        /// The new content.
        value: u64,
        /// 1, 2, 4 or 8.
        bytes: u8,
    },
    /// Code exchanged an entry: an atomic instruction stored to it and returned the old content,
    /// with the bits that hardware had set. On the wire it is a store with a field more.
    Exchange {
        /// Where: a multiple of `bytes`.
        phys: u64,
        /// The new content.
        value: u64,
        /// 1, 2, 4 or 8.
        bytes: u8,
    },
    /// Code stored the same value several times, as a loop that clears a table does.
    Fill {
        /// Where: a multiple of 8.
        phys: u64,
        /// How many bytes: a multiple of 8, at most [`MAX_FILL`].
        bytes: u64,
        /// The new content, 8 bytes each.
        value: u64,
    },
    /// The content of memory, without a store: the content of a table that is about to be
    /// announced.
    Memory {
        /// Where.
        phys: u64,
        /// The bytes, at most [`MAX_BYTES`].
        bytes: &'a [u8],
    },
    /// A CPU loaded a root.
    RootLoaded {
        /// The CPU.
        cpu: u16,
        /// Where the root is.
        root: u64,
        /// The address space, or its hardware number.
        space: u64,
        /// Whether the load also dropped the CPU's entries for the space.
        flushes: bool,
    },
    /// A CPU runs kernel code and keeps its root loaded.
    Lazy {
        /// The CPU.
        cpu: u16,
    },
    /// A lazy CPU runs in its space again, without a new load of the root.
    Resume {
        /// The CPU.
        cpu: u16,
    },
    /// A CPU loaded a root of the kernel alone.
    Leave {
        /// The CPU.
        cpu: u16,
    },
    /// A CPU carried out an invalidation.
    Invalidate {
        /// The CPU; `None` is all of them, as an instruction that broadcasts does.
        cpu: Option<u16>,
        /// Its extent.
        scope: Scope,
        /// Whether it spares paging-structure caches.
        leaf_only: bool,
        /// The level of the pages, if it names one: it drops no others, and no tables.
        level: Option<u8>,
        /// The exception level, if it names one: it spares tables of another
        /// ([`Header::exception_level`]).
        ///
        /// [`Header::exception_level`]: crate::Header::exception_level
        exception_level: Option<ExceptionLevel>,
    },
    /// An address space begins to be used, and may be flushed before it is loaded.
    SpaceCreated {
        /// Its number.
        space: u64,
    },
    /// An address space is gone, and its number will not stand for another.
    SpaceDestroyed {
        /// Its number.
        space: u64,
    },
    /// A page was mapped: each CPU that has the space loaded may walk for it. Not needed where
    /// stores are told.
    DataMapped {
        /// The address space.
        space: u64,
        /// An address in the page.
        va: u64,
    },
    /// Memory that was mapped as data was given back by its last user. No CPU may translate to it.
    DataFreed {
        /// Where.
        phys: u64,
        /// Bytes.
        size: u64,
    },
    /// Memory that was data once is used for something else now.
    DataReused {
        /// Where.
        phys: u64,
        /// Bytes.
        size: u64,
    },
    /// A CPU carried out a barrier. Checked if the header says that barriers are recorded.
    Barrier {
        /// The CPU.
        cpu: u16,
        /// Which.
        kind: BarrierKind,
    },
    /// All pages that were unmapped, remapped or restricted so far have been flushed, except pages
    /// that an operation under way changed.
    FlushesDone,
    /// The stores that follow are those of this CPU.
    Running {
        /// The CPU. It is CPU 0 before the first of these records.
        cpu: u16,
    },
    /// A CPU invalidated all that it has cached of stage 1 for the guest that it runs, and with it
    /// all combined translations. For logs of stage 2 whose header says two stages.
    Stage1Flushed {
        /// The CPU.
        cpu: u16,
    },
    /// An operation that changes tables begins. Until it ends, CPUs may use entries that they hold.
    OperationBegins {
        /// A number that no other operation under way has.
        id: u64,
    },
    /// The operation ends: its changes have been flushed everywhere.
    OperationEnds {
        /// Its number.
        id: u64,
    },
    /// A CPU accessed memory through its tables.
    Access {
        /// The CPU.
        cpu: u16,
        /// The address.
        va: u64,
        /// Load, store or fetch.
        kind: AccessKind,
        /// Whether in user mode.
        user: bool,
    },
    /// An invalidation was put into the queue of a device. Nothing has waited for it yet.
    FlushQueued {
        /// The device.
        device: u16,
        /// The extent of the invalidation.
        scope: Scope,
        /// Whether it spares paging-structure caches.
        leaf_only: bool,
        /// The level of the pages, if it names one: it drops no others, and no tables.
        level: Option<u8>,
        /// The exception level, if it names one: it spares tables of another
        /// ([`Header::exception_level`]).
        ///
        /// [`Header::exception_level`]: crate::Header::exception_level
        exception_level: Option<ExceptionLevel>,
    },
    /// The kernel waited until a device had carried out all that is in its queue.
    QueueCompleted {
        /// The device.
        device: u16,
    },
    /// A device reads an entry of several words from now on: a context entry, a PASID entry, a
    /// device-table entry, a stream-table entry. [`Record::Memory`] before it gives its content.
    DeviceEntry {
        /// The device.
        device: u16,
        /// Where: a multiple of `bytes`.
        phys: u64,
        /// 8, 16, 32 or 64.
        bytes: u8,
        /// The word of 8 bytes, counted from 0, that says whether the entry is valid.
        word: u8,
        /// The bits of that word of which any makes the entry valid. Not 0.
        valid: u64,
    },
    /// One instruction stored to an entry that a device reads.
    DeviceEntryWritten {
        /// Where: a multiple of the number of bytes.
        phys: u64,
        /// The bytes that were stored: 1, 2, 4, 8, 16, 32 or [`MAX_ENTRY`] of them.
        bytes: &'a [u8],
    },
    /// A device forgot an entry, or all of its entries: the invalidation was waited for.
    DeviceEntriesFlushed {
        /// The device.
        device: u16,
        /// An address in the entry; `None` is all entries of the device.
        phys: Option<u64>,
    },
    /// Software begins to walk tables without their lock.
    ReaderBegins {
        /// A number that no other reader under way has.
        id: u64,
        /// The root.
        root: u64,
    },
    /// A reader reads an entry of a table.
    ReaderReads {
        /// Its number.
        id: u64,
        /// The table.
        table: u64,
    },
    /// A reader has ended.
    ReaderEnds {
        /// Its number.
        id: u64,
    },
    /// A lock guards a table, and all tables below it that have no lock of their own. Checked if
    /// the header says that locks are recorded.
    LockGuards {
        /// The table.
        table: u64,
        /// The lock, by any number.
        lock: u64,
        /// Whether flushes of changes under the lock have to be over when it is released.
        flush_first: bool,
    },
    /// A CPU has taken a lock.
    LockTaken {
        /// The CPU.
        cpu: u16,
        /// The lock.
        lock: u64,
        /// Whether with others; else alone.
        shared: bool,
    },
    /// A CPU is about to release a lock.
    LockReleased {
        /// The CPU.
        cpu: u16,
        /// The lock.
        lock: u64,
    },
    /// The tables at a root were given the number of a space, in place of the one that they had.
    NumberGiven {
        /// The root.
        root: u64,
        /// The number.
        space: u64,
    },
    /// All numbers were taken back, except those of roots that CPUs have loaded.
    NumbersTakenBack,
    /// A CPU invalidated a part of what it has cached of stage 1 for the guest that it runs.
    Stage1PartFlushed {
        /// The CPU.
        cpu: u16,
        /// The guest's number of the space; `None` is all spaces.
        number: Option<u64>,
        /// An address of the guest; `None` is all addresses.
        va: Option<u64>,
    },
    /// A guest accessed memory through both stages. The CPU may cache the combined translation.
    AccessCombined {
        /// The CPU.
        cpu: u16,
        /// The guest's number of its space.
        number: u64,
        /// The address that the guest accessed.
        va: u64,
        /// The guest-physical address that stage 1 translates it to.
        gpa: u64,
        /// Load, store or fetch.
        kind: AccessKind,
    },
    /// A text for readers of the log.
    Mark {
        /// The text, at most [`MAX_TEXT`] bytes.
        text: &'a str,
    },
    /// The log is complete.
    End {
        /// Whether tables that are still allocated are leaks.
        all_freed: bool,
    },
}

/// The number of each kind on the wire.
pub(crate) mod kind {
    pub(crate) const TABLE_ALLOCATED: u8 = 0x01;
    pub(crate) const TABLE_FREED: u8 = 0x02;
    pub(crate) const STORE: u8 = 0x03;
    pub(crate) const FILL: u8 = 0x04;
    pub(crate) const MEMORY: u8 = 0x05;
    pub(crate) const ROOT_LOADED: u8 = 0x06;
    pub(crate) const LAZY: u8 = 0x07;
    pub(crate) const RESUME: u8 = 0x08;
    pub(crate) const LEAVE: u8 = 0x09;
    pub(crate) const INVALIDATE: u8 = 0x0a;
    pub(crate) const SPACE_CREATED: u8 = 0x0b;
    pub(crate) const SPACE_DESTROYED: u8 = 0x0c;
    pub(crate) const DATA_FREED: u8 = 0x0d;
    pub(crate) const DATA_REUSED: u8 = 0x0e;
    pub(crate) const OPERATION_BEGINS: u8 = 0x0f;
    pub(crate) const OPERATION_ENDS: u8 = 0x10;
    pub(crate) const ACCESS: u8 = 0x11;
    pub(crate) const MARK: u8 = 0x12;
    pub(crate) const END: u8 = 0x13;
    /// The first kind of version 2.
    pub(crate) const SECOND: u8 = FLUSH_QUEUED;
    pub(crate) const FLUSH_QUEUED: u8 = 0x14;
    pub(crate) const QUEUE_COMPLETED: u8 = 0x15;
    pub(crate) const DEVICE_ENTRY: u8 = 0x16;
    pub(crate) const DEVICE_ENTRY_WRITTEN: u8 = 0x17;
    pub(crate) const DEVICE_ENTRIES_FLUSHED: u8 = 0x18;
    pub(crate) const READER_BEGINS: u8 = 0x19;
    pub(crate) const READER_READS: u8 = 0x1a;
    pub(crate) const READER_ENDS: u8 = 0x1b;
    pub(crate) const LOCK_GUARDS: u8 = 0x1c;
    pub(crate) const LOCK_TAKEN: u8 = 0x1d;
    pub(crate) const LOCK_RELEASED: u8 = 0x1e;
    pub(crate) const NUMBER_GIVEN: u8 = 0x1f;
    pub(crate) const NUMBERS_TAKEN_BACK: u8 = 0x20;
    pub(crate) const STAGE1_PART_FLUSHED: u8 = 0x21;
    pub(crate) const ACCESS_COMBINED: u8 = 0x22;
    /// The last kind of version 2 that a reader must know.
    pub(crate) const LAST: u8 = ACCESS_COMBINED;
    /// The first kind that a reader may skip if it does not know it.
    pub(crate) const OPTIONAL: u8 = 0x40;
    pub(crate) const BARRIER: u8 = 0x40;
    pub(crate) const FLUSHES_DONE: u8 = 0x41;
    pub(crate) const DATA_MAPPED: u8 = 0x42;
    pub(crate) const RUNNING: u8 = 0x43;
    pub(crate) const STAGE1_FLUSHED: u8 = 0x44;
    /// Set in the kind: the payload begins with the address of an instruction.
    pub(crate) const WITH_PC: u8 = 0x80;

    pub(crate) const PAGE: u8 = 0;
    pub(crate) const RANGE: u8 = 1;
    pub(crate) const EVERY_SPACE: u8 = 2;
    pub(crate) const SPACE: u8 = 3;
    pub(crate) const ALL: u8 = 4;
}

impl Record<'_> {
    /// Returns the name of the kind, as `ptsan log dump` prints it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Record::TableAllocated { .. } => "table-allocated",
            Record::TableFreed { .. } => "table-freed",
            Record::Store { .. } => "store",
            Record::Exchange { .. } => "exchange",
            Record::Fill { .. } => "fill",
            Record::Memory { .. } => "memory",
            Record::RootLoaded { .. } => "root-loaded",
            Record::Lazy { .. } => "lazy",
            Record::Resume { .. } => "resume",
            Record::Leave { .. } => "leave",
            Record::Invalidate { .. } => "invalidate",
            Record::SpaceCreated { .. } => "space-created",
            Record::SpaceDestroyed { .. } => "space-destroyed",
            Record::DataMapped { .. } => "data-mapped",
            Record::DataFreed { .. } => "data-freed",
            Record::DataReused { .. } => "data-reused",
            Record::Barrier { .. } => "barrier",
            Record::FlushesDone => "flushes-done",
            Record::Running { .. } => "running",
            Record::Stage1Flushed { .. } => "stage1-flushed",
            Record::OperationBegins { .. } => "operation-begins",
            Record::OperationEnds { .. } => "operation-ends",
            Record::Access { .. } => "access",
            Record::FlushQueued { .. } => "flush-queued",
            Record::QueueCompleted { .. } => "queue-completed",
            Record::DeviceEntry { .. } => "device-entry",
            Record::DeviceEntryWritten { .. } => "device-entry-written",
            Record::DeviceEntriesFlushed { .. } => "device-entries-flushed",
            Record::ReaderBegins { .. } => "reader-begins",
            Record::ReaderReads { .. } => "reader-reads",
            Record::ReaderEnds { .. } => "reader-ends",
            Record::LockGuards { .. } => "lock-guards",
            Record::LockTaken { .. } => "lock-taken",
            Record::LockReleased { .. } => "lock-released",
            Record::NumberGiven { .. } => "number-given",
            Record::NumbersTakenBack => "numbers-taken-back",
            Record::Stage1PartFlushed { .. } => "stage1-part-flushed",
            Record::AccessCombined { .. } => "access-combined",
            Record::Mark { .. } => "mark",
            Record::End { .. } => "end",
        }
    }
}
