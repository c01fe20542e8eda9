//! Notes: how long calls took, what a process used, which mapping and which function it was.
//!
//! They describe the recorded machine and are not replayed. Formats 3 and 4 have added them.
use crate::symbols::{PlaceId, Text};
use crate::wire::{DURATION, MAX_DURATION, NUMBER, Page, Plain, RANGE, byte, number};

codes! {
    /// A call of a task on its address space.
    #[non_exhaustive]
    pub enum Call {
        /// `fork`, or `clone` of a process with a copy of the address space.
        Fork = 0 "fork",
        /// `vfork`. Its time includes the child's up to its `execve` or exit.
        Vfork = 1 "vfork",
        /// `clone` of a thread, or of another task with the same address space.
        Clone = 2 "clone",
        /// `execve`, `execveat`.
        Exec = 3 "execve",
        /// `exit`, `exit_group`, or an end by a signal. The end of the address space is part of it.
        Exit = 4 "exit",
        /// `mmap`.
        Mmap = 5 "mmap",
        /// `munmap`.
        Munmap = 6 "munmap",
        /// `brk`.
        Brk = 7 "brk",
        /// `mremap`.
        Mremap = 8 "mremap",
        /// `mprotect`, `pkey_mprotect`.
        Mprotect = 9 "mprotect",
        /// `madvise`.
        Madvise = 10 "madvise",
        /// `mlock`, `munlock` and the calls for all areas.
        Lock = 11 "mlock",
        /// `shmat`, `shmdt`.
        Segment = 12 "shmat",
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
    /// Returns the name: that of the call, or `fault`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Call(call) => call.name(),
        }
    }
}

impl Plain for Cause {
    fn of(number: u64) -> Option<Self> {
        match number.checked_sub(1) {
            None => Some(Self::Fault),
            Some(call) => Call::of(call).map(Self::Call),
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Fault => 0,
            Self::Call(call) => 1 + call.number(),
        }
    }
}

codes! {
    /// The kind of object that a mapping shows.
    #[non_exhaustive]
    pub enum Object {
        /// The program itself.
        Program = 0 "program",
        /// A shared library, or another file with executable pages.
        Library = 1 "library",
        /// A file of data.
        File = 2 "file",
        /// Memory shared between processes: `/dev/shm`, `memfd_create`, a System V segment, or
        /// shared anonymous memory.
        SharedMemory = 3 "shared memory",
        /// A device.
        Device = 4 "device",
        /// The stack of a thread other than the first.
        ThreadStack = 5 "thread stack",
    }
}

codes! {
    /// The runtime or allocator that a process has, told by its program and libraries. A process
    /// may have several.
    #[non_exhaustive]
    pub enum Runtime {
        /// The GNU C library, with its `malloc`.
        Glibc = 0 "glibc",
        /// The C library musl.
        Musl = 1 "musl",
        /// The allocator jemalloc.
        Jemalloc = 2 "jemalloc",
        /// The allocator tcmalloc.
        Tcmalloc = 3 "tcmalloc",
        /// The allocator mimalloc.
        Mimalloc = 4 "mimalloc",
        /// A Java virtual machine.
        Jvm = 5 "JVM",
        /// The runtime of Go.
        Go = 6 "Go",
        /// The JavaScript engine V8.
        V8 = 7 "V8",
        /// CPython.
        Python = 8 "Python",
    }
}

codes! {
    /// Why a program that ran is not in the recording.
    #[non_exhaustive]
    pub enum UnreadReason {
        /// It ended before it was read.
        Ended = 0 "ended",
        /// It changed while it was read: its mappings, or itself by a fork or another program.
        Changed = 1 "changed",
        /// It ran under another tracer.
        OtherTracer = 2 "other tracer",
        /// It has 32 bits.
        Narrow = 3 "32 bits",
        /// The recording ended before it was read.
        RecordingEnded = 4 "recording ended",
    }
}

