//! The events of a trace.
//!
//! All addresses and lengths are in pages of `Header::page_shift`, 4 KiB on x86-64. A page number
//! is a virtual address shifted right.

use crate::Note;

/// One event: the CPU, the task, and the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The task. Numbers are dense, in order of creation; 0 is the recorded command. No number is
    /// reused.
    pub task: u32,
    /// The CPU.
    pub cpu: u16,
    /// The kind.
    pub kind: Kind,
}

impl Event {
    /// Returns the event without names of files and functions, for a trace that is given to others.
    /// `None` if nothing else is in it.
    #[must_use]
    pub fn without_symbols(self) -> Option<Self> {
        match self.kind {
            Kind::Note(note) => note.without_symbols().map(|note| Self { kind: Kind::Note(note), ..self }),
            _ => Some(self),
        }
    }
}

/// How a new task shares its parent's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CloneKind {
    /// `fork`: a copy of the address space.
    Fork = 0,
    /// `vfork`: the same address space. The parent waits for the child's `execve` or exit.
    Vfork = 1,
    /// A thread, or another task made with `CLONE_VM`: the same address space, and no task waits.
    Share = 2,
}

/// The kind of an area that `execve` made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AreaKind {
    /// A segment of the program or of its interpreter, backed by a file.
    File = 0,
    /// Anonymous memory of the program image (`.bss`, the heap that `brk` grows).
    Anon = 1,
    /// The stack, at its final place.
    Stack = 2,
    /// Mapped by the kernel: vdso, vvar.
    Special = 3,
}

/// Access permissions of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prot(pub u8);

impl Prot {
    /// Pages may be read.
    pub const READ: u8 = 1;
    /// Pages may be written.
    pub const WRITE: u8 = 2;
    /// Pages may be executed.
    pub const EXEC: u8 = 4;
}

/// The kind of a mapping made by `mmap`. Traces of format 1 have those up to `FIXED` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MapFlags(pub u16);

impl MapFlags {
    /// Writes are shared (`MAP_SHARED`). Without this flag the mapping is private and copied on
    /// write.
    pub const SHARED: u16 = 1;
    /// Not backed by a file.
    pub const ANON: u16 = 2;
    /// All pages are made present at once (`MAP_POPULATE`, `MAP_LOCKED`).
    pub const POPULATE: u16 = 4;
    /// The area grows downwards on faults below it (`MAP_GROWSDOWN`).
    pub const GROWSDOWN: u16 = 8;
    /// Replaces existing mappings (`MAP_FIXED`).
    pub const FIXED: u16 = 16;
    /// Locked in memory (`MAP_LOCKED`); `POPULATE` is set, too.
    pub const LOCKED: u16 = 32;
    /// No swap space is reserved (`MAP_NORESERVE`).
    pub const NORESERVE: u16 = 64;
    /// Of huge pages only (`MAP_HUGETLB`).
    pub const HUGE_ONLY: u16 = 128;
    /// No huge pages are wanted (`MAP_STACK`, which says so since Linux 6.7).
    pub const NO_HUGE: u16 = 256;
    /// The kernel may drop its pages (`MAP_DROPPABLE`).
    pub const DROPPABLE: u16 = 512;
    /// The area does not join others: the mapped object is no plain file (a device, a ring).
    pub const ALONE: u16 = 1024;
    /// A System V segment.
    pub const SEGMENT: u16 = 2048;
    /// The call gave up the lock of the space before it made pages present: a *touched* event says
    /// where it has. In recordings with tracepoints, where another event came in between.
    pub const LATER: u16 = 4096;
    pub(crate) const V1: u16 = 31;
    pub(crate) const ALL: u16 = 8191;
}

/// The cause of a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultFlags(pub u8);

impl FaultFlags {
    /// The page was present: a protection fault, mostly copy-on-write.
    pub const PRESENT: u8 = 1;
    /// A write.
    pub const WRITE: u8 = 2;
    /// It was refused: a signal or an error followed, and no page was made present. Not in traces
    /// of format 1, whose faults may have been refused all the same.
    pub const REFUSED: u8 = 8;
    /// From user mode. Without this flag the kernel accessed a user address, for example in
    /// `copy_to_user`.
    pub const USER: u8 = 4;
    /// An instruction fetch.
    pub const EXEC: u8 = 16;
    /// Of pages found present: one entry of an upper level maps whole 2 MiB of a file or of shared
    /// memory, without a last-level table. No fault has this flag.
    pub const HUGE: u8 = 32;
    /// The fault is known to have read, in a recording that does not tell reads from writes. Not in
    /// traces of format 1.
    pub const READ: u8 = 64;
    pub(crate) const V1: u8 = 0x17;
    pub(crate) const ALL: u8 = 0x5f;

