//! What a trace is made of.
//!
//! All addresses and lengths are in pages (of `Header::page_shift`, 4 KiB on x86-64): a page number is a
//! virtual address shifted right.

/// One thing that happened: on which CPU, to which task, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The task it happened to: dense numbers in order of creation, 0 is the command itself. A number is never
    /// used again.
    pub task: u32,
    /// The CPU it happened on.
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
    /// `vfork`: the same address space, the parent waits for the child's `execve` or exit.
    Vfork = 1,
    /// A thread, or any other task made with `CLONE_VM`: the same address space, nobody waits.
    Share = 2,
}

/// What an area that `execve` itself made is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AreaKind {
    /// A segment of the program or of its interpreter, backed by a file.
    File = 0,
    /// Anonymous memory of the program image (`.bss`, the heap that `brk` grows).
    Anon = 1,
    /// The stack, where `execve` moved it to.
    Stack = 2,
    /// Mapped by the kernel for its own ends: vdso, vvar.
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

/// What kind of mapping an `mmap` made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MapFlags(pub u8);

impl MapFlags {
    /// Writes are seen by others (`MAP_SHARED`); without it the mapping is private, copied on write.
    pub const SHARED: u8 = 1;
    /// Not backed by a file.
    pub const ANON: u8 = 2;
    /// All pages are made present at once (`MAP_POPULATE`, `MAP_LOCKED`).
    pub const POPULATE: u8 = 4;
    /// The area grows downwards when touched below (`MAP_GROWSDOWN`).
    pub const GROWSDOWN: u8 = 8;
    /// Replaces what was mapped there (`MAP_FIXED`).
    pub const FIXED: u8 = 16;
}

/// How a page fault came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaultFlags(pub u8);

impl FaultFlags {
    /// The page was present: a protection fault (copy-on-write, mostly).
    pub const PRESENT: u8 = 1;
    /// A write.
    pub const WRITE: u8 = 2;
    /// From user mode; without it the kernel touched a user address (`copy_to_user` and its like).
    pub const USER: u8 = 4;
    /// An instruction fetch.
    pub const EXEC: u8 = 16;
}

/// When a `VmPTE` sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Sampled {
    /// A task was about to exit, the last of its address space but for a parent that waits for its vfork.
    Exit = 0,
    /// A task was about to call `execve` (which may have failed afterwards).
    Exec = 1,
}

/// What happened. `page`, `start` are page numbers, `pages` lengths in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page fault.
    Fault {
        /// The page touched.
        page: u64,
        /// How.
        flags: FaultFlags,
    },
    /// A new task; `Event::task` is the parent.
    Clone {
        /// The new task's number.
        child: u32,
        /// What it shares.
        kind: CloneKind,
    },
    /// `execve` reached the point of no return: the task has a new, empty address space with only the argument
    /// pages at the top of a temporary stack. The areas that `execve` makes follow as `Area` events, the final
    /// place of the stack among them.
    Exec {
        /// Page number of the end of the temporary stack (`STACK_TOP_MAX`).
        stack_end: u64,
        /// Pages of arguments and environment written just below it, 0 when not known.
        arg_pages: u32,
    },
    /// `execve` made this area itself. For the stack: its size when `execve` was done with it.
    Area {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// Permissions.
        prot: Prot,
        /// What it is.
        kind: AreaKind,
    },
    /// A task ended; the address space, if this was its last task, is torn down after it.
    Exit {
        /// It was the last of its thread group.
        last: bool,
    },
    /// `mmap` that succeeded.
    Mmap {
        /// Where it was placed.
        start: u64,
        /// Length.
        pages: u64,
        /// Permissions.
        prot: Prot,
        /// Shared, anonymous and so on.
        flags: MapFlags,
    },
    /// `munmap` that succeeded.
    Munmap {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
    },
    /// `brk`: the end of the heap is here now. The first one after an `Exec` says where the heap, still empty,
    /// begins; later ones may repeat the end that is.
    Brk {
        /// First page after the heap.
        end: u64,
    },
    /// `mremap` that succeeded.
    Mremap {
        /// First page of the old place.
        from: u64,
        /// Old length.
        old_pages: u64,
        /// First page of the new place (may be `from`).
        to: u64,
        /// New length.
        new_pages: u64,
        /// `MREMAP_DONTUNMAP`: the old area stays, empty.
        keep: bool,
    },
    /// `mprotect` that succeeded.
    Mprotect {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// New permissions.
        prot: Prot,
    },
    /// `madvise` that succeeded; `mlock` appears as advice 22, `MADV_POPULATE_READ`.
    Madvise {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// The advice, as Linux numbers it (4 is `MADV_DONTNEED`).
        advice: u16,
    },
    /// Linux flushed its TLB: data to compare with, nothing to replay.
    TlbFlush {
        /// Pages flushed, 0 for the whole TLB.
        pages: u64,
        /// The reason, as Linux numbers it (`enum tlb_flush_reason`).
        reason: u8,
    },
    /// The CPU had nothing more to run: `Event::task` was the last to run there. Like `TlbFlush` it may come
    /// after the `Exit` of its task.
    Idle,
    /// Linux's own count of the page-table pages of the task's address space (PTE, PMD and PUD pages; not the
    /// top), which is `VmPTE` divided by the page size. Only there when no other task could change the address
    /// space while it was read.
    Truth {
        /// The count.
        tables: u32,
        /// When it was read.
        at: Sampled,
    },
}
