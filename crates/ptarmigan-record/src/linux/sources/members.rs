//! Tells samples of recorded processes from samples of all others.
//!
//! ```text
//!  ring of CPU 0   fork 100 -> 101 (time 10)        sample of 102 (25)
//!  ring of CPU 1                      fork 101 -> 102 (20)
//!  read            sample 25 waits ── follow(30): forks by time 10, 20 ──> has(102, 25): recorded
//! ```
//!
//! # Why
//!
//! The events of samples are of all tasks, because one that tasks inherit would cost at every fork.
//! Their rings also have a record of each fork, by which the processes that the recording begins
//! with are followed to their descendants. A record of another CPU's ring may be read later than
//! one that it comes before. So forks and samples must wait until all rings have been read up to
//! their time: otherwise a sample of a new process would be taken for a stranger's. A number may
//! come to another process, so the answer depends on the time.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A process that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    pub(crate) time: u64,
    pub(crate) child: i32,
    pub(crate) parent: i32,
}

impl Fork {
    /// Decodes the kernel's record. `None` if it is too short, or the task is a thread.
    pub(crate) fn of(record: &[u8]) -> Option<Self> {
        let word = |at: usize| record.get(at..at + 4)?.try_into().ok().map(i32::from_le_bytes);
        let time = u64::from_le_bytes(record.get(24..32)?.try_into().ok()?);
        let fork = Self { time, child: word(8)?, parent: word(12)? };
        (fork.child != fork.parent).then_some(fork)
    }
}

/// The last process that had a number.
#[derive(Clone, Copy)]
struct Last {
    since: u64,
    recorded: bool,
    /// Whether the process before it with this number was recorded.
    before: bool,
}

#[derive(Default)]
struct Processes {
    by_number: HashMap<i32, Last>,
    /// Forks that have been read and not been followed.
    forks: Vec<Fork>,
    /// Whether the first processes are known.
    begun: bool,
}

/// The recorded processes, for the readers of all rings.
#[derive(Clone, Default)]
pub(crate) struct Members(Arc<Mutex<Processes>>);

impl Members {
    fn lock(&self) -> MutexGuard<'_, Processes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with these processes, which are there at `time`, and those that they have made since
    /// the first fork was read.
    pub(crate) fn begin(&self, processes: &[i32], time: u64) {
        let mut all = self.lock();
        let last = Last { since: time, recorded: true, before: true };
        all.by_number.extend(processes.iter().map(|&process| (process, last)));
        all.begun = true;
    }

    /// Adds a fork.
    pub(crate) fn forked(&self, fork: Fork) {
        self.lock().forks.push(fork);
    }

    /// Follows the forks before `until`: all rings have been read up to then.
    pub(crate) fn follow(&self, until: u64) {
        let mut all = self.lock();
        if !all.begun {
            return;
        }
        all.forks.sort_by_key(|fork| fork.time);
        let ready = all.forks.partition_point(|fork| fork.time < until);
        let forks: Vec<Fork> = all.forks.drain(..ready).collect();
        forks.into_iter().for_each(|fork| all.follow(fork));
    }

    /// Returns whether a process was recorded at a time up to which forks have been followed.
    pub(crate) fn has(&self, process: i32, time: u64) -> bool {
        self.lock().has(process, time)
    }
}

impl Processes {
    fn has(&self, process: i32, time: u64) -> bool {
        let last = self.by_number.get(&process);
        last.is_some_and(|last| if time < last.since { last.before } else { last.recorded })
    }

    fn follow(&mut self, Fork { time, child, parent }: Fork) {
        let recorded = self.has(parent, time);
        match self.by_number.get_mut(&child) {
            // One of the first processes, from before they were listed.
            Some(last) if time < last.since => {}
            Some(last) => *last = Last { since: time, recorded, before: last.recorded },
            None if recorded => {
                self.by_number.insert(child, Last { since: time, recorded, before: false });
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(time: u64, parent: i32, child: i32) -> Fork {
        Fork { time, child, parent }
    }

    #[test]
    fn descendants_are_recorded_from_their_fork_on_and_no_others() {
        let members = Members::default();
        // The grandchild's fork is read first, and before the first process is known.
        members.forked(fork(20, 101, 102));
        members.follow(30);
        members.forked(fork(10, 100, 101));
        members.forked(fork(15, 7, 8));
        // The first process itself was made by a stranger, of which is heard later.
        members.forked(fork(5, 7, 100));
        members.begin(&[100], 12);
        members.forked(fork(50, 102, 103));
        members.follow(50);
        let has = |process, time| members.has(process, time);
        assert!(has(100, 1) && has(100, 99) && has(101, 10) && has(102, 20));
        assert!(!has(101, 9) && !has(8, 40) && !has(7, 40) && !has(103, 60), "103 is not followed yet");
        members.follow(51);
        assert!(has(103, 50));
        // Its number comes to a stranger, and back.
        members.forked(fork(60, 7, 103));
        members.follow(70);
        assert!(has(103, 55) && !has(103, 60));
        members.forked(fork(80, 102, 103));
        members.follow(90);
        assert!(!has(103, 79) && has(103, 80));
    }

    #[test]
    fn records_of_forks() {
        let mut record = vec![0; 8];
        record.extend([5_i32, 4, 6, 4].iter().flat_map(|n| n.to_le_bytes()));
        record.extend(77_u64.to_le_bytes());
        assert_eq!(Fork::of(&record), Some(fork(77, 4, 5)));
        assert_eq!(Fork::of(&record[..31]), None);
        record[8] = 4;
        assert_eq!(Fork::of(&record), None, "a thread");
    }
}
