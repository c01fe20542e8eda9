//! Looks at memory before and after system calls whose effect no event tells in full.
use crate::linux::raw::RawKind;
use crate::linux::system::counters::{Counters, When};
use crate::linux::system::pagemap::{self, PresentPages};
use crate::linux::system::{proc, sys};
use ptarmigan_trace::{AreaKind, Prot};
use std::collections::{HashMap, HashSet};

/// The system calls that are looked at, beside the beginning and the end of programs.
pub(crate) const LOOKED_AT: [i64; 9] = [
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_remap_file_pages,
    libc::SYS_process_madvise,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
];

/// Before an execve the pages of small programs only are looked at, of at most so many present
/// pages: the space may be that of a large parent.
const LITTLE: u64 = 4096;

/// Facts about a system call before its end.
pub(crate) enum Pending {
    /// `mmap` of a file whose pages are made present at once, with its arguments.
    Populate([u64; 6]),
    /// `mlock` or `madvise`, which make pages of a range present, in bytes.
    Fill(u64, u64),
    /// `mlockall`, which passes over pages beyond the ends of files, and over no area of another
    /// thread.
    FillAll,
    Attach,
    /// The parts of the segment that are there, as first page and length.
    Detach(Vec<(u64, u64)>),
    /// `remap_file_pages`, with its first page and whether pages are made present.
    Remap(u64, bool),
    /// A change of the stack's limit.
    Limit,
    /// `process_madvise` on the process with this number: its ranges in bytes, and the advice.
    Advise(i32, Vec<(u64, u64)>, u16),
}

/// The result of a look: the events, each with its task.
pub(crate) type Looked = Vec<(i32, RawKind)>;

/// Looks at a call before it is made. Returns `None` for a call without a second look.
pub(crate) fn before(pid: i32, number: i64, args: [u64; 6]) -> Option<Pending> {
    match number {
        libc::SYS_shmat => Some(Pending::Attach),
        libc::SYS_shmdt => Some(Pending::Detach(proc::segment(pid, args[0] >> proc::PAGE_SHIFT))),
        libc::SYS_remap_file_pages => {
            let present = args[4] & libc::MAP_NONBLOCK as u64 == 0;
            Some(Pending::Remap(args[0] >> proc::PAGE_SHIFT, present))
        }
        libc::SYS_setrlimit if args[0] == u64::from(libc::RLIMIT_STACK) => Some(Pending::Limit),
        // For itself, and with a new limit.
        libc::SYS_prlimit64 if args[1] == u64::from(libc::RLIMIT_STACK) && args[2] != 0 => {
            Some(Pending::Limit)
        }
        libc::SYS_process_madvise => {
            let ranges = proc::ranges(pid, args[1], args[2]);
            proc::of_pidfd(pid, args[0]).map(|of| Pending::Advise(of, ranges, args[3] as u16))
        }
        libc::SYS_mmap if sys::populates_file(args[3]) => Some(Pending::Populate(args)),
        libc::SYS_madvise if sys::POPULATING.contains(&args[2]) => Some(fill(args)),
        libc::SYS_mlock => Some(fill(args)),
        libc::SYS_mlock2 if args[2] & u64::from(libc::MLOCK_ONFAULT) == 0 => Some(fill(args)),
        libc::SYS_mlockall if args[0] & (MCL_CURRENT | MCL_ONFAULT) == MCL_CURRENT => Some(Pending::FillAll),
        _ => None,
    }
}

const MCL_CURRENT: u64 = libc::MCL_CURRENT as u64;
const MCL_ONFAULT: u64 = libc::MCL_ONFAULT as u64;

fn fill(args: [u64; 6]) -> Pending {
    Pending::Fill(args[0], args[0].saturating_add(args[1]).min(proc::USER_END))
}

impl Pending {
    /// Looks again after the call.
    pub(crate) fn after(self, pid: i32, result: i64) -> Looked {
        let mut found = Vec::new();
        match self {
            Self::Populate(args) if result >= 0 => found = populated(pid, result as u64, args),
            Self::Fill(start, end) if result < 0 => found = filled(pid, start, end, |_| true),
            Self::FillAll if result >= 0 => {
                // It gives the lock up before it makes pages present, also those of areas that
                // another thread has mapped meanwhile.
                let threads = proc::counts(pid).is_some_and(|counts| counts.threads > 1);
                let wanted = |area: &proc::Area| threads || area.kind == AreaKind::File;
                found = filled(pid, 0, proc::USER_END, wanted);
            }
            Self::Attach if result >= 0 => {
                let start = result as u64 >> proc::PAGE_SHIFT;
                if let Some(a) = proc::areas(pid).into_iter().find(|a| a.start == start) {
                    let what = RawKind::Attached { start, pages: a.pages, prot: a.prot, segment: true };
                    found.push((pid, what));
                }
            }
            Self::Detach(parts) if result >= 0 => {
                found.extend(
                    parts.into_iter().map(|(start, pages)| (pid, RawKind::Detached { start, pages })),
                );
            }
            Self::Remap(start, present) if result >= 0 => {
                if let Some(a) = proc::areas(pid).into_iter().find(|a| a.start == start) {
                    let what = RawKind::Attached { start, pages: a.pages, prot: a.prot, segment: false };
                    found.push((pid, what));
                    if present {
                        found.push((pid, RawKind::Touched { start, pages: a.pages, write: false }));
                    }
                }
            }
            Self::Limit => {
                found.extend(proc::stack_limit(pid).map(|pages| (pid, RawKind::StackLimit { pages })));
            }
            // The result is the number of bytes that were advised on.
            Self::Advise(of, ranges, advice) => {
                let mut left = u64::try_from(result).unwrap_or(0);
                for (start, len) in ranges {
                    let len = len.min(left);
                    left -= len;
                    let (start, pages) = (start >> proc::PAGE_SHIFT, len >> proc::PAGE_SHIFT);
                    if pages > 0 {
                        found.push((of, RawKind::Advised { start, pages, advice }));
                    }
                }
            }
            Self::Populate(_)
            | Self::Fill(..)
            | Self::FillAll
            | Self::Attach
            | Self::Detach(_)
            | Self::Remap(..) => {}
        }
        found
    }
}

