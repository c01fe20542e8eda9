//! The events of a trace.
//!
//! All addresses and lengths are in pages of `Header::page_shift`, 4 KiB on x86-64. A page number
//! is a virtual address shifted right.

use crate::note::{Call, Cause, Note};
use crate::symbols::{PlaceId, Text};
use crate::wire::{
    ABSOLUTE, BYTE, Bad, Child, Delta, FLAG, Known, Length, Page, Plain, RANGE, Range, Sink, Source, Variant,
    byte, number,
};

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

codes! {
    /// How a new task shares its parent's address space.
    pub enum CloneKind {
        /// `fork`: a copy of the address space.
        Fork = 0 "fork",
        /// `vfork`: the same address space. The parent waits for the child's `execve` or exit.
        Vfork = 1 "vfork",
        /// A thread, or another task made with `CLONE_VM`: the same address space, and no task
        /// waits.
        Share = 2 "share",
    }
}

codes! {
    /// The kind of an area that `execve` made.
    pub enum AreaKind {
        /// A segment of the program or of its interpreter, backed by a file.
        File = 0 "file",
        /// Anonymous memory of the program image (`.bss`, the heap that `brk` grows).
        Anon = 1 "anon",
        /// The stack, at its final place.
        Stack = 2 "stack",
        /// Mapped by the kernel: vdso, vvar.
        Special = 3 "special",
    }
}

codes! {
    /// When a `VmPTE` sample was taken.
    pub enum Sampled {
        /// Before a task's exit. It was the last task of its address space, apart from a parent
        /// that waits for its vfork.
        Exit = 0 "exit",
        /// Before a call of `execve`, which may have failed afterwards.
        Exec = 1 "exec",
    }
}

flags! {
    /// Access permissions of an area.
    pub struct Prot(u8) {
        /// Pages may be read.
        READ = 1 "read",
        /// Pages may be written.
        WRITE = 2 "write",
        /// Pages may be executed.
        EXEC = 4 "exec",
    }
}

impl Prot {
    pub(crate) const ALL: u16 = 7;
}

/// Permissions and kind of an area have one byte. Permissions without a place in it set all bits,
/// which are refused.
impl Plain for (Prot, AreaKind) {
    fn of(number: u64) -> Option<Self> {
        Some((Prot(number as u8 & Prot::ALL as u8), AreaKind::of(number >> 3)?))
    }

    fn number(self) -> u64 {
        let (prot, kind) = self;
        if u16::from(prot.0) > Prot::ALL { u64::MAX } else { prot.number() | kind.number() << 3 }
    }
}

flags! {
    /// The kind of a mapping made by `mmap`. Traces of format 1 have those up to `FIXED` only.
    pub struct MapFlags(u16) {
        /// Writes are shared (`MAP_SHARED`). Without this flag the mapping is private and copied on
        /// write.
        SHARED = 1 "shared",
        /// Not backed by a file.
        ANON = 2 "anon",
        /// All pages are made present at once (`MAP_POPULATE`, `MAP_LOCKED`).
        POPULATE = 4 "populate",
        /// The area grows downwards on faults below it (`MAP_GROWSDOWN`).
        GROWSDOWN = 8 "growsdown",
        /// Replaces existing mappings (`MAP_FIXED`).
        FIXED = 16 "fixed",
        /// Locked in memory (`MAP_LOCKED`); `POPULATE` is set, too.
        LOCKED = 32 "locked",
        /// No swap space is reserved (`MAP_NORESERVE`).
        NORESERVE = 64 "noreserve",
        /// Of huge pages only (`MAP_HUGETLB`).
        HUGE_ONLY = 128 "hugetlb",
        /// No huge pages are wanted (`MAP_STACK`, which says so since Linux 6.7).
        NO_HUGE = 256 "nohuge",
        /// The kernel may drop its pages (`MAP_DROPPABLE`).
        DROPPABLE = 512 "droppable",
        /// The area does not join others: the mapped object is no plain file (a device, a ring).
        ALONE = 1024 "alone",
        /// A System V segment.
        SEGMENT = 2048 "segment",
        /// The call gave up the lock of the space before it made pages present: a *touched* event
        /// says where it has. In recordings with tracepoints, where another event came in between.
        LATER = 4096 "later",
    }
}

