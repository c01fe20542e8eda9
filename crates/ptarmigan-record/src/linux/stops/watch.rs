//! Times calls between the stops at their entry and their return.
//!
//! The clock of the process's CPU time tells how long a call ran, however long its task then waited
//! for a CPU or for the tracer. Beside other threads it is the task's own time, which takes longer
//! to read (`/proc/PID/schedstat`).
use crate::linux::raw::{NO_CPU, RawKind};
use crate::linux::system::stop_cost::StopCost;
use crate::linux::system::{proc, sys};
use ptarmigan_trace::Call;
use rustix::thread::sched_getcpu;
use std::collections::{HashMap, HashSet};

/// The clock that tells how long a call ran.
#[derive(Clone, Copy)]
enum Clock {
    /// The clock of a process with one task.
    Process(i32),
    /// The clock of a task beside others.
    Task(i32),
}

impl Clock {
    /// Returns the nanoseconds of CPU time. `None` if the clock's task is gone.
    fn read(self) -> Option<u64> {
        match self {
            Self::Process(group) => sys::scheduled_time(group),
            Self::Task(pid) => proc::scheduled_time_of_task(pid),
        }
    }
}

/// A call that was resumed.
#[derive(Clone, Copy)]
struct Resumed {
    call: Call,
    /// The process of the task.
    group: i32,
    at: u64,
    clock: Clock,
    /// CPU time at the start, in nanoseconds.
    cpu: u64,
}

impl Resumed {
    /// Returns the nanoseconds in which the call ran, and the others, up to `now`.
    fn until(&self, now: u64) -> (u64, u64) {
        let whole = now.saturating_sub(self.at);
        let ran = self.clock.read().map_or(whole, |cpu| cpu.saturating_sub(self.cpu)).min(whole);
        (ran, whole - ran)
    }
}

/// A parent that waits for the child of its vfork.
struct VforkParent {
    child: i32,
    since: Resumed,
    /// Nanoseconds in which the child was stopped.
    stopped: u64,
    /// The child's CPU time in nanoseconds, if it is gone.
    ran: Option<u64>,
}

/// Times of calls, and of the stops themselves.
#[derive(Default)]
pub(crate) struct StopWatch {
    /// The time of the stop that is handled, and the CPU that the tracer was woken on.
    now: u64,
    cpu: u16,
    resumed: HashMap<i32, Resumed>,
    waiting: HashMap<i32, VforkParent>,
    /// Processes with several tasks.
    threaded: HashSet<i32>,
    /// How often each task has stopped.
    stops: HashMap<i32, u64>,
    /// The same of the tasks of each process that are gone.
    stops_of_gone: HashMap<i32, u64>,
    pub(super) cost: StopCost,
}

impl StopWatch {
    /// Creates a watch for stops that cost so much.
    pub(crate) fn new(cost: StopCost) -> Self {
        Self { cost, ..Self::default() }
    }

    /// A task has stopped.
    pub(crate) fn stopped(&mut self) {
        self.now = sys::now();
        self.cpu = u16::try_from(sched_getcpu()).unwrap_or(NO_CPU);
    }

    /// The stop of a task was handled.
    pub(crate) fn handled(&mut self, pid: i32) {
        *self.stops.entry(pid).or_default() += 1;
        let cost = self.cost.together / 2;
        if let Some(waiting) = self.waiting.values_mut().find(|waiting| waiting.child == pid) {
            waiting.stopped += sys::now().saturating_sub(self.now) + cost;
        }
    }

    /// A process has another task.
    pub(crate) fn thread_made(&mut self, group: i32) {
        self.threaded.insert(group);
    }

    /// A process has started a program: it has one task again.
    pub(crate) fn program_started(&mut self, group: i32) {
        self.threaded.remove(&group);
    }

    /// A task is about to be resumed in a call.
    pub(crate) fn begin(&mut self, pid: i32, group: i32, call: Call) {
        let clock = if self.threaded.contains(&group) { Clock::Task(pid) } else { Clock::Process(group) };
        let cpu = clock.read().unwrap_or(0);
        self.resumed.insert(pid, Resumed { call, group, at: sys::now(), clock, cpu });
    }

