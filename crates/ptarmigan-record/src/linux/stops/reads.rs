//! Tells which faults have only read, for recordings whose faults do not say so.
//!
//! A read of private memory maps the zero page, or a page of the file. Before a fork copies the
//! tables, one look tells the pages that nobody has written ([`pagemap::unwritten`]): the last
//! fault on each of them was a read. Earlier ones may have been writes if the program has given the
//! page up since. So each page is known from the last call on that gave it up.
use crate::linux::raw::MmCall;
use crate::linux::system::pagemap::{self, Unwritten};
use crate::linux::system::proc::PAGE_SHIFT;
use std::collections::HashMap;

/// The most ranges that are kept of a process. Beyond that all pages are known from the last call
/// on.
const MOST: usize = 256;

/// A range of pages that a program has given up, and when.
#[derive(Clone, Copy)]
struct GivenUp {
    start: u64,
    end: u64,
    time: u64,
}

#[derive(Default)]
struct Process {
    given_up: Vec<GivenUp>,
    /// The end of its heap, in bytes.
    heap: u64,
}

/// What processes have given up.
#[derive(Default)]
pub(crate) struct Reads {
    processes: HashMap<i32, Process>,
}

impl Reads {
    /// A call of a process has ended.
    pub(crate) fn call(&mut self, group: i32, call: MmCall, args: [u64; 5], result: i64, time: u64) {
        let process = self.processes.entry(group).or_default();
        let (start, end) = match call {
            MmCall::Munmap | MmCall::Madvise | MmCall::Mremap => (args[0], args[0].saturating_add(args[1])),
            MmCall::Brk => {
                let now = u64::try_from(result).unwrap_or(0);
                (now, std::mem::replace(&mut process.heap, now))
            }
            MmCall::Mmap
            | MmCall::Mprotect
            | MmCall::Mlock
            | MmCall::Munlock
            | MmCall::Mlockall
            | MmCall::Munlockall => return,
        };
        if start >= end {
            return;
        }
        if process.given_up.len() == MOST {
            process.given_up = vec![GivenUp { start: 0, end: u64::MAX, time }];
        }
        let (start, end) = (start >> PAGE_SHIFT, end.div_ceil(1 << PAGE_SHIFT));
        process.given_up.push(GivenUp { start, end, time });
    }

    /// A process has another program, or has ended.
    pub(crate) fn forget(&mut self, group: i32) {
        self.processes.remove(&group);
    }

    /// Looks at a task that is about to fork.
    pub(crate) fn look(&self, pid: i32, group: i32) -> Vec<Unwritten> {
        let runs = pagemap::unwritten(pid);
        runs.into_iter().map(|(start, pages)| self.known(group, start, pages)).collect()
    }

    fn known(&self, group: i32, start: u64, pages: u64) -> Unwritten {
        let given_up = self.processes.get(&group).map(|process| &process.given_up[..]).unwrap_or_default();
        let of_it = given_up.iter().filter(|one| one.start < start + pages && start < one.end);
        Unwritten { start, pages, since: of_it.map(|one| one.time).max().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_from_the_last_call_on_that_gave_it_up() {
        let mut reads = Reads::default();
        let since = |reads: &Reads, start| reads.known(7, start, 2).since;
        reads.call(7, MmCall::Madvise, [0x5000, 0x1000, 4, 0, 0], 0, 10);
        reads.call(7, MmCall::Munmap, [0x5000, 0x800, 0, 0, 0], 0, 20);
        reads.call(7, MmCall::Mmap, [0x5000, 0x1000, 0, 0, 0], 0x5000, 30);
        assert_eq!([3, 4, 5, 6].map(|start| since(&reads, start)), [0, 20, 20, 0]);
        // The heap grows, and shrinks by two pages.
        reads.call(7, MmCall::Brk, [0; 5], 0x9000, 40);
        assert_eq!(since(&reads, 8), 0);
        reads.call(7, MmCall::Brk, [0; 5], 0x7000, 50);
        assert_eq!([5, 6, 8, 9].map(|start| since(&reads, start)), [20, 50, 50, 0]);
        for n in 0..2 * MOST as u64 {
            reads.call(7, MmCall::Munmap, [0x100_0000, 1, 0, 0, 0], 0, 100 + n);
        }
        assert!(since(&reads, 1) >= 100 && reads.processes[&7].given_up.len() <= MOST);
        reads.forget(7);
        assert_eq!(since(&reads, 5), 0);
    }
}