impl MapFlags {
    pub(crate) const V1: u16 = 31;
    pub(crate) const ALL: u16 = 8191;
}

flags! {
    /// The cause of a page fault.
    pub struct FaultFlags(u8) {
        /// The page was present: a protection fault, mostly copy-on-write.
        PRESENT = 1 "present",
        /// A write.
        WRITE = 2 "write",
        /// From user mode. Without this flag the kernel accessed a user address, for example in
        /// `copy_to_user`.
        USER = 4 "user",
        /// It was refused: a signal or an error followed, and no page was made present. Not in
        /// traces of format 1, whose faults may have been refused all the same.
        REFUSED = 8 "refused",
        /// An instruction fetch.
        EXEC = 16 "exec",
        /// The fault is known to have read, in a recording that does not tell reads from writes.
        /// Not in traces of format 1.
        READ = 64 "read",
    }
}

impl FaultFlags {
    /// Of pages found present: one entry of an upper level maps whole 2 MiB of a file or of shared
    /// memory, without a last-level table. No fault has this flag.
    pub const HUGE: u8 = 32;
    pub(crate) const V1: u16 = 0x17;
    pub(crate) const ALL: u16 = 0x5f;

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

flags! {
    /// How pages are locked in memory.
    pub struct Locking(u8) {
        /// Locked (`mlock`); of all areas: those that are there (`MCL_CURRENT`). Without this flag:
        /// unlocked, or left as they are.
        NOW = 1 "now",
        /// Of all areas: those to come, too (`MCL_FUTURE`).
        FUTURE = 2 "future",
        /// Pages are locked as they come (`MLOCK_ONFAULT`, `MCL_ONFAULT`). Without this flag they
        /// are made present at once.
        ON_FAULT = 4 "on-fault",
        /// Of a range: the call made the pages present later, as with [`MapFlags::LATER`].
        LATER = 8 "later",
    }
}

impl Locking {
    pub(crate) const ALL: u16 = 7;
    /// Of a range there are no areas to come.
    pub(crate) const OF_RANGE: u16 = Self::ALL & !(Self::FUTURE as u16);
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

/// The flags of pages that were found present.
struct Found;

impl Found {
    fn get<S: Source>(self, source: &mut S) -> Result<FaultFlags, Bad> {
        BYTE.get(source)
    }

    fn put(self, sink: &mut Sink, flags: FaultFlags) {
        BYTE.put(sink, flags);
    }

    fn check(self, flags: FaultFlags, known: &Known<'_>) -> Result<(), &'static str> {
        let has = |flag: u8| flags.0 & flag != 0;
        let allowed = match (has(FaultFlags::HUGE), has(FaultFlags::WRITE)) {
            _ if matches!(flags, FaultFlags::WAITING | FaultFlags::POPULATED) => flags.0,
            (true, _) => FaultFlags::HUGE,
            (false, true) => FaultFlags::WRITE | FaultFlags::USER,
            (false, false) => FaultFlags::PRESENT | FaultFlags::USER,
        };
        BYTE.flags(allowed as u16).check(flags, known)
    }
}

/// The name of a program, behind its length.
struct ProgramName;

impl ProgramName {
    fn get<S: Source>(self, source: &mut S) -> Result<Name, Bad> {
        let len = usize::from(source.byte()?);
        let mut bytes = [0; Name::MOST];
        for byte in bytes.get_mut(..len).ok_or("the name of a program that is too long")? {
            *byte = source.byte()?;
        }
        let text = std::str::from_utf8(&bytes[..len]).map_err(|_| "the name of a program is not UTF-8")?;
        let name = Name::new(text);
        if name.as_str() == text { Ok(name) } else { Err("the name of a program is not one".into()) }
    }

    fn put(self, sink: &mut Sink, name: Name) {
        sink.rows.push(name.as_str().len() as u8);
        sink.rows.extend(name.as_str().as_bytes());
    }