    /// Of pages that are [touched](Kind::Touched): a fault has made their tables, and waits for the
    /// lock of the space. Its own event comes later.
    pub const WAITING: Self = Self(Self::REFUSED | Self::USER);
    /// Of pages that are [touched](Kind::Touched): an `mmap` or `mlock` that was
    /// [earlier](MapFlags::LATER) makes them present now, as far as it does.
    pub const POPULATED: Self = Self(Self::REFUSED | Self::USER | Self::WRITE);

    /// Returns whether the fault may have written. `unknown` says that the recording does not tell
    /// reads from writes.
    #[must_use]
    pub fn may_write(self, unknown: bool) -> bool {
        self.0 & Self::WRITE != 0 || unknown && self.0 & Self::READ == 0
    }
}

/// How pages are locked in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Locking(pub u8);

impl Locking {
    /// Locked (`mlock`); of all areas: those that are there (`MCL_CURRENT`). Without this flag:
    /// unlocked, or left as they are.
    pub const NOW: u8 = 1;
    /// Of all areas: those to come, too (`MCL_FUTURE`).
    pub const FUTURE: u8 = 2;
    /// Pages are locked as they come (`MLOCK_ONFAULT`, `MCL_ONFAULT`). Without this flag they are
    /// made present at once.
    pub const ON_FAULT: u8 = 4;
    /// Of a range: the call made the pages present later, as with [`MapFlags::LATER`].
    pub const LATER: u8 = 8;
    pub(crate) const ALL: u8 = 7;
}

/// The name of a program as the kernel keeps it: at most 15 bytes of UTF-8 without control
/// characters, never a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; Name::MOST],
    len: u8,
}

impl Name {
    /// The most bytes of a name.
    pub const MOST: usize = 15;

    /// Returns the name with control characters and all up to the last slash left out, cut to
    /// [`MOST`](Self::MOST) bytes.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let (mut bytes, mut len) = ([0; Self::MOST], 0);
        let name = name.rsplit('/').next().unwrap_or_default();
        for c in name.chars().filter(|c| !c.is_control()) {
            if len + c.len_utf8() > Self::MOST {
                break;
            }
            len += c.encode_utf8(&mut bytes[len..]).len();
        }
        Self { bytes, len: len as u8 }
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A call that failed and may have changed areas or tables before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedCall {
    /// `mprotect`, which stops at the first hole.
    Mprotect {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// New permissions.
        prot: Prot,
    },
    /// `madvise`, which passes over holes and stops at an area that the advice is not for.
    Madvise {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// The advice, in Linux's numbering.
        advice: u16,
    },
    /// `mlock` and its like, which stop at the first hole, and make pages present up to the first
    /// one that cannot be.
    Lock {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// How.
        how: Locking,
    },
    /// `mremap` of several areas (Linux 6.17), which stops at one that cannot be moved with others.
    Mremap {
        /// First page of the old place.
        start: u64,
        /// Length.
        pages: u64,
        /// First page of the new place.
        to: u64,
        /// `MREMAP_DONTUNMAP`.
        keep: bool,
    },
}

impl FailedCall {
    /// Returns the first page and the length of the call's range.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        match *self {
            Self::Mprotect { start, pages, .. }
            | Self::Madvise { start, pages, .. }
            | Self::Lock { start, pages, .. }
            | Self::Mremap { start, pages, .. } => (start, pages),
        }
    }

    /// Sets the call's range.
    pub fn set_range(&mut self, first: u64, length: u64) {
        match self {
            Self::Mprotect { start, pages, .. }
            | Self::Madvise { start, pages, .. }
            | Self::Lock { start, pages, .. }
            | Self::Mremap { start, pages, .. } => (*start, *pages) = (first, length),
        }
    }
}

/// When a `VmPTE` sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Sampled {
    /// Before a task's exit. It was the last task of its address space, apart from a parent that
    /// waits for its vfork.
    Exit = 0,
    /// Before a call of `execve`, which may have failed afterwards.
    Exec = 1,
}