events! {
    /// A fact about the recorded machine that no replay needs.
    pub enum Note {
        /// A call of the task has ended. It stands behind the call's own event if there is one.
        /// That of an exit is behind the `Exit`.
        Took = 0x0e0d "took" {
            /// The call.
            call: Call = byte("an unknown call"), "byte call";
            /// Nanoseconds between entry and return in which the task ran. For [`Call::Vfork`] the
            /// wait for the child counts. In recordings without tracepoints the cost of the stops
            /// counts, too: see [`StopCost`](Self::StopCost).
            nanos: u64 = DURATION, "number nanoseconds";
            /// Nanoseconds between entry and return in which the task did not run.
            away: u64 = DURATION, "number nanoseconds away";
        } -> [call, nanos "ns", away "away-ns"]

        /// All that a process, with all of its threads, has used. It stands before or behind the
        /// last thread's `Exit`.
        Used = 0x0e0e "used" {
            /// CPU time in user mode, in microseconds.
            user: u64 = DURATION, "numbers: microseconds in user mode";
            /// CPU time in the kernel, in microseconds.
            system: u64 = DURATION, "microseconds in the kernel";
            /// Faults that needed no device.
            minor: u64 = NUMBER.within(MAX_DURATION - 1, "too many faults"), "minor faults";
            /// Faults that waited for a device.
            major: u32 = NUMBER, "major faults";
            /// Switches to another task because this one waited.
            waits: u32 = NUMBER, "waits";
            /// Switches to another task although this one could have gone on.
            preempted: u32 = NUMBER, "preemptions";
        } -> [user "user-us", system "system-us", minor, major, waits, preempted]

        /// The object that an area shows.
        Mapped = 0x0e0f "mapped" {
            /// Kind of object.
            object: Object = byte("an unknown object"), "byte object";
            /// Its name without a path, if the person who recorded wanted names.
            name: Option<Text> = NUMBER, "*text* name, without slashes";
            /// First page.
            start: u64,
            /// Length.
            pages: u64 = RANGE, "page; pages";
        } -> [start: Page, pages, object, name]

        /// The process has this runtime or allocator.
        Runtime = 0x0e10 "runtime" (
            /// Which.
            runtime: Runtime = byte("an unknown runtime"), "byte";
        ) -> [runtime]

        /// The function that caused faults of the task, or makes a call. The note stands behind the
        /// fault that was sampled, and before the call.
        Caller = 0x0e11 "caller" {
            /// The work.
            cause: Cause = byte("an unknown call"), "byte 0 for faults, else the call plus 1";
            /// How many of such events the note stands for: more than 1 if callers were sampled.
            events: u64 = NUMBER.within(MAX_DURATION - 1, "a caller of no or too many events").at_least(1),
                "number events, at least 1";
            /// The place in the program. `None` if it could not be found.
            place: Option<PlaceId> = NUMBER, "number of the place plus 1, 0 if unknown";
            /// Page of the fault, or first page of the call's range; 0 for calls without one.
            page: u64 = Page, "page";
        } -> [cause "of", page: Page, events, place]

        /// About so many nanoseconds of each call's time were spent in the recorder's stops.
        StopCost = 0x0e12 "stop-cost" {
            /// Nanoseconds a call.
            nanos: u64 = DURATION, "number nanoseconds";
        } -> [nanos "ns"]

        /// A setting of the recorded machine: see [`Settings`](crate::Settings). All of them stand
        /// before any other event. Not in traces of format 3.
        Setting = 0x0e13 "setting" {
            /// Its name. No two settings have the same.
            name: Text = number("a setting without a name"), "*text* name";
            /// Its value.
            value: Text = number("a setting without a value"), "*text* value, without slashes";
        } -> [name, value]

        /// A program that ran and is not in the recording. The task is the program's, or 0 if it
        /// has none. It may have exited. Not in traces of format 3.
        Unread = 0x0e14 "unread" {
            /// The program's name, if known.
            name: Option<Text> = NUMBER, "*text* name, without slashes";
            /// The reason.
            why: UnreadReason = byte("an unknown reason"),
                "byte: 0 it ended before it was read, 1 it changed meanwhile, 2 it ran under another \
                 tracer, 3 it has 32 bits, 4 the recording ended before";
        } -> [why, name]
    }
}

impl Note {
    /// Returns the name of the note: `stop-cost`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.row().1
    }

    pub(crate) const fn code(&self) -> u16 {
        self.row().0
    }

    /// Returns the note without names of files, functions and programs, for a trace that is given
    /// to others. `None` if nothing else is in it. A setting stays as it is: write its texts to the
    /// new trace by [`Writer::setting`](crate::Writer::setting).
    #[must_use]
    pub fn without_symbols(self) -> Option<Self> {
        match self {
            Self::Mapped { start, pages, object, .. } => {
                Some(Self::Mapped { start, pages, object, name: None })
            }
            Self::Caller { .. } => None,
            Self::Unread { why, .. } => Some(Self::Unread { name: None, why }),
            other => Some(other),
        }
    }

    /// Returns whether the note may stand behind its task's exit.
    pub(crate) fn may_follow_exit(&self) -> bool {
        matches!(self, Self::Took { call: Call::Exit, .. } | Self::Used { .. } | Self::Unread { .. })
    }
}