fn touched(pid: i32, found: Vec<PresentPages>) -> Looked {
    let touched =
        |PresentPages { start, pages, exclusive, .. }| RawKind::Touched { start, pages, write: exclusive };
    found.into_iter().map(|found| (pid, touched(found))).collect()
}

/// The pages that are present in areas of a range that the task wanted to be present. Where a file
/// ends, nobody else says; and a call that failed may have stopped anywhere.
fn filled(pid: i32, start: u64, end: u64, wanted: impl Fn(&proc::Area) -> bool) -> Looked {
    let mut all = Vec::new();
    for area in proc::areas(pid).iter().filter(|area| wanted(area)) {
        let first = area.start.max(start >> proc::PAGE_SHIFT);
        let last = (area.start + area.pages).min(end.div_ceil(1 << proc::PAGE_SHIFT));
        if first >= last || area.prot.0 == 0 {
            continue;
        }
        match pagemap::present_in(pid, first << proc::PAGE_SHIFT, last << proc::PAGE_SHIFT) {
            Some(found) => all.extend(touched(pid, found)),
            None => {
                let write = !area.shared && area.prot.0 & Prot::WRITE != 0;
                all.push((pid, RawKind::Touched { start: first, pages: last - first, write }));
            }
        }
    }
    all
}

/// The pages that `mmap` has made present.
fn populated(pid: i32, at: u64, args: [u64; 6]) -> Looked {
    let end = at.saturating_add(args[1].next_multiple_of(1 << proc::PAGE_SHIFT));
    if let Some(found) = pagemap::present_in(pid, at, end) {
        return touched(pid, found);
    }
    let (start, pages) = (at >> proc::PAGE_SHIFT, proc::backed(pid, args[4], args[5], args[1]));
    let private = args[3] & libc::MAP_TYPE as u64 == libc::MAP_PRIVATE as u64;
    let write = private && args[2] & libc::PROT_WRITE as u64 != 0;
    if pages > 0 { vec![(pid, RawKind::Touched { start, pages, write })] } else { Vec::new() }
}

/// Looks at a task before its execve.
pub(crate) fn before_exec(pid: i32) -> Looked {
    let Some(counts) = proc::counts(pid) else { return Vec::new() };
    let mut found = Vec::new();
    if counts.resident <= LITTLE {
        found.push((pid, RawKind::Present { still: false, found: pagemap::present(pid) }));
    }
    found.push((pid, RawKind::Tables { tables: counts.tables, exit: false }));
    found
}

/// The tasks of each thread group that are about to exit.
#[derive(Default)]
pub(crate) struct Exiting(HashMap<i32, HashSet<i32>>);

impl Exiting {
    /// Looks at a task that is about to exit, with counts that were read just now. Of the threads
    /// of a process the last one looks at the pages, and at the counters of them all.
    pub(crate) fn look(&mut self, pid: i32, counts: proc::Counts) -> Looked {
        let mut found = Vec::new();
        let mut counters = Counters::default();
        if counts.threads <= 1 || self.all_exit(counts.group, pid) {
            self.0.remove(&counts.group);
            found.push((pid, RawKind::Present { still: false, found: pagemap::present(pid) }));
            counters = Counters::read(counts.group, When::Last).unwrap_or_default();
        }
        (counters.waits, counters.preempted) = counts.switches;
        found.push((pid, RawKind::Tables { tables: counts.tables, exit: true }));
        found.push((pid, RawKind::Counters(counters)));
        found
    }

    /// Adds a task. Returns whether all that are left of its group are about to exit.
    fn all_exit(&mut self, group: i32, pid: i32) -> bool {
        let there = proc::threads(group);
        let exiting = self.0.entry(group).or_default();
        // Earlier ones are gone by now.
        exiting.retain(|task| there.contains(task));
        exiting.insert(pid);
        there.iter().all(|task| exiting.contains(task))
    }

    /// The other threads of a group are gone, by an execve.
    pub(crate) fn clear(&mut self, group: i32) {
        self.0.remove(&group);
    }
}
