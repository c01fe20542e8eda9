//! Raw events, as the sources deliver them: with times, process numbers and byte addresses.
use super::callers::CallerSample;
use super::object::MappedObject;
use super::state::SpaceState;
use super::system::counters::Counters;
use super::system::pagemap::PresentPages;
use super::system::stop_cost::StopCost;
use ptarmigan_trace::{Call, Note, Prot};

/// The CPU of an event whose source does not report it: the last CPU known for the task counts.
pub(crate) const NO_CPU: u16 = u16::MAX;

pub(crate) const CLONE_VM: u64 = libc::CLONE_VM as u64;
pub(crate) const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
pub(crate) const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;

/// Returns the call that a clone with these flags is.
pub(crate) fn clone_call(flags: u64) -> Call {
    match (flags & CLONE_VM != 0, flags & CLONE_VFORK != 0) {
        (true, true) => Call::Vfork,
        (true, false) => Call::Clone,
        (false, _) => Call::Fork,
    }
}

/// The system calls that change an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MmCall {
    Mmap,
    Munmap,
    Brk,
    Mremap,
    Mprotect,
    Madvise,
    /// `mlock` and, with its flags as third argument, `mlock2`.
    Mlock,
    Munlock,
    Mlockall,
    Munlockall,
}

impl MmCall {
    pub(crate) const ALL: [Self; 10] = [
        Self::Mmap,
        Self::Munmap,
        Self::Brk,
        Self::Mremap,
        Self::Mprotect,
        Self::Madvise,
        Self::Mlock,
        Self::Munlock,
        Self::Mlockall,
        Self::Munlockall,
    ];

    /// Returns the call that a system call of x86-64 is.
    pub(crate) fn of(number: i64) -> Option<Self> {
        Some(match number {
            libc::SYS_mmap => Self::Mmap,
            libc::SYS_munmap => Self::Munmap,
            libc::SYS_brk => Self::Brk,
            libc::SYS_mremap => Self::Mremap,
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => Self::Mprotect,
            libc::SYS_madvise => Self::Madvise,
            libc::SYS_mlock | libc::SYS_mlock2 => Self::Mlock,
            libc::SYS_munlock => Self::Munlock,
            libc::SYS_mlockall => Self::Mlockall,
            libc::SYS_munlockall => Self::Munlockall,
            _ => return None,
        })
    }

    /// Returns the kind of call whose times it counts among.
    pub(crate) fn timed_as(self) -> Call {
        match self {
            Self::Mmap => Call::Mmap,
            Self::Munmap => Call::Munmap,
            Self::Brk => Call::Brk,
            Self::Mremap => Call::Mremap,
            Self::Mprotect => Call::Mprotect,
            Self::Madvise => Call::Madvise,
            Self::Mlock | Self::Munlock | Self::Mlockall | Self::Munlockall => Call::Lock,
        }
    }
}

/// The CPU time and the counts of a process, as the trace has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Microseconds in user mode.
    pub(crate) user: u64,
    /// Microseconds in the kernel.
    pub(crate) system: u64,
    pub(crate) minor: u64,
    pub(crate) major: u32,
    pub(crate) waits: u32,
    pub(crate) preempted: u32,
}

