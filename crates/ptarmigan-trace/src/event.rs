//! The events of a trace.
//!
//! All addresses and lengths are in pages of `Header::page_shift`, 4 KiB on x86-64. A page number
//! is a virtual address shifted right.

/// One event: the CPU, the task, and what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The task. Numbers are dense, in order of creation; 0 is the recorded command. No number is
    /// reused.
    pub task: u32,
    /// The CPU.
    pub cpu: u16,
    /// What happened.
    pub kind: Kind,
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

/// The kind of a mapping made by `mmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MapFlags(pub u8);

impl MapFlags {
    /// Writes are shared (`MAP_SHARED`). Without this flag the mapping is private and copied on
    /// write.
    pub const SHARED: u8 = 1;
    /// Not backed by a file.
    pub const ANON: u8 = 2;
    /// All pages are made present at once (`MAP_POPULATE`, `MAP_LOCKED`).
    pub const POPULATE: u8 = 4;
    /// The area grows downwards on faults below it (`MAP_GROWSDOWN`).
    pub const GROWSDOWN: u8 = 8;
    /// Replaces existing mappings (`MAP_FIXED`).
    pub const FIXED: u8 = 16;
}

/// The cause of a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultFlags(pub u8);

impl FaultFlags {
    /// The page was present: a protection fault, mostly copy-on-write.
    pub const PRESENT: u8 = 1;
    /// A write.
    pub const WRITE: u8 = 2;
    /// From user mode. Without this flag the kernel accessed a user address, for example in
    /// `copy_to_user`.
    pub const USER: u8 = 4;
    /// An instruction fetch.
    pub const EXEC: u8 = 16;
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

/// What happened. `page` and `start` are page numbers; `pages` are lengths in pages.
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
        /// What it shares.
        kind: CloneKind,
    },
    /// `execve` passed the point of no return. The task has a new address space with nothing but
    /// the argument pages, at the end of a temporary stack. The areas that `execve` makes follow as
    /// `Area` events, the stack at its final place among them.
    Exec {
        /// Page number of the end of the temporary stack (`STACK_TOP_MAX`).
        stack_end: u64,
        /// Pages of arguments and environment below that end; 0 if unknown.
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
    /// A successful `madvise`. `mlock` is recorded as advice 22, `MADV_POPULATE_READ`.
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
}