    fn check(self, _: Name, _: &Known<'_>) -> Result<(), &'static str> {
        Ok(())
    }
}

events! {
    /// A call that failed and may have changed areas or tables before.
    pub enum FailedCall {
        /// `mprotect`, which stops at the first hole.
        Mprotect = 0x0e07 "mprotect" {
            /// New permissions.
            prot: Prot = BYTE.flags(Prot::ALL), "byte protection";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [prot, start: Page, pages]

        /// `madvise`, which passes over holes and stops at an area that the advice is not for.
        Madvise = 0x0e08 "madvise" {
            /// The advice, in Linux's numbering.
            advice: u16 = number("an unknown advice"), "number advice";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [advice, start: Page, pages]

        /// `mlock` and its like, which stop at the first hole, and make pages present up to the
        /// first one that cannot be.
        Lock = 0x0e09 "lock" {
            /// How.
            how: Locking = BYTE.flags(Locking::OF_RANGE), "byte how";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [how, start: Page, pages]

        /// `mremap` of several areas (Linux 6.17), which stops at one that cannot be moved with
        /// others.
        Mremap = 0x0e0a "mremap" {
            /// First page of the old place.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
            /// `MREMAP_DONTUNMAP`.
            keep: bool = FLAG, "byte: 1 for `MREMAP_DONTUNMAP`, else 0";
            /// First page of the new place.
            to: u64 = Delta(start, pages), "signed difference of the new place";
        } -> [to: Page, keep, start: Page, pages]
    }
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

    /// Returns the name of the call.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.row().1
    }
}

events! {
    /// The kinds of events. `page` and `start` are page numbers; `pages` are lengths in pages.
    pub enum Kind {
        /// A page fault.
        Fault = 0 "fault" {
            /// The cause.
            flags: FaultFlags = BYTE.flags(FaultFlags::ALL), "byte flags";
            /// The page.
            page: u64 = Page, "page";
        } -> [page: Page, flags]

        /// A new task. `Event::task` is the parent.
        Clone = 1 "clone" {
            /// The parts that it shares.
            kind: CloneKind = byte("an unknown kind of clone"), "byte kind";
            /// The new task's number.
            child: u32 = Child, "the child's number is the next";
        } -> [child, kind "how"]

        /// `execve` passed the point of no return. The task has a new address space with nothing
        /// but the argument pages, at the end of a temporary stack. The areas that `execve` makes
        /// follow as `Area` events, the stack at its final place among them.
        Exec = 2 "exec" {
            /// Page number of the end of the temporary stack (`STACK_TOP_MAX`).
            stack_end: u64 = ABSOLUTE, "number stack end (absolute page number)";
            /// Pages of arguments and environment below that end, at least 1. 0 for the state of a
            /// process that ran already: see [`Openings`](crate::Openings).
            arg_pages: u32 = number("too many argument pages"), "number argument pages";
        } -> [stack_end: Page "stack-end", arg_pages "arg-pages"]

        /// An area that `execve` made. The stack has its size at the end of `execve`.
        Area = 3 "area" {
            /// Permissions.
            prot: Prot,
            /// Kind of area.
            kind: AreaKind = byte("an unknown kind of area").flags(0x1f),
                "byte: bits 0–2 protection, bits 3–4 kind";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages, prot, kind]

        /// A task exited. If it was the last of its address space, the space is torn down
        /// afterwards.
        Exit = 4 "exit" {
            /// Whether it was the last of its thread group.
            last: bool = FLAG, "byte: 1 if it was the last of its thread group, else 0";
        } -> [last]

        /// A successful `mmap`.
        Mmap = 5 "mmap" {
            /// Permissions.
            prot: Prot = BYTE.flags(Prot::ALL), "byte protection";
            /// Kind of mapping.
            flags: MapFlags = number("unknown flags").flags(MapFlags::ALL), "number flags";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages, prot, flags]

        /// A successful `munmap`.
        Munmap = 6 "munmap" {
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages]

        /// `brk`, with the new end of the heap. The first one after an `Exec` marks the start of
        /// the empty heap. Later ones may leave the end where it is.
        Brk = 7 "brk" {
            /// First page after the heap.
            end: u64 = Page, "page";
        } -> [end: Page]

        /// A successful `mremap`.
        Mremap = 8 "mremap" {
            /// First page of the old place.
            from: u64,
            /// Old length. 0 duplicates a shared mapping.
            old_pages: u64 = Range(0), "page (old place); pages (old length)";
            /// `MREMAP_DONTUNMAP`: the old area stays, without pages.
            keep: bool = FLAG, "byte: 1 for `MREMAP_DONTUNMAP`, else 0";
            /// First page of the new place (may be `from`).
            to: u64 = Delta(from, 1), "signed difference of the new place from the old";
            /// New length.
            new_pages: u64 = Length(to), "number new length";
        } -> [from: Page, old_pages "old-pages", to: Page, new_pages "new-pages", keep]

        /// A successful `mprotect`.
        Mprotect = 9 "mprotect" {
            /// New permissions.
            prot: Prot = BYTE.flags(Prot::ALL), "byte protection";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages, prot]

        /// A successful `madvise`. In traces of format 1, `mlock` is advice 22,
        /// `MADV_POPULATE_READ`.
        Madvise = 10 "madvise" {
            /// The advice, in Linux's numbering (4 is `MADV_DONTNEED`).
            advice: u16 = number("an unknown advice"), "number advice, below 65536";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages, advice]

        /// Linux flushed its TLB. This is data for comparison, not for replay.
        TlbFlush = 11 "tlb-flush" {
            /// The reason, in Linux's numbering (`enum tlb_flush_reason`).
            /// [`FlushEvent::of`](crate::FlushEvent::of) has its meaning: not each event is a
            /// flush.
            reason: u8 = BYTE, "byte [reason](#reasons-of-flushes)";
            /// Number of pages flushed, or 0 for the whole TLB.
            pages: u64 = ABSOLUTE, "number pages, 0 for all";
        } -> [pages, reason]

        /// The CPU became idle after running `Event::task`. Like `TlbFlush`, this may follow the
        /// task's `Exit`.
        Idle = 12 "idle"

        /// Linux's count of the page-table pages of the task's address space: `VmPTE` divided by
        /// the page size. It covers PTE, PMD and PUD pages, not the root. It is recorded only if no
        /// other task could change the address space meanwhile.
        Truth = 13 "truth" {
            /// When the count was read.
            at: Sampled = byte("an unknown kind of sample"), "byte: 0 at an exit, 1 before an exec";
            /// The count.
            tables: u32 = number("too many tables"), "number tables";
        } -> [tables, at]

        /// A successful `mlock`, `mlock2` or `munlock`. Not in traces of format 1.
        Lock = 0x0e01 "lock" {
            /// How.
            how: Locking = BYTE.flags(Locking::OF_RANGE | Locking::LATER as u16), "byte how";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages, how]

        /// A successful `mlockall` or `munlockall`. Not in traces of format 1.
        LockAll = 0x0e02 "lock-all" {
            /// How.
            how: Locking = BYTE.flags(Locking::ALL), "byte how";
        } -> [how]

        /// The task's limit for its stack (`RLIMIT_STACK`), from here on. Not in traces of format
        /// 1, where it is taken to be 8 MiB.
        StackLimit = 0x0e03 "stack-limit" {
            /// Length; `u64::MAX >> 12` if there is no limit.
            pages: u64 = ABSOLUTE, "number pages; 2^52 − 1 is no limit";
        } -> [pages]

        /// The name of the program that an `Exec` started. Optional.
        Name = 0x0e04 "name" (
            /// The name.
            name: Name = ProgramName,
                "byte length, at most 15; that many bytes of UTF-8, without control characters and slashes";
        ) -> [name]

        /// The number that the system knew the task by. Optional.
        Pid = 0x0e05 "pid" (
            /// The number.
            pid: u32 = number("a process number of more than 32 bits"), "number, at most 32 bits";
        ) -> [pid]

        /// Pages that were found present at a stop, though no other event says how they came. Not
        /// in traces of format 1.
        Touched = 0x0e06 "touched" {
            /// `WRITE` if they are private pages of this address space alone, `PRESENT` if they are
            /// private pages that another space maps, too, as fork shares them; `USER` if the task
            /// asked for them by a call (`mmap` that makes pages of a file present), `HUGE` if
            /// upper entries map them. [`FaultFlags::WAITING`] and [`FaultFlags::POPULATED`] are
            /// about the locks of a space with several tasks: nobody has looked at the pages.
            flags: FaultFlags = Found,
                "byte flags: 2 private pages of this space alone, 1 private pages that another space maps \
                 too, 4 by a call of the task, 12 not there yet, a fault waits, 14 populated by an earlier \
                 mmap or lock, 32 mapped by entries of an upper level";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages, flags]

        /// A call that failed half-way. Not in traces of format 1.
        Failed = 0x0e07..=0x0e0a "failed" {
            /// The error, in Linux's numbering.
            errno: u8 = BYTE, "byte error";
            /// The call.
            call: FailedCall = Variant, "the call's fields";
        } -> [call: Event, errno]

        /// A fact about the recorded machine, which is not replayed. Not in traces of formats 1 and
        /// 2.
        Note = 0x0e0d..=0x0e14 "note" (
            /// The fact.
            note: Note = Variant, "the note's fields";
        ) -> [note: Fields]
    }
}

impl Kind {
    /// Returns the name of the kind, that of a note for notes: `tlb-flush`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Note(note) => note.name(),
            kind => kind.row().1,
        }
    }

    /// Returns the names of all kinds.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let kinds = Self::ROWS.iter().filter(|row| row.1 != "note");
        kinds.chain(Note::ROWS).map(|row| row.1)
    }

