//! The rules that findings break, each with its sentence for a report.
use std::fmt;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The rule that was broken.
        /// ```
        /// use ptsan::{Arch, Rule, Session};
        ///
        /// let mut s = Session::new(Arch::x86_64(), vec![0u8; 1 << 16]);
        /// s.free(0x1000);
        /// let rule = s.sanitizer.findings()[0].rule;
        /// assert_eq!((rule, rule.name()), (Rule::NotATable, "NotATable"));
        /// println!("{}", rule.text());
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Rule {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns the name, as lists of allowed findings have it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Returns one sentence for a report.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

rules! {
    /// The cached translation maps an address that memory no longer maps.
    Unmapped = "memory no longer maps the page, but a cached translation was used; a flush is missing",
    /// The cached translation maps another frame than memory does.
    Remapped = "memory maps the page elsewhere, but a cached translation was used; a flush is missing",
    /// The cached translation allows an access that memory forbids.
    PermissionRemoved = "memory forbids the access, but a cached translation allowed it; a flush is missing",
    /// A translation that a CPU combined of both stages outlived a change of stage 2.
    CombinedStale = "stage 2 no longer gives what a CPU has combined of both stages; flush all of the guest, or stage 1 after the address",
    /// The page is mapped, but the registers that hold the root's entries do not say so.
    NotReloaded = "memory maps the page, but the root's entries held in registers do not; reload the root",
    /// A permission was added, the CPU faulted, and it faults again: its TLB keeps entries that
    /// deny an access, and was not flushed.
    DeniedTwice = "memory allows the access, and a CPU faulted twice on a cached entry that denies it; flush it when a permission is added, or at the fault",
    /// An entry became valid, the CPU faulted, and it faults again: it keeps entries that were not
    /// valid, and was not flushed. Or it has faulted once, and the entry is kept when all is said
    /// to be flushed.
    InvalidKept = "memory maps the page, and a CPU faulted on the entry from before it was valid; flush the address at the fault, or the whole space if a table was linked",
    /// A page was unmapped, and a CPU that may hold it has not flushed it since.
    UnmapNotFlushed = "a page was unmapped, and a CPU that may hold the translation has not flushed it since",
    /// A page was mapped elsewhere, and a CPU that may hold the old translation has not flushed it
    /// since.
    RemapNotFlushed = "a page was mapped to another frame, and a CPU that may hold the old translation has not flushed it since",
    /// A permission was taken away, and a CPU that may hold the old translation has not flushed it
    /// since.
    RestrictNotFlushed = "a permission was taken away, and a CPU that may hold the old translation has not flushed it since",
    /// The dirty bit was cleared, and a CPU that may hold the page as dirty has not flushed it
    /// since: its writes there are not noticed.
    DirtyNotFlushed = "a dirty bit was cleared, and a CPU that may hold the page as dirty has not flushed it since",
    /// A page was made no longer global, and a CPU that may hold it as global has not flushed it
    /// since.
    GlobalNotFlushed = "a page is no longer global, and a CPU that may hold it as global has not flushed it since",
    /// The memory type was changed, and a CPU that may hold the old one has not flushed it since.
    TypeNotFlushed = "a page was given another memory type, and a CPU that may hold the old one has not flushed it since",
    /// A table was unlinked and freed, and a CPU that may hold it has not flushed it in between.
    UnlinkNotFlushed = "a table was unlinked and freed, and a CPU that may hold it was not flushed in between",
    /// A number of a space stands for another root, and entries of the old one were not flushed.
    NumberReused = "the number of an address space stands for another root; flush it on each CPU that used the old one",
    /// A root was given the number of another one.
    NumberTaken = "a root was given a number that another root has; give each root one of its own",
    /// A root was loaded with another number than it was given, or with another root's.
    OtherNumber = "a root was loaded with another number than it was given, or with another root's; load both together",
    /// Two CPUs run different roots under one number.
    NumberShared = "two CPUs run different roots under one number; give each root a number of its own",
    /// A guest was given the number of the host.
    NumberOfHost = "a guest has the number that the host runs under; give it another one",
    /// An entry was stored to, and its lock was not held by the CPU that stored.
    NotLocked = "an entry was stored to without the lock of its table; take the lock first",
    /// An entry was plainly stored to under a lock that others may hold too.
    SharedLock = "an entry was plainly stored to under a lock that is held shared; exchange it, or hold the lock alone",
    /// A table that CPUs use has no lock.
    NoLock = "an entry was stored to whose tables have no lock; tell which one guards them with lock_guards",
    /// A lock was released before the flush of changes under it.
    ReleasedBeforeFlush = "a lock was released before the flush of what changed under it; flush first",
    /// A data frame was given away, and a CPU may still translate to it.
    DataNotFlushed = "a CPU may still translate to a data frame that was given away; flush it first",
    /// A data frame was given away while an entry maps it.
    DataStillMapped = "a data frame was given away while an entry still maps it; unmap and flush it first",
    /// A data frame was made a table, and a CPU may still translate to it.
    DataMadeTable = "a data frame was made a table while a CPU may still translate to it; flush it first",
    /// User mode may write a table.
    TableWritable = "user mode may write a page table; keep tables out of what is mapped to it",
    /// A frame may be written and executed.
    WriteAndExecute = "user mode may write a frame at one address and execute it at another",
    /// A plain store may have overwritten a dirty bit.
    DirtyLost = "a plain store replaced an entry whose dirty bit hardware may have set meanwhile; exchange it atomically",
    /// A large page is clean, and dirty bits of the small pages that it replaces are lost.
    DirtyLeftBehind = "a large page is clean, and entries that it replaces have dirty bits of hardware, or may get them; take the right to write and flush first, or read the bits after that",
    /// A root was loaded, and the CPU used it before an instruction synchronization barrier.
    NotSynchronized = "the CPU used a root that it loaded before an instruction synchronization barrier; call barrier after switch",
    /// The CPU found the page in the hash table.
    StaleInHashTable = "a CPU found a page in the hash table as memory no longer maps it; take it out first",
    /// The page's entry allows more now, and the TLB does not.
    UpgradeNotFlushed = "memory and the hash table allow the access, but a cached translation does not; flush it",
    /// The page is in the hash table, and its entry does not say so.
    BitMissing = "a page is in the hash table without its bit; set the bit before the page is put in",
    /// The page was put in, or stays, as memory does not map it.
    HashedStale = "the hash table has a page as memory does not map it; put in what the entry is, and flush it",
    /// The TLBs were told to forget the page alone.
    LeftInHashTable = "the TLBs forget a page that the hash table still has; take it out of there first",
    /// The page has two valid entries.
    HashedTwice = "a page has two valid entries in the hash table; look for one before another is made",
    /// A table was freed with hash bits in it.
    FreedWithBit = "a table was freed with a hash bit in it; flush the page and clear the bit first",
    /// The tables map an address that the code says is not mapped.
    OnlyTablesMapIt = "the tables map the address, but the code says that it is not mapped",
    /// The code says that an address is mapped which the tables do not map.
    OnlyCodeMapsIt = "the code says that the address is mapped, but the tables do not map it",
    /// The tables map it to another frame.
    MappedElsewhere = "the tables map the address to another frame than the code says",
    /// The tables map it with another page size.
    OtherSize = "the tables map the address with another page size than the code says",
    /// The tables allow something else.
    OtherPermissions = "the tables allow other accesses than the code says",
    /// The new entry maps another frame.
    ChangedOutput = "a valid entry was replaced by one for another frame; clear it and flush first",
    /// A table was replaced by a block, or a block by a table.
    ChangedSize = "a table was replaced by a block, or a block by a table; clear the entry and flush first",
    /// An entry became part of a contiguous run, or is no longer.
    ChangedRun = "a valid entry was put into a contiguous run, or taken out of one; clear the run and flush first",
    /// Some entries of a run say that hardware may cache them as one, and others do not fit.
    RunDisagrees = "entries that hardware may cache as one contradict each other; change all of a run",
    /// The new entry has another memory type.
    ChangedType = "a valid entry was given another memory type; clear it and flush first",
    /// An entry of a space became global.
    ChangedReach = "a valid entry was made global; clear it and flush first",
    /// A paging-structure cache holds the table.
    HeldInStructureCache = "a CPU holds the table in its paging-structure cache; flush that CPU first",
    /// The registers with the root's entries point at the table.
    HeldInTopRegister = "a CPU's registers with the root's entries point at the table; reload the root first",
    /// A walk that has read the entry for the table is still under way.
    HeldByWalker = "a walk in flight on a CPU has read the entry for the table; flush that CPU first",
    /// A TLB entry read from the table outlived it.
    HeldInTlb = "a CPU's TLB holds a translation read from the table that memory no longer gives; flush first",
    /// The table is the root of a CPU.
    HeldAsRoot = "a CPU has the table loaded as its root",
    /// A reachable entry points at the table.
    StillLinked = "an entry that a walk can reach still points at the table; clear it and flush first",
    /// A walk read the table after it was freed.
    WalkedAfterFree = "a walk read a freed table",
    /// Software that holds no lock read a table after it was freed.
    ReadAfterFree = "software that walks without a lock read a freed table; free it after all that began before it was unlinked have ended",
    /// A table was freed while software that holds no lock could be in it.
    HeldByReader = "software that walks without a lock may still be in the table; wait until it has ended before the free",
    /// The words of a valid entry were changed one after the other.
    ChangedInPieces = "a valid entry of several words was changed in pieces; make it invalid first, and valid with the last store",
    /// An entry of a device is valid again, with another content than the device may hold.
    EntryNotFlushed = "a device may hold an entry as it was before it was made invalid; have it forget the entry first",
    /// An entry was made to point at a table after it was freed.
    LinkedAfterFree = "an entry points at a freed table",
    /// The table was linked with old content.
    OldContent = "the table became reachable with entries left from before its allocation; clear it first",
    /// The frame was promised to be zero.
    ZeroPromised = "the frame was announced as zero and is not",
    /// The frame was never announced.
    NeverAnnounced = "a walk reached a table that was never announced",
    /// The address has no memory behind it.
    NoMemory = "there is no memory where the table should be",
    /// Reserved bits are set.
    Reserved = "an entry has reserved bits set; the hardware faults on it",
    /// A frame stands at two levels.
    TwoLevels = "the frame is used as a table of two levels",
    /// The frame overlaps a table that was not freed.
    AlreadyTable = "the frame overlaps a table that has not been freed",
    /// The table was freed before.
    AlreadyFree = "the table was freed before",
    /// The frame was never announced.
    NotATable = "no table was announced at this address",
    /// The size differs from the announced one.
    WrongSize = "the table was announced with another size",
    /// The table was still allocated at the end.
    StillAllocated = "the table was never freed",
    /// There is no such CPU.
    NoSuchCpu = "there is no such CPU",
    /// The space was never loaded or announced.
    NoSuchSpace = "the address space was never loaded nor announced, or is gone",
    /// The format has no invalidation of one guest-physical address.
    NoSuchFlush = "these tables of a second stage have no invalidation by address; call flush with Flush::space or Flush::all",
    /// The call needs a loaded root.
    NoRoot = "the CPU has no root loaded",
    /// The root has no memory behind it or is misaligned.
    BadRoot = "the root is outside memory or misaligned",
    /// The size or the place of the hash table is wrong, or the format has no hash table.
    BadHashTable = "the hash table cannot be searched: its size, its place, or a format without one",
    /// The hash table or the segments of the space are not known.
    NoHashTable = "no hash table was announced, or no segments of the space",
    /// A size of zero, an address range that wraps, an entry that does not exist.
    BadArgument = "an argument makes no sense",
    /// The space is still loaded.
    SpaceLoaded = "the address space is still loaded on a CPU",
    /// The description of the format cannot be walked.
    BadArch = "the description of the format cannot be used",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
