//! Stops a process for the length of one reading.
//!
//! A task that waits for the child of its vfork cannot stop, and changes nothing. It is left alone.
use crate::linux::stops::tracer::{self, stop_all};
use crate::linux::system::{proc, sys};
use rustix::process::{getpriority_process, setpriority_process};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The longest stop, for each 100 MiB mapped.
const LONGEST: Duration = Duration::from_millis(20);

/// The priority of the recorder while others wait for it: the highest of its class.
const URGENT: i32 = -20;

/// A stop that has ended.
pub(super) struct Stood {
    pub(super) time: Duration,
    /// The longest time that it may take.
    pub(super) longest: Duration,
}

/// A process whose tasks stand still until it is dropped.
pub(super) struct Still<'a> {
    stopped: HashMap<i32, i32>,
    /// Tasks that are traced and could not stop so far.
    left: HashSet<i32>,
    /// Those of all stops, which are freed when they stop.
    leaving: &'a mut HashSet<i32>,
    /// Whether no task of it runs.
    pub(super) whole: bool,
    since: Instant,
    longest: Duration,
    priority: Option<i32>,
}

impl<'a> Still<'a> {
    /// Stops a process. It is not whole after half of the time that a stop may take.
    pub(super) fn new(process: i32, leaving: &'a mut HashSet<i32>) -> Self {
        let longest = LONGEST * (proc::mapped(process) / (100 << 20) + 1).min(1 << 10) as u32;
        let priority = getpriority_process(None).ok();
        // Without the right to it, the stop may be longer.
        let priority = priority.filter(|_| setpriority_process(None, URGENT).is_ok());
        let since = Instant::now();
        let (mut alive, mut stopped) = (HashSet::new(), HashMap::new());
        let mut refused = false;
        let mut take = |alive: &HashSet<i32>| {
            let mut new = proc::threads(process);
            new.retain(|pid| !alive.contains(pid) && !proc::waits_for_child(*pid));
            new.retain(|&pid| match sys::seize_to_stop(pid) {
                Ok(()) => true,
                Err(e) => {
                    refused |= e.raw_os_error() == Some(libc::EPERM);
                    false
                }
            });
            new
        };
        alive.extend(take(&alive));
        stop_all(&mut alive, &mut stopped, longest / 2, &mut take);
        let left: HashSet<i32> = alive.into_iter().filter(|pid| !stopped.contains_key(pid)).collect();
        let whole = !refused && !stopped.is_empty() && left.iter().all(|pid| proc::waits_for_child(*pid));
        Self { stopped, left, leaving, whole, since, longest, priority }
    }

    /// Returns whether the process has to go on: the rest of the time is for that.
    pub(super) fn is_over(&self) -> bool {
        self.since.elapsed() >= self.longest - self.longest / 8
    }

    /// Lets the process go on.
    pub(super) fn end(self) -> Stood {
        let (since, longest) = (self.since, self.longest);
        drop(self);
        Stood { time: since.elapsed(), longest }
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        tracer::free_all(&self.stopped);
        self.leaving.extend(&self.left);
        free_left(self.leaving);
        if let Some(priority) = self.priority {
            let _ = setpriority_process(None, priority);
        }
    }
}

/// Frees the tasks that have stopped by now.
pub(super) fn free_left(leaving: &mut HashSet<i32>) {
    while !leaving.is_empty()
        && let Some((pid, status)) = sys::poll_wait()
    {
        leaving.remove(&pid);
        if libc::WIFSTOPPED(status) {
            tracer::free_all(&HashMap::from([(pid, status)]));
        }
    }
}