    /// Returns the number of the kind: one byte, or two.
    #[inline]
    pub(crate) const fn code(&self) -> u16 {
        match self {
            Self::Failed { call, .. } => call.row().0,
            Self::Note(note) => note.code(),
            kind => kind.row().0,
        }
    }

    /// Returns the call that the event is of, as times and callers name it. `None` for faults,
    /// notes and facts that no call of the task has made.
    #[must_use]
    pub const fn call(&self) -> Option<Call> {
        Some(match self {
            Self::Clone { kind: CloneKind::Fork, .. } => Call::Fork,
            Self::Clone { kind: CloneKind::Vfork, .. } => Call::Vfork,
            Self::Clone { kind: CloneKind::Share, .. } => Call::Clone,
            Self::Exec { .. } => Call::Exec,
            Self::Exit { .. } => Call::Exit,
            Self::Mmap { .. } => Call::Mmap,
            Self::Munmap { .. } => Call::Munmap,
            Self::Brk { .. } => Call::Brk,
            Self::Mremap { .. } => Call::Mremap,
            Self::Mprotect { .. } => Call::Mprotect,
            Self::Madvise { .. } => Call::Madvise,
            Self::Lock { .. } | Self::LockAll { .. } => Call::Lock,
            _ => return None,
        })
    }

