//! Raw events, as the sources deliver them: with times, process numbers and byte addresses.
use super::proc::{Area, PAGE_SHIFT, Program};
use ptarmigan_trace::{AreaKind, Prot};

/// The CPU of an event whose source does not report it: the last CPU known for the task counts.
pub(super) const NO_CPU: u16 = u16::MAX;

/// The system calls that change an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MmCall {
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
    pub(super) const ALL: [Self; 10] = [
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
}

/// The kind of a raw event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RawKind {
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
    /// The pages that were present at a stop, in order.
    Present(Vec<Found>),
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
    /// The TLB was flushed; `u64::MAX` pages means all of it.
    TlbFlush {
        reason: u8,
        pages: u64,
    },
    /// The CPU becomes idle after this task.
    Idle,
    /// `VmPTE` in pages, before an execve or at the exit.
    Tables {
        tables: u32,
        exit: bool,
    },
}

/// Pages that were found present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: u64,
    pub(super) pages: u64,
    /// Private pages, as writes make them.
    pub(super) private: bool,
    /// Mapped by entries of an upper level.
    pub(super) huge: bool,
}

impl Found {
    /// The bits of a page's number: the whole of the user addresses.
    const PAGE: u32 = 36;
    const PRIVATE: u64 = 1 << 62;
    const HUGE: u64 = 1 << 63;

    /// The most pages that one word holds.
    pub(super) const LONGEST: u64 = (1 << 26) - 1;

    fn word(self) -> u64 {
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        let flags = bit(self.private, Self::PRIVATE) | bit(self.huge, Self::HUGE);
        self.start | self.pages.min(Self::LONGEST) << Self::PAGE | flags
    }

    fn of(word: u64) -> Self {
        Self {
            start: word & ((1 << Self::PAGE) - 1),
            pages: word >> Self::PAGE & Self::LONGEST,
            private: word & Self::PRIVATE != 0,
            huge: word & Self::HUGE != 0,
        }
    }
}

/// One raw event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Raw {
    pub(super) time: u64,
    pub(super) cpu: u16,
    pub(super) pid: i32,
    pub(super) what: RawKind,
}

/// What `execve` made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Made {
    pub(super) stack_end: u64,
    pub(super) arg_pages: u32,
    /// First page of the heap, which is still empty.
    pub(super) heap: u64,
    /// The limit of the stack, in pages; 0 if it could not be read.
    pub(super) stack_limit: u64,
    /// The name of the program.
    pub(super) name: String,
    /// A 32-bit program.
    pub(super) narrow: bool,
    pub(super) areas: Vec<Area>,
}

impl Raw {
    /// Encodes the event as 64-bit words for a temporary file. The first word is the number of the
    /// others.
    pub(super) fn encode(&self) -> Vec<u64> {
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
            RawKind::Present(found) => {
                w.push(16);
                w.extend(found.iter().map(|f| f.word()));
            }
            RawKind::Advised { start, pages, advice } => w.extend([17, *start, *pages, u64::from(*advice)]),
            RawKind::TlbFlush { reason, pages } => w.extend([10, u64::from(*reason), *pages]),
            RawKind::Idle => w.push(11),
            RawKind::Tables { tables, exit } => w.extend([12, u64::from(*tables), u64::from(*exit)]),
        }
        w[0] = w.len() as u64 - 1;
        w
    }

    /// Decodes what `encode` made, without the first word.
    pub(super) fn decode(w: &[u64]) -> Option<Self> {
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
            (13, []) => RawKind::Refused,
            (18, []) => RawKind::BadAddress,
            (14, [start, pages, write]) => {
                RawKind::Touched { start: *start, pages: *pages, write: *write != 0 }
            }
            (19, []) => RawKind::OtherTracer,
            (15, [pages]) => RawKind::StackLimit { pages: *pages },
            (16, found) => RawKind::Present(found.iter().map(|w| Found::of(*w)).collect()),
            (17, [start, pages, advice]) => {
                RawKind::Advised { start: *start, pages: *pages, advice: *advice as u16 }
            }
            (12, [tables, exit]) => RawKind::Tables { tables: *tables as u32, exit: *exit != 0 },
            _ => return None,
        };
        Some(Self { time: *time, cpu: *cpu as u16, pid: *pid as i32, what })
    }
}

impl RawKind {
    /// Whether the task may be in the middle of a fault after this event as before it.
    pub(super) fn is_beside(&self) -> bool {
        matches!(self, Self::LockedToRead | Self::TlbFlush { .. } | Self::Idle)
    }

    /// Whether the task may be in the middle of a fork after this event as before it.
    pub(super) fn keeps_lock(&self) -> bool {
        matches!(
            self,
            Self::Locked | Self::Released | Self::Clone { .. } | Self::TlbFlush { .. } | Self::Idle
        )
    }
}