/// The kind of a raw event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RawKind {
    /// A page fault, with the error code of x86.
    Fault {
        address: u64,
        code: u64,
    },
    /// A new task, with the flags of its clone.
    Clone {
        child: i32,
        flags: u64,
    },
    /// `execve` has passed the point of no return.
    ExecStart,
    /// `execve` has made the new address space, in which the kernel faults from now on. The stop
    /// behind it tells of the pages.
    ExecMade,
    /// `execve` has finished. The task had the number `old` before.
    ExecDone {
        old: i32,
    },
    /// The task exits.
    Exit,
    /// A system call begins.
    Enter {
        call: MmCall,
        args: [u64; 5],
    },
    /// The task holds its address space's lock for writing.
    Locked,
    /// The task gives up such a lock.
    Released,
    /// The task holds the lock for reading. A fault takes it if it cannot do with its area's.
    LockedToRead,
    /// The task has tried to lock it for reading, and somebody else held it.
    NotLocked,
    /// The system call ends.
    Leave {
        result: i64,
    },
    /// A shared-memory segment was attached (`shmat`) or detached (`shmdt`), in pages.
    Attached {
        start: u64,
        pages: u64,
        prot: Prot,
        /// `shmat`, not `remap_file_pages`.
        segment: bool,
    },
    Detached {
        start: u64,
        pages: u64,
    },
    /// The fault before was refused: a signal followed.
    Refused,
    /// A system call has failed with `EFAULT`: the kernel's faults before were refused.
    BadAddress,
    /// Pages that were found present at a stop.
    Touched {
        start: u64,
        pages: u64,
        write: bool,
    },
    /// The pages that were present at a stop, in order. If not `still`, other tasks of the space
    /// may have run meanwhile.
    Present {
        still: bool,
        found: Vec<PresentPages>,
    },
    /// `process_madvise` on this task, by itself or another.
    Advised {
        start: u64,
        pages: u64,
        advice: u16,
    },
    /// The task calls `execve` under another tracer. The call may fail.
    OtherTracer,
    /// The limit of the task's stack, in pages.
    StackLimit {
        pages: u64,
    },
    /// A mapping of a file or of named memory was made.
    Mapped(Box<MappedObject>),
    /// Where the task caused a fault, or is about to make a call.
    Sampled(Box<CallerSample>),
    /// The TLB was flushed; `u64::MAX` pages means all of it.
    TlbFlush {
        reason: u8,
        pages: u64,
    },
    /// The CPU goes on with the task `next`, 0 if it becomes idle. `state` is the kernel's word for
    /// why this task stops.
    Switch {
        next: i32,
        state: u32,
    },
    /// This task, or an interrupt during it, wakes the task `woken`, which may be new.
    Wake {
        woken: i32,
    },
    /// A system call begins that is only timed. A [`Call::Fork`] may turn out to be another clone.
    Begin {
        call: Call,
    },
    /// Such a call ends.
    End {
        result: i64,
    },
    /// Counters of the task's process, read at a stop.
    Counters(Counters),
    /// A call has ended, with its times in nanoseconds, and the CPU on which that woke the tracer.
    Took {
        call: Call,
        nanos: u64,
        away: u64,
        tracer: u16,
    },
    /// The process has ended.
    Used(Usage),
    /// Each call's time has so much of the recorder's own.
    StopCost(StopCost),
    /// The CPU becomes idle after this task.
    Idle,
    /// `VmPTE` in pages, before an execve or at the exit.
    Tables {
        tables: u32,
        exit: bool,
    },
    /// `VmPTE` in pages, of a process that goes on when the recording ends. It did not change while
    /// it was read.
    LastTables {
        tables: u32,
    },
    /// The state of a process that ran before the recording is read from here on. It has these
    /// threads.
    ReadStart {
        threads: Vec<i32>,
    },
    /// The reading has ended.
    ReadDone(Box<SpaceState>),
    /// All processes that ran before the recording have been read: its time begins.
    Begun,
}

/// One raw event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Raw {
    pub(crate) time: u64,
    pub(crate) cpu: u16,
    pub(crate) pid: i32,
    pub(crate) what: RawKind,
}