    /// A task is about to be resumed in its exit. `alone` says that the others of its process are
    /// gone.
    pub(crate) fn begin_exit(&mut self, pid: i32, group: i32, alone: bool) {
        if alone {
            self.threaded.remove(&group);
        }
        self.begin(pid, group, Call::Exit);
    }

    /// The task begins another call: one that it was in has made no task and no program.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.resumed.remove(&pid);
    }

    /// The call has ended with this stop.
    pub(crate) fn end(&mut self, pid: i32) -> Option<RawKind> {
        let resumed = self.resumed.remove(&pid)?;
        let (nanos, away) = resumed.until(self.now);
        Some(RawKind::Took { call: resumed.call, nanos, away, tracer: self.cpu })
    }

    /// A clone has ended, which was known as a fork.
    pub(crate) fn end_clone(&mut self, pid: i32, call: Call) -> Option<RawKind> {
        self.resumed.get_mut(&pid)?.call = call;
        self.end(pid)
    }

    /// A vfork has made its child, and waits for it.
    pub(crate) fn wait(&mut self, pid: i32, child: i32) {
        if let Some(since) = self.resumed.remove(&pid) {
            self.waiting.insert(pid, VforkParent { child, since, stopped: 0, ran: None });
        }
    }

    /// The wait for the child of a vfork has ended. The child's time counts, without its stops.
    pub(crate) fn end_wait(&mut self, pid: i32) -> Option<RawKind> {
        let VforkParent { since, stopped, child, ran } = self.waiting.remove(&pid)?;
        let whole = self.now.saturating_sub(since.at);
        let (own, _) = since.until(self.now);
        let of_child = ran.or_else(|| sys::scheduled_time(child));
        let ran = of_child.map_or(whole, |ran| own + ran);
        let nanos = ran.min(whole.saturating_sub(stopped));
        Some(RawKind::Took { call: Call::Vfork, nanos, away: whole - nanos, tracer: self.cpu })
    }

    /// A task has ended, and its parent does not know yet. Returns the times of its exit.
    pub(crate) fn gone(&mut self, pid: i32) -> Option<RawKind> {
        self.waiting.remove(&pid);
        if let Some(waiting) = self.waiting.values_mut().find(|waiting| waiting.child == pid) {
            waiting.ran = sys::scheduled_time(pid);
        }
        let group = self.resumed.get(&pid).map_or(pid, |exit| exit.group);
        *self.stops_of_gone.entry(group).or_default() += self.stops.remove(&pid).unwrap_or(0);
        self.threaded.remove(&pid);
        // A task that is killed leaves its call without a return.
        self.resumed.get(&pid).filter(|resumed| resumed.call == Call::Exit)?;
        let first_of_others = matches!(self.resumed.get(&pid)?.clock, Clock::Task(_)) && pid == group;
        match self.end(pid)? {
            // It has waited for the others.
            RawKind::Took { call, nanos, tracer, .. } if first_of_others => {
                Some(RawKind::Took { call, nanos, away: 0, tracer })
            }
            took => Some(took),
        }
    }

    /// The first task of others has ended, and one of them took its number with its program. Its
    /// clock is another task's by now: the exit is counted, and has the least time that it can
    /// have.
    pub(crate) fn replaced(&mut self, pid: i32) -> Option<RawKind> {
        let Resumed { call, .. } = self.resumed.remove(&pid).filter(|exit| exit.call == Call::Exit)?;
        Some(RawKind::Took { call, nanos: self.cost.together, away: 0, tracer: NO_CPU })
    }

    /// Returns how often a task has stopped.
    pub(crate) fn stops(&self, pid: i32) -> u64 {
        self.stops.get(&pid).copied().unwrap_or(0)
    }

    /// Returns the nanoseconds of CPU time that the stops of a process took, whose tasks are gone.
    pub(crate) fn own(&mut self, group: i32) -> u64 {
        self.stops_of_gone.remove(&group).unwrap_or(0) * self.cost.together
    }
}