    /// Returns the first page and the length of the range that the event names; of `mremap` the old
    /// one. `None` for notes and for kinds without a range.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Area { start, pages, .. }
            | Self::Mmap { start, pages, .. }
            | Self::Munmap { start, pages }
            | Self::Mprotect { start, pages, .. }
            | Self::Madvise { start, pages, .. }
            | Self::Lock { start, pages, .. }
            | Self::Touched { start, pages, .. }
            | Self::Mremap { from: start, old_pages: pages, .. } => Some((start, pages)),
            Self::Failed { call, .. } => Some(call.range()),
            _ => None,
        }
    }

    /// Returns the event with another range, if it has one.
    #[must_use]
    pub fn with_range(mut self, first: u64, length: u64) -> Self {
        match &mut self {
            Self::Area { start, pages, .. }
            | Self::Mmap { start, pages, .. }
            | Self::Munmap { start, pages }
            | Self::Mprotect { start, pages, .. }
            | Self::Madvise { start, pages, .. }
            | Self::Lock { start, pages, .. }
            | Self::Touched { start, pages, .. }
            | Self::Mremap { from: start, old_pages: pages, .. } => (*start, *pages) = (first, length),
            Self::Failed { call, .. } => call.set_range(first, length),
            _ => {}
        }
        self
    }
}

/// The value of a field of an event, for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A page number.
    Page(u64),
    /// Any other number.
    Number(u64),
    /// Whether something holds.
    Flag(bool),
    /// One of several words.
    Word(&'static str),
    /// A set of bits, and the names of bits.
    Set(u64, &'static [(u64, &'static str)]),
    /// The name of a program.
    Name(Name),
    /// The name of a file.
    Text(Option<Text>),
    /// A place in a program.
    Place(Option<PlaceId>),
}