impl Raw {
    /// Encodes the event as 64-bit words for a temporary file. The first word is the number of the
    /// others.
    pub(crate) fn encode(&self) -> Vec<u64> {
        let mut w = vec![0, self.time, u64::from(self.cpu), self.pid as u32 as u64];
        match &self.what {
            RawKind::Fault { address, code } => w.extend([0, *address, *code]),
            RawKind::Clone { child, flags } => w.extend([1, *child as u32 as u64, *flags]),
            RawKind::ExecStart => w.push(2),
            RawKind::ExecDone { old } => w.extend([3, *old as u32 as u64]),
            RawKind::Exit => w.push(4),
            RawKind::Enter { call, args } => {
                w.extend([5, *call as u64]);
                w.extend(args);
            }
            RawKind::Locked => w.push(6),
            RawKind::Released => w.push(20),
            RawKind::LockedToRead => w.push(21),
            RawKind::NotLocked => w.push(43),
            RawKind::Leave { result } => w.extend([7, *result as u64]),
            RawKind::Attached { start, pages, prot, segment } => {
                w.extend([8, *start, *pages, u64::from(prot.0), u64::from(*segment)]);
            }
            RawKind::Detached { start, pages } => w.extend([9, *start, *pages]),
            RawKind::Refused => w.push(13),
            RawKind::BadAddress => w.push(18),
            RawKind::Touched { start, pages, write } => w.extend([14, *start, *pages, u64::from(*write)]),
            RawKind::OtherTracer => w.push(19),
            RawKind::StackLimit { pages } => w.extend([15, *pages]),
            RawKind::Present { still, found } => {
                w.extend([16, u64::from(*still)]);
                w.extend(found.iter().map(|f| f.word()));
            }
            RawKind::Advised { start, pages, advice } => w.extend([17, *start, *pages, u64::from(*advice)]),
            RawKind::Mapped(object) => {
                w.push(40);
                object.encode(&mut w);
            }
            RawKind::Sampled(sample) => {
                w.push(41);
                sample.encode(&mut w);
            }
            RawKind::TlbFlush { reason, pages } => w.extend([10, u64::from(*reason), *pages]),
            RawKind::Idle => w.push(11),
            RawKind::Switch { next, state } => w.extend([22, *next as u32 as u64, u64::from(*state)]),
            RawKind::Wake { woken } => w.extend([32, *woken as u32 as u64]),
            RawKind::Begin { call } => w.extend([23, *call as u64]),
            RawKind::End { result } => w.extend([24, *result as u64]),
            RawKind::Counters(counters) => {
                w.push(25);
                w.extend(counters.encode());
            }
            RawKind::Took { call, nanos, away, tracer } => {
                w.extend([26, *call as u64, *nanos, *away, u64::from(*tracer)]);
            }
            RawKind::Used(u) => {
                let (major, waits, preempted) = (u.major.into(), u.waits.into(), u.preempted.into());
                w.extend([27, u.user, u.system, u.minor, major, waits, preempted]);
            }
            RawKind::StopCost(cost) => w.extend([28, cost.together, cost.apart]),
            RawKind::Tables { tables, exit } => w.extend([12, u64::from(*tables), u64::from(*exit)]),
            RawKind::LastTables { tables } => w.extend([29, u64::from(*tables)]),
            RawKind::ReadStart { threads } => {
                w.push(30);
                w.extend(threads.iter().map(|pid| *pid as u32 as u64));
            }
            RawKind::ReadDone(state) => {
                w.push(31);
                w.extend(state.encode());
            }
            RawKind::Begun => w.push(33),
            RawKind::ExecMade => w.push(42),
        }
        w[0] = w.len() as u64 - 1;
        w
    }

