//! Notes: how long calls took, what a process used, which mapping and which function it was.
//!
//! They describe the recorded machine and are not replayed. Format 3 has added them.
use crate::symbols::{PlaceId, Text};

/// A call of a task on its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Call {
    /// `fork`, or `clone` of a process with a copy of the address space.
    Fork = 0,
    /// `vfork`. Its time includes the child's up to its `execve` or exit.
    Vfork = 1,
    /// `clone` of a thread, or of another task with the same address space.
    Clone = 2,
    /// `execve`, `execveat`.
    Exec = 3,
    /// `exit`, `exit_group`, or an end by a signal. The end of the address space is part of it.
    Exit = 4,
    /// `mmap`.
    Mmap = 5,
    /// `munmap`.
    Munmap = 6,
    /// `brk`.
    Brk = 7,
    /// `mremap`.
    Mremap = 8,
    /// `mprotect`, `pkey_mprotect`.
    Mprotect = 9,
    /// `madvise`.
    Madvise = 10,
    /// `mlock`, `munlock` and the calls for all areas.
    Lock = 11,
    /// `shmat`, `shmdt`.
    Segment = 12,
}

impl Call {
    /// All calls, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Fork,
        Self::Vfork,
        Self::Clone,
        Self::Exec,
        Self::Exit,
        Self::Mmap,
        Self::Munmap,
        Self::Brk,
        Self::Mremap,
        Self::Mprotect,
        Self::Madvise,
        Self::Lock,
        Self::Segment,
    ];

    /// Returns the name of the call: `fork`, `mmap`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fork => "fork",
            Self::Vfork => "vfork",
            Self::Clone => "clone",
            Self::Exec => "execve",
            Self::Exit => "exit",
            Self::Mmap => "mmap",
            Self::Munmap => "munmap",
            Self::Brk => "brk",
            Self::Mremap => "mremap",
            Self::Mprotect => "mprotect",
            Self::Madvise => "madvise",
            Self::Lock => "mlock",
            Self::Segment => "shmat",
        }
    }
}

/// The work that a function caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Page faults.
    Fault,
    /// A call.
    Call(Call),
}

impl Cause {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Fault => 0,
            Self::Call(call) => 1 + call as u8,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Fault),
            n => Call::ALL.get(usize::from(n) - 1).copied().map(Self::Call),
        }
    }
}

/// The kind of object that a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Object {
    /// The program itself.
    Program = 0,
    /// A shared library, or another file with executable pages.
    Library = 1,
    /// A file of data.
    File = 2,
    /// Memory shared between processes: `/dev/shm`, `memfd_create`, a System V segment, or shared
    /// anonymous memory.
    SharedMemory = 3,
    /// A device.
    Device = 4,
    /// The stack of a thread other than the first.
    ThreadStack = 5,
}

impl Object {
    pub(crate) const ALL: [Self; 6] =
        [Self::Program, Self::Library, Self::File, Self::SharedMemory, Self::Device, Self::ThreadStack];

    /// Returns a short name: `program`, `shared memory`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Library => "library",
            Self::File => "file",
            Self::SharedMemory => "shared memory",
            Self::Device => "device",
            Self::ThreadStack => "thread stack",
        }
    }
}

/// The runtime or allocator that a process has, told by its program and libraries. A process may
/// have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Runtime {
    /// The GNU C library, with its `malloc`.
    Glibc = 0,
    /// The C library musl.
    Musl = 1,
    /// The allocator jemalloc.
    Jemalloc = 2,
    /// The allocator tcmalloc.
    Tcmalloc = 3,
    /// The allocator mimalloc.
    Mimalloc = 4,
    /// A Java virtual machine.
    Jvm = 5,
    /// The runtime of Go.
    Go = 6,
    /// The JavaScript engine V8.
    V8 = 7,
    /// CPython.
    Python = 8,
}

impl Runtime {
    pub(crate) const ALL: [Self; 9] = [
        Self::Glibc,
        Self::Musl,
        Self::Jemalloc,
        Self::Tcmalloc,
        Self::Mimalloc,
        Self::Jvm,
        Self::Go,
        Self::V8,
        Self::Python,
    ];

    /// Returns the name: `glibc`, `V8`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
            Self::Jemalloc => "jemalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Mimalloc => "mimalloc",
            Self::Jvm => "JVM",
            Self::Go => "Go",
            Self::V8 => "V8",
            Self::Python => "Python",
        }
    }
}

/// A fact about the recorded machine that no replay needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A call of the task has ended. It stands behind the call's own event if there is one. That of
    /// an exit is behind the `Exit`.
    Took {
        /// The call.
        call: Call,
        /// Nanoseconds between entry and return in which the task ran. For [`Call::Vfork`] the wait
        /// for the child counts. In recordings without tracepoints the cost of the stops counts,
        /// too: see [`StopCost`](Self::StopCost).
        nanos: u64,
        /// Nanoseconds between entry and return in which the task did not run.
        away: u64,
    },
    /// All that a process, with all of its threads, has used. It stands before or behind the last
    /// thread's `Exit`.
    Used {
        /// CPU time in user mode, in microseconds.
        user: u64,
        /// CPU time in the kernel, in microseconds.
        system: u64,
        /// Faults that needed no device.
        minor: u64,
        /// Faults that waited for a device.
        major: u32,
        /// Switches to another task because this one waited.
        waits: u32,
        /// Switches to another task although this one could have gone on.
        preempted: u32,
    },
    /// The object that an area shows.
    Mapped {
        /// First page.
        start: u64,
        /// Length.
        pages: u64,
        /// Kind of object.
        object: Object,
        /// Its name without a path, if the person who recorded wanted names.
        name: Option<Text>,
    },
    /// The process has this runtime or allocator.
    Runtime(
        /// Which.
        Runtime,
    ),
    /// The function that caused faults of the task, or makes a call. The note stands behind the
    /// fault that was sampled, and before the call.
    Caller {
        /// The work.
        cause: Cause,
        /// Page of the fault, or first page of the call's range; 0 for calls without one.
        page: u64,
        /// How many of such events the note stands for: more than 1 if callers were sampled.
        events: u64,
        /// The place in the program. `None` if it could not be found.
        place: Option<PlaceId>,
    },
    /// About so many nanoseconds of each call's time were spent in the recorder's stops.
    StopCost {
        /// Nanoseconds a call.
        nanos: u64,
    },
}

impl Note {
    /// Returns the note without names of files and functions, for a trace that is given to others.
    /// `None` if nothing else is in it.
    #[must_use]
    pub fn without_symbols(self) -> Option<Self> {
        match self {
            Self::Mapped { start, pages, object, .. } => {
                Some(Self::Mapped { start, pages, object, name: None })
            }
            Self::Caller { .. } => None,
            other => Some(other),
        }
    }

    /// Returns whether the note may stand behind its task's exit.
    pub(crate) fn may_follow_exit(&self) -> bool {
        matches!(self, Self::Took { call: Call::Exit, .. } | Self::Used { .. })
    }
}