/// The kinds of events. `page` and `start` are page numbers; `pages` are lengths in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page fault.
    Fault {
        /// The page.
        page: u64,
        /// The cause.
        flags: FaultFlags,
    },
    /// A new task. `Event::task` is the parent.
    Clone {
        /// The new task's number.
        child: u32,
        /// The parts that it shares.
        kind: CloneKind,
    },
    /// `execve` passed the point of no return. The task has a new address space with nothing but
    /// the argument pages, at the end of a temporary stack. The areas that `execve` makes follow as
    /// `Area` events, the stack at its final place among them.
    Exec {
        /// Page number of the end of the temporary stack (`STACK_TOP_MAX`).
        stack_end: u64,
        /// Pages of arguments and environment below that end, at least 1. 0 for the state of a
        /// process that ran already: see [`Openings`](crate::Openings).
        arg_pages: u32,
    },
    /// An area that `execve` made. The stack has its size at the end of `execve`.
    Area {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// Permissions.
        prot: Prot,
        /// Kind of area.
        kind: AreaKind,
    },
    /// A task exited. If it was the last of its address space, the space is torn down afterwards.
    Exit {
        /// Whether it was the last of its thread group.
        last: bool,
    },
    /// A successful `mmap`.
    Mmap {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// Permissions.
        prot: Prot,
        /// Kind of mapping.
        flags: MapFlags,
    },
    /// A successful `munmap`.
    Munmap {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
    },
    /// `brk`, with the new end of the heap. The first one after an `Exec` marks the start of the
    /// empty heap. Later ones may leave the end where it is.
    Brk {
        /// First page after the heap.
        end: u64,
    },
    /// A successful `mremap`.
    Mremap {
        /// First page of the old place.
        from: u64,
        /// Old length.
        old_pages: u64,
        /// First page of the new place (may be `from`).
        to: u64,
        /// New length.
        new_pages: u64,
        /// `MREMAP_DONTUNMAP`: the old area stays, without pages.
        keep: bool,
    },
    /// A successful `mprotect`.
    Mprotect {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// New permissions.
        prot: Prot,
    },
    /// A successful `madvise`. In traces of format 1, `mlock` is advice 22, `MADV_POPULATE_READ`.
    Madvise {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// The advice, in Linux's numbering (4 is `MADV_DONTNEED`).
        advice: u16,
    },
    /// Linux flushed its TLB. This is data for comparison, not for replay.
    TlbFlush {
        /// Number of pages flushed, or 0 for the whole TLB.
        pages: u64,
        /// The reason, in Linux's numbering (`enum tlb_flush_reason`).
        /// [`FlushEvent::of`](crate::FlushEvent::of) has its meaning: not each event is a flush.
        reason: u8,
    },
    /// The CPU became idle after running `Event::task`. Like `TlbFlush`, this may follow the task's
    /// `Exit`.
    Idle,
    /// Linux's count of the page-table pages of the task's address space: `VmPTE` divided by the
    /// page size. It covers PTE, PMD and PUD pages, not the root. It is recorded only if no other
    /// task could change the address space meanwhile.
    Truth {
        /// The count.
        tables: u32,
        /// When the count was read.
        at: Sampled,
    },
    /// A successful `mlock`, `mlock2` or `munlock`. Not in traces of format 1.
    Lock {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// How.
        how: Locking,
    },
    /// A successful `mlockall` or `munlockall`. Not in traces of format 1.
    LockAll {
        /// How.
        how: Locking,
    },
    /// The task's limit for its stack (`RLIMIT_STACK`), from here on. Not in traces of format 1,
    /// where it is taken to be 8 MiB.
    StackLimit {
        /// Length; `u64::MAX >> 12` if there is no limit.
        pages: u64,
    },
    /// The name of the program that an `Exec` started. Optional.
    Name(
        /// The name.
        Name,
    ),
    /// The number that the system knew the task by. Optional.
    Pid(
        /// The number.
        u32,
    ),
    /// Pages that were found present at a stop, though no other event says how they came. Not in
    /// traces of format 1.
    Touched {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// `WRITE` if they are private pages of this address space alone, `PRESENT` if they are
        /// private pages that another space maps, too, as fork shares them; `USER` if the task
        /// asked for them by a call (`mmap` that makes pages of a file present), `HUGE` if upper
        /// entries map them. [`FaultFlags::WAITING`] and [`FaultFlags::POPULATED`] are about the
        /// locks of a space with several tasks: nobody has looked at the pages.
        flags: FaultFlags,
    },
    /// A call that failed half-way. Not in traces of format 1.
    Failed {
        /// The error, in Linux's numbering.
        errno: u8,
        /// The call.
        call: FailedCall,
    },
    /// A fact about the recorded machine that no replay needs. Not in traces of formats 1 and 2.
    Note(
        /// The fact.
        Note,
    ),
}