    /// Decodes the words of `encode`, without the first one.
    pub(crate) fn decode(w: &[u64]) -> Option<Self> {
        let [time, cpu, pid, tag, rest @ ..] = w else { return None };
        let what = match (*tag, rest) {
            (0, [address, code]) => RawKind::Fault { address: *address, code: *code },
            (1, [child, flags]) => RawKind::Clone { child: *child as i32, flags: *flags },
            (2, []) => RawKind::ExecStart,
            (3, [old]) => RawKind::ExecDone { old: *old as i32 },
            (4, []) => RawKind::Exit,
            (5, [call, a, b, c, d, e]) => {
                RawKind::Enter { call: *MmCall::ALL.get(*call as usize)?, args: [*a, *b, *c, *d, *e] }
            }
            (6, []) => RawKind::Locked,
            (20, []) => RawKind::Released,
            (21, []) => RawKind::LockedToRead,
            (43, []) => RawKind::NotLocked,
            (7, [result]) => RawKind::Leave { result: *result as i64 },
            (8, [start, pages, prot, segment]) => RawKind::Attached {
                start: *start,
                pages: *pages,
                prot: Prot(*prot as u8),
                segment: *segment != 0,
            },
            (9, [start, pages]) => RawKind::Detached { start: *start, pages: *pages },
            (10, [reason, pages]) => RawKind::TlbFlush { reason: *reason as u8, pages: *pages },
            (11, []) => RawKind::Idle,
            (22, [next, state]) => RawKind::Switch { next: *next as i32, state: *state as u32 },
            (32, [woken]) => RawKind::Wake { woken: *woken as i32 },
            (23, [call]) => RawKind::Begin { call: *Call::ALL.get(*call as usize)? },
            (24, [result]) => RawKind::End { result: *result as i64 },
            (25, counters) => RawKind::Counters(Counters::decode(counters)?),
            (26, [call, nanos, away, tracer]) => RawKind::Took {
                call: *Call::ALL.get(*call as usize)?,
                nanos: *nanos,
                away: *away,
                tracer: *tracer as u16,
            },
            (27, &[user, system, minor, major, waits, preempted]) => {
                let (major, waits, preempted) = (major as u32, waits as u32, preempted as u32);
                RawKind::Used(Usage { user, system, minor, major, waits, preempted })
            }
            (28, [together, apart]) => RawKind::StopCost(StopCost { together: *together, apart: *apart }),
            (13, []) => RawKind::Refused,
            (18, []) => RawKind::BadAddress,
            (14, [start, pages, write]) => {
                RawKind::Touched { start: *start, pages: *pages, write: *write != 0 }
            }
            (19, []) => RawKind::OtherTracer,
            (15, [pages]) => RawKind::StackLimit { pages: *pages },
            (16, [still, found @ ..]) => {
                let found = found.iter().map(|w| PresentPages::of(*w)).collect();
                RawKind::Present { still: *still != 0, found }
            }
            (17, [start, pages, advice]) => {
                RawKind::Advised { start: *start, pages: *pages, advice: *advice as u16 }
            }
            (40, object) => {
                let mut words = object.iter().copied();
                RawKind::Mapped(Box::new(MappedObject::decode(|| words.next())?))
            }
            (41, sample) => RawKind::Sampled(Box::new(CallerSample::decode(sample)?)),
            (12, [tables, exit]) => RawKind::Tables { tables: *tables as u32, exit: *exit != 0 },
            (29, [tables]) => RawKind::LastTables { tables: *tables as u32 },
            (30, threads) => RawKind::ReadStart { threads: threads.iter().map(|pid| *pid as i32).collect() },
            (31, state) => RawKind::ReadDone(Box::new(SpaceState::decode(state)?)),
            (33, []) => RawKind::Begun,
            (42, []) => RawKind::ExecMade,
            _ => return None,
        };
        Some(Self { time: *time, cpu: *cpu as u16, pid: *pid as i32, what })
    }
}

impl RawKind {
    /// Returns the note that the event is in the trace.
    pub(crate) fn note(&self) -> Option<Note> {
        Some(match *self {
            Self::Took { call, nanos, away, .. } => Note::Took { call, nanos, away },
            Self::Used(Usage { user, system, minor, major, waits, preempted }) => {
                Note::Used { user, system, minor, major, waits, preempted }
            }
            Self::StopCost(cost) => Note::StopCost { nanos: cost.together },
            _ => return None,
        })
    }

    /// Returns the note if it belongs behind the exit of its task.
    pub(crate) fn after_exit(&self) -> Option<Note> {
        matches!(self, Self::Took { call: Call::Exit, .. } | Self::Used(_)).then(|| self.note())?
    }

    /// Whether the task may be in the middle of a fault after this event as before it.
    pub(crate) fn is_beside(&self) -> bool {
        matches!(
            self,
            Self::LockedToRead
                | Self::NotLocked
                | Self::TlbFlush { .. }
                | Self::Idle
                | Self::Mapped(_)
                | Self::Sampled(_)
        )
    }

    /// Whether a look at the last call's effect may follow this event.
    pub(crate) fn is_of_look(&self) -> bool {
        matches!(
            self,
            Self::Touched { .. }
                | Self::Took { .. }
                | Self::TlbFlush { .. }
                | Self::Idle
                | Self::Released
                | Self::Mapped(_)
                | Self::Sampled(_)
        )
    }