macro_rules! values {
    ($($type:ty: $value:ident => $made:expr;)*) => {$(
        impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $made
            }
        }
    )*};
}

values! {
    u8: n => Self::Number(n.into());
    u16: n => Self::Number(n.into());
    u32: n => Self::Number(n.into());
    u64: n => Self::Number(n);
    bool: flag => Self::Flag(flag);
    Name: name => Self::Name(name);
    Text: text => Self::Text(Some(text));
    Option<Text>: text => Self::Text(text);
    Option<PlaceId>: place => Self::Place(place);
    Cause: cause => Self::Word(cause.name());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::more;
    use std::collections::BTreeSet;

    const DOCUMENT: &str = include_str!("../trace-format.md");

    /// The rows of the document's table behind a line, up to the end of the table.
    fn rows(heading: &str) -> BTreeSet<&'static str> {
        let table = DOCUMENT.split_once(heading).expect("the heading of a table").1;
        table.lines().skip(1).take_while(|line| line.starts_with('|')).collect()
    }

    /// A row of the document.
    fn line(code: u16, name: &str, fields: &[&str]) -> String {
        let version = match more::since(code as u8) {
            since @ 3.. if Note::ROWS.iter().any(|row| row.0 == code) => format!("version {since}: "),
            _ => String::new(),
        };
        let fields = if fields.is_empty() { "–".to_owned() } else { fields.join("; ") };
        let name = if name == "pid" { "process number".to_owned() } else { name.replace('-', " ") };
        format!("| {} | {name} | {version}{fields} |", code & 0xff)
    }

    #[test]
    fn the_document_has_the_tables_of_the_code() {
        let (old, new): (Vec<_>, Vec<_>) = Kind::ROWS.iter().partition(|row| row.0 < 0x100);
        let failed = FailedCall::ROWS.iter().map(|(code, name, fields)| {
            (*code, format!("failed {name}"), [&["byte error"], *fields].concat())
        });
        let failed = failed.map(|(code, name, fields)| line(code, &name, &fields));
        let single = |row: &&(u16, &str, _)| !matches!(row.1, "failed" | "note");
        let of = |row: &(u16, &str, &[&str])| line(row.0, row.1, row.2);
        let new = new.into_iter().filter(single).chain(Note::ROWS).map(of).chain(failed);
        for (heading, expected, others) in [
            ("\n| kind | | fields |\n", old.into_iter().map(of).collect::<BTreeSet<_>>(), 2),
            ("\n| byte | | further fields |\n", new.collect(), 3),
        ] {
            let found = rows(heading);
            let missing: Vec<_> = expected.iter().filter(|row| !found.contains(row.as_str())).collect();
            assert!(missing.is_empty(), "{heading}: {missing:#?}");
            // The rows that are no events.
            assert_eq!(found.len(), expected.len() + others, "{heading}");
        }
    }

    #[test]
    fn each_kind_has_a_name() {
        let names: BTreeSet<_> = Kind::names().collect();
        assert_eq!(names.len(), Kind::names().count(), "no name stands for two kinds");
        assert!(names.contains("tlb-flush") && names.contains("stop-cost") && !names.contains("note"));
    }
}