impl Made {
    /// Encodes the areas as 64-bit words. The eighth word is the number of areas.
    pub(super) fn encode(&self) -> Vec<u64> {
        let mut w = vec![self.stack_end, u64::from(self.arg_pages), self.heap, self.stack_limit];
        // The name is short, or is cut.
        let mut name = [0; 16];
        let len = self.name.len().min(15);
        name[..len].copy_from_slice(&self.name.as_bytes()[..len]);
        w.extend(name.chunks_exact(8).map(|b| b.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b))));
        w.push(u64::from(self.narrow));
        w.push(self.areas.len() as u64);
        for a in &self.areas {
            w.extend([a.start, a.pages, u64::from(a.prot.0) | (a.kind as u64) << 8]);
        }
        w
    }

    /// Decodes what `encode` made, word by word.
    pub(super) fn decode(mut word: impl FnMut() -> Option<u64>) -> Option<Self> {
        let (stack_end, arg_pages, heap, stack_limit) = (word()?, word()? as u32, word()?, word()?);
        let name: Vec<u8> = [word()?, word()?].iter().flat_map(|w| w.to_le_bytes()).collect();
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        let narrow = word()? != 0;
        let mut made = Self { stack_end, arg_pages, heap, stack_limit, name, narrow, areas: Vec::new() };
        for _ in 0..word()? {
            let (start, pages, bits) = (word()?, word()?, word()?);
            let kind = match bits >> 8 {
                0 => AreaKind::File,
                1 => AreaKind::Anon,
                2 => AreaKind::Stack,
                _ => AreaKind::Special,
            };
            made.areas.push(Area { start, pages, prot: Prot(bits as u8), kind, ..Area::default() });
        }
        Some(made)
    }

    /// Whether the areas include a stack, as those of every program do. If not, /proc could not be
    /// read.
    pub(super) fn is_complete(&self) -> bool {
        self.areas.iter().any(|a| a.kind == AreaKind::Stack)
    }

    /// Reads what an execve made, from a task that is stopped at its end.
    pub(super) fn look(pid: i32) -> Self {
        let areas = super::proc::areas(pid);
        let Program { name, arguments, heap } = super::proc::program(pid).unwrap_or_default();
        let top = areas.iter().find(|a| a.kind == AreaKind::Stack).map_or(0, |a| a.start + a.pages);
        let args = arguments >> PAGE_SHIFT;
        let arg_pages = if args != 0 && args < top { (top - args) as u32 } else { 0 };
        let heap = heap.div_ceil(1 << PAGE_SHIFT);
        // The temporary stack ends one page below the end of the user addresses, as x86-64 leaves a
        // guard page there.
        let stack_end = (super::proc::USER_END >> PAGE_SHIFT) - 1;
        let stack_limit = super::proc::stack_limit(pid).unwrap_or(0);
        let narrow = super::proc::is_32_bit(pid);
        Self { stack_end, arg_pages, heap, stack_limit, name, narrow, areas }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_back() {
        let all = [
            RawKind::Fault { address: u64::MAX, code: 7 },
            RawKind::Clone { child: 9, flags: 0x1_0000_0100 },
            RawKind::ExecStart,
            RawKind::ExecDone { old: 3 },
            RawKind::Exit,
            RawKind::Enter { call: MmCall::Madvise, args: [1, 2, 3, 4, 5] },
            RawKind::Locked,
            RawKind::Released,
            RawKind::LockedToRead,
            RawKind::Leave { result: -12 },
            RawKind::Attached { start: 1, pages: 2, prot: Prot(3), segment: true },
            RawKind::Detached { start: 1, pages: 2 },
            RawKind::Refused,
            RawKind::BadAddress,
            RawKind::Touched { start: 1, pages: 2, write: true },
            RawKind::OtherTracer,
            RawKind::StackLimit { pages: 2048 },
            RawKind::Present(vec![
                Found { start: (1 << 35) - 1, pages: 1, private: true, huge: false },
                Found { start: 512, pages: Found::LONGEST, private: false, huge: true },
            ]),
            RawKind::Advised { start: 1, pages: 2, advice: 4 },
            RawKind::TlbFlush { reason: 4, pages: u64::MAX },
            RawKind::Idle,
            RawKind::Tables { tables: 17, exit: true },
        ];
        for what in all {
            let raw = Raw { time: 1 << 60, cpu: 5, pid: 4_000_000, what };
            let w = raw.encode();
            assert_eq!(w[0] as usize, w.len() - 1);
            assert_eq!(Raw::decode(&w[1..]), Some(raw));
        }
        assert_eq!(Raw::decode(&[1, 2, 3, 99]), None);
        let area = Area { start: 1, pages: 2, prot: Prot(5), kind: AreaKind::Stack, ..Area::default() };
        let (stack_limit, name) = (2048, "a program".to_owned());
        let areas = vec![area; 3];
        let made = Made { stack_end: 7, arg_pages: 2, heap: 9, stack_limit, name, narrow: true, areas };
        let mut words = made.encode().into_iter();
        assert_eq!(Made::decode(|| words.next()), Some(made));
    }
}