    /// Whether a fork, or a change of segments, may follow that took effect when the task last gave
    /// up a lock of an address space.
    pub(crate) fn keeps_lock(&self) -> bool {
        matches!(
            self,
            Self::Locked
                | Self::LockedToRead
                | Self::NotLocked
                | Self::Released
                | Self::Took { call: Call::Segment, .. }
                | Self::Attached { .. }
                | Self::Detached { .. }
                | Self::Clone { .. }
                | Self::TlbFlush { .. }
                | Self::Idle
                | Self::Mapped(_)
                | Self::Sampled(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::Cause;

    #[test]
    fn words_and_back() {
        let all = [
            RawKind::Fault { address: u64::MAX, code: 7 },
            RawKind::Clone { child: 9, flags: 0x1_0000_0100 },
            RawKind::ExecStart,
            RawKind::ExecMade,
            RawKind::ExecDone { old: 3 },
            RawKind::Exit,
            RawKind::Enter { call: MmCall::Madvise, args: [1, 2, 3, 4, 5] },
            RawKind::Locked,
            RawKind::Released,
            RawKind::LockedToRead,
            RawKind::NotLocked,
            RawKind::Leave { result: -12 },
            RawKind::Attached { start: 1, pages: 2, prot: Prot(3), segment: true },
            RawKind::Detached { start: 1, pages: 2 },
            RawKind::Refused,
            RawKind::BadAddress,
            RawKind::Touched { start: 1, pages: 2, write: true },
            RawKind::OtherTracer,
            RawKind::StackLimit { pages: 2048 },
            RawKind::Present {
                still: true,
                found: vec![
                    PresentPages {
                        start: (1 << 35) - 1,
                        pages: 1,
                        private: true,
                        exclusive: true,
                        huge: false,
                    },
                    PresentPages {
                        start: 512,
                        pages: PresentPages::LONGEST,
                        private: false,
                        exclusive: false,
                        huge: true,
                    },
                ],
            },
            RawKind::Advised { start: 1, pages: 2, advice: 4 },
            RawKind::Mapped(Box::new(MappedObject {
                start: 1,
                pages: 2,
                path: "/a".to_owned(),
                ..MappedObject::default()
            })),
            RawKind::Sampled(Box::new(CallerSample {
                cause: Cause::Call(Call::Fork),
                page: 1,
                events: 61,
                ip: 2,
                sp: 3,
                bp: 4,
                stack: vec![5, 6, 7],
            })),
            RawKind::TlbFlush { reason: 4, pages: u64::MAX },
            RawKind::Idle,
            RawKind::Switch { next: 4_000_001, state: 0x20 },
            RawKind::Wake { woken: 4_000_001 },
            RawKind::Begin { call: Call::Segment },
            RawKind::End { result: -513 },
            RawKind::Counters(Counters { user: 1, minor: 2, preempted: 3, ..Counters::default() }),
            RawKind::Took { call: Call::Exit, nanos: 1 << 55, away: 7, tracer: 3 },
            RawKind::Used(Usage { user: 1, system: 2, minor: 3, major: 4, waits: 5, preempted: 6 }),
            RawKind::StopCost(StopCost { together: 2_000, apart: 9_000 }),
            RawKind::Tables { tables: 17, exit: true },
            RawKind::LastTables { tables: 18 },
            RawKind::ReadStart { threads: vec![4_000_000, 1] },
            RawKind::Begun,
            RawKind::ReadDone(Box::new(SpaceState { parent: 3, tables: 9, ..SpaceState::default() })),
        ];
        for what in all {
            let raw = Raw { time: 1 << 60, cpu: 5, pid: 4_000_000, what };
            let w = raw.encode();
            assert_eq!(w[0] as usize, w.len() - 1);
            assert_eq!(Raw::decode(&w[1..]), Some(raw));
        }
        assert_eq!(Raw::decode(&[1, 2, 3, 99]), None);
    }
}
