//! Times calls, and sums up the CPU time of processes, from raw events in order of time.
//!
//! # Calls
//!
//! The tracepoints of a call's entry and return make a span. The time in which the task was not on
//! a CPU, by the switches of tasks, is *away*. A fork or clone gets its kind from the tracepoint of
//! the new task. A call that the kernel makes again after a signal is one call.
//!
//! The parent of a vfork sleeps until its child's execve or exit. Up to there the child's time
//! counts as the parent's: its time on a CPU, and its waits for anything but a CPU and the
//! recorder.
//!
//! An exit begins at its call, or at `sched_process_exit` if a signal or another thread ends the
//! task. It ends where the task leaves its CPU for the last time: the tracepoint stands before the
//! end of the address space.
//!
//! # Processes
//!
//! The CPU time is that of the scheduler's clock at the last stop of the process, and after that
//! the time on a CPU. Without tracepoints the clock is read again after the end, and the stops' own
//! time is taken off. [`split`] divides it between user mode and kernel. The time of the calls is a
//! part of it, and so the least that the kernel had; the execve that starts the recording is added.
//!
//! # Idle CPUs
//!
//! Some kernels have no event where a task follows the idle task on a CPU. Then the first event of
//! the task tells that it has one, since it was woken.
mod split;

use crate::linux::raw::{CLONE_THREAD, NO_CPU, Raw, RawKind, Usage, clone_call};
use crate::linux::system::counters::{Counters, When};
use crate::linux::system::stop_cost::StopCost;
use ptarmigan_trace::Call;
use split::TimeSplit;
use std::collections::HashMap;

/// The states of a task that leaves its CPU for the last time: dead, zombie.
const GONE: u32 = 0x10 | 0x20;
/// The state of a task that stops for its tracer.
const TRACED: u32 = 0x8;
/// The states of a task that waits. All others could have gone on.
const WAITS: u32 = 0xff;

/// The first and the last error with which the kernel makes a call again.
const AGAIN: std::ops::RangeInclusive<i64> = -516..=-512;

/// A call in progress.
#[derive(Clone, Copy)]
struct Span {
    call: Call,
    since: u64,
    /// Nanoseconds in which the task did not run.
    away: u64,
    /// Nanoseconds of the child of a vfork.
    by_child: u64,
}

/// A time without a CPU.
#[derive(Clone, Copy)]
struct Pause {
    since: u64,
    state: u32,
    /// The task waited for the recorder.
    looked_at: bool,
}

struct TaskTime {
    group: i32,
    /// The CPU of its last event.
    cpu: u16,
    on: Option<u64>,
    off: Option<Pause>,
    /// It was woken, and has had no CPU since.
    woken: Option<u64>,
    span: Option<Span>,
    /// Nanoseconds, and nanoseconds away, of an interrupted call that is made again.
    interrupted: Option<(Call, u64, u64)>,
    /// The parent that waits for this child of a vfork, and the child's nanoseconds so far.
    borrows: Option<(i32, u64)>,
    exiting: bool,
}

impl TaskTime {
    fn new(group: i32) -> Self {
        Self {
            group,
            cpu: NO_CPU,
            on: None,
            off: None,
            woken: None,
            span: None,
            interrupted: None,
            borrows: None,
            exiting: false,
        }
    }
}

/// A thread group.
#[derive(Default)]
struct GroupTime {
    alive: u32,
    /// Nanoseconds on a CPU, and those before the last counters were read.
    ran: u64,
    ran_before: u64,
    waits: u64,
    preempted: u64,
    /// Nanoseconds that its stops cost more because they woke a tracer on another CPU.
    apart: u64,
    start: Counters,
    last: Option<Counters>,
    /// When the counters of the start were read.
    started: u64,
    /// It ran before the recording, so the counters of the start are to come.
    awaits_start: bool,
    /// They have not come: the CPU time in the recording is not known.
    partial: bool,
    /// Nanoseconds of its calls, which the kernel ran; and of calls that began before the counters
    /// of the start.
    in_calls: u64,
    before_start: u64,
}

/// An event that times make, and the task that it belongs to.
pub(super) type Timed = (i32, RawKind);

#[derive(Default)]
pub(super) struct Timing {
    tasks: HashMap<i32, TaskTime>,
    groups: HashMap<i32, GroupTime>,
    split: TimeSplit,
    /// Whether switches of tasks are recorded.
    switches: bool,
    /// The part of each call's time that is its stops', if a tracer times the calls.
    stop_cost: StopCost,
    /// Spans of negative length, which are left out.
    pub(super) backwards: u64,
}

impl Timing {
    /// Begins with the first task.
    pub(super) fn new(root: i32) -> Self {
        let mut timing = Self::default();
        timing.add(root, root);
        timing.groups.entry(root).or_default().awaits_start = true;
        timing
    }

    fn add(&mut self, pid: i32, group: i32) {
        self.tasks.insert(pid, TaskTime::new(group));
        self.groups.entry(group).or_default().alive += 1;
    }

    /// Adds a task that runs already, if it is not known.
    pub(super) fn add_running(&mut self, pid: i32, group: i32) {
        if !self.tasks.contains_key(&pid) {
            self.add(pid, group);
            let group = self.groups.entry(group).or_default();
            (group.awaits_start, group.partial) = (true, true);
        }
    }

    /// Takes the interrupt off a call that woke a tracer on another CPU, so that all calls have the
    /// same share of stops. A call has two, and one in its time.
    pub(super) fn settle(&mut self, raw: &mut Raw) {
        let RawKind::Took { nanos, tracer, .. } = &mut raw.what else { return };
        let Some(task) = self.tasks.get(&raw.pid) else { return };
        if [task.cpu, *tracer].contains(&NO_CPU) || task.cpu == *tracer {
            return;
        }
        let more = self.stop_cost.apart.saturating_sub(self.stop_cost.together);
        *nanos = nanos.saturating_sub(more);
        if let Some(group) = self.groups.get_mut(&task.group) {
            group.apart += 2 * more;
        }
    }

    /// Looks at the next raw event. Puts what it ends into `out`.
    pub(super) fn see(&mut self, raw: &Raw, out: &mut Vec<Timed>) {
        let Raw { time, pid, ref what, cpu } = *raw;
        if let RawKind::Switch { next, state } = *what {
            self.switches = true;
            let pid = self.number(pid);
            self.find_on_cpu(pid, time);
            self.leave_cpu(pid, state, time, out);
            self.take_cpu(next, time);
            return;
        }
        if let RawKind::Wake { woken } = *what {
            let woken = self.tasks.get_mut(&woken).filter(|task| task.on.is_none());
            woken.into_iter().for_each(|task| task.woken = Some(time));
            return;
        }
        if let RawKind::ExecDone { old } = *what
            && old != pid
            && let Some(task) = self.tasks.remove(&old)
        {
            // The first task of the group, if its last switch is still to come.
            self.gone(pid, time, out);
            self.tasks.insert(pid, task);
        }
        let pid = self.number(pid);
        // The flush of a switch comes after it.
        if cpu != NO_CPU && !matches!(what, RawKind::TlbFlush { .. }) {
            self.find_on_cpu(pid, time);
        }
        let Some(task) = self.tasks.get_mut(&pid) else {
            if let RawKind::Counters(counters) = *what {
                self.count(pid, counters, time, out);
            }
            return;
        };
        if cpu != NO_CPU {
            task.cpu = cpu;
        } else if let Some(pause) = &mut task.off {
            pause.looked_at = true;
        }
        match *what {
            // A tracer times the calls at its stops itself, and has counted its own time there.
            RawKind::Enter { .. } | RawKind::Leave { .. } if cpu == NO_CPU => {}
            RawKind::Enter { call, .. } => self.enter(pid, call.timed_as(), time),
            RawKind::Begin { call } => self.enter(pid, call, time),
            RawKind::Leave { result } | RawKind::End { result } => self.leave(pid, result, time, out),
            RawKind::StopCost(cost) => self.stop_cost = cost,
            RawKind::Took { call, nanos, away, .. } => {
                let since = time.saturating_sub(nanos + away);
                self.charge(pid, call, since, nanos.saturating_sub(self.stop_cost.together), 0);
            }
            RawKind::Clone { child, flags } => self.clone(pid, child, flags),
            RawKind::ExecStart => self.release(pid, time),
            RawKind::Exit => {
                task.exiting = true;
                self.release(pid, time);
                self.exit(pid, time);
            }
            RawKind::Counters(counters) => {
                let group = task.group;
                self.count(group, counters, time, out);
            }
            _ => {}
        }
    }

    /// Returns the number that a task is known by. A thread that calls execve takes the number of
    /// its group's first task, which is gone by then.
    fn number(&mut self, pid: i32) -> i32 {
        if self.tasks.contains_key(&pid) || !self.groups.contains_key(&pid) {
            return pid;
        }
        let by_exec =
            |task: &TaskTime| task.group == pid && task.span.is_some_and(|span| span.call == Call::Exec);
        let thread = self.tasks.iter().find(|(_, task)| by_exec(task)).map(|(pid, _)| *pid);
        if let Some(task) = thread.and_then(|thread| self.tasks.remove(&thread)) {
            self.tasks.insert(pid, task);
        }
        pid
    }

    /// The task does not borrow the address space of its parent any more.
    fn release(&mut self, pid: i32, time: u64) {
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        let Some((parent, mut nanos)) = task.borrows.take() else { return };
        nanos += task.on.map_or(0, |on| time.saturating_sub(on));
        if let Some(span) = self.tasks.get_mut(&parent).and_then(|parent| parent.span.as_mut()) {
            span.by_child = nanos;
        }
    }

    fn exit(&mut self, pid: i32, time: u64) {
        let begun = |task: &TaskTime| task.span.is_some_and(|span| span.call == Call::Exit);
        // Without switches the times come from stops.
        if self.switches && !self.tasks.get(&pid).is_some_and(begun) {
            self.enter(pid, Call::Exit, time);
        }
    }

    fn enter(&mut self, pid: i32, call: Call, time: u64) {
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        // A span that is there never ended: its return was lost.
        task.span = Some(Span { call, since: time, away: 0, by_child: 0 });
        if task.interrupted.is_some_and(|(of, ..)| of != call) {
            task.interrupted = None;
        }
    }

    fn leave(&mut self, pid: i32, result: i64, time: u64, out: &mut Vec<Timed>) {
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        let Some(span) = task.span.take() else { return };
        if span.call == Call::Exit {
            task.span = Some(span);
            return;
        }
        let failed = (-4095..0).contains(&result);
        let before = task.interrupted.take();
        let away = span.away.saturating_sub(span.by_child);
        let Some(nanos) = time.checked_sub(span.since).and_then(|whole| whole.checked_sub(away)) else {
            self.backwards += 1;
            return;
        };
        self.charge(pid, span.call, span.since, nanos, span.by_child);
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        let (nanos, away) = before.map_or((nanos, away), |(_, n, a)| (nanos + n, away + a));
        if AGAIN.contains(&result) {
            task.interrupted = Some((span.call, nanos, away));
            return;
        }
        // Programs that are not found, and children that were not made, are no work on page tables.
        if !failed || !matches!(span.call, Call::Fork | Call::Vfork | Call::Clone | Call::Exec) {
            out.push((pid, RawKind::Took { call: span.call, nanos, away, tracer: NO_CPU }));
        }
    }

    /// Adds the time of a call to the time that its process had in the kernel. A vfork's includes
    /// its child's.
    fn charge(&mut self, pid: i32, call: Call, since: u64, nanos: u64, by_child: u64) {
        let group = self.tasks.get(&pid).map_or(pid, |task| task.group);
        let Some(group) = self.groups.get_mut(&group) else { return };
        let own = match call {
            // Between stops, both are one number.
            Call::Vfork if !self.switches => 0,
            _ => nanos.saturating_sub(by_child),
        };
        group.in_calls += own;
        group.before_start += if since < group.started { own } else { 0 };
    }

    fn clone(&mut self, pid: i32, child: i32, flags: u64) {
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        let mut borrows = None;
        if let Some(span) = &mut task.span {
            span.call = clone_call(flags);
            borrows = (span.call == Call::Vfork).then_some((pid, 0));
        }
        let group = if flags & CLONE_THREAD != 0 { task.group } else { child };
        let cpu = task.cpu;
        self.add(child, group);
        if let Some(child) = self.tasks.get_mut(&child) {
            (child.borrows, child.cpu) = (borrows, cpu);
        }
    }

    /// The task `pid` leaves its CPU.
    fn leave_cpu(&mut self, mut pid: i32, state: u32, time: u64, out: &mut Vec<Timed>) {
        let gone = state & GONE != 0;
        let Some(task) = self.tasks.get(&pid) else { return };
        if gone && !task.exiting {
            // An execve of another thread has taken the number of the group's first task, and given
            // it its own, before that task was gone altogether.
            let first = self.tasks.get(&task.group).is_some_and(|first| first.exiting);
            pid = if first { task.group } else { pid };
        }
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        let on = task.on.take();
        if let (Some((_, nanos)), Some(since)) = (&mut task.borrows, on) {
            *nanos += time.saturating_sub(since);
        }
        if let Some(group) = self.groups.get_mut(&task.group) {
            match on.map(|since| time.checked_sub(since)) {
                Some(Some(ran)) => group.ran += ran,
                Some(None) => self.backwards += 1,
                None => {}
            }
        }
        if gone {
            return self.gone(pid, time, out);
        }
        task.off = Some(Pause { since: time, state, looked_at: state & TRACED != 0 });
    }

    /// The task `pid` is on a CPU, and an event of its beginning there may not exist.
    fn find_on_cpu(&mut self, pid: i32, time: u64) {
        if !self.switches {
            return;
        }
        let Some(task) = self.tasks.get(&pid).filter(|task| task.on.is_none()) else { return };
        let earliest = task.off.map_or(0, |pause| pause.since);
        self.take_cpu(pid, task.woken.unwrap_or(time).max(earliest));
    }

    /// The task `pid` gets a CPU.
    fn take_cpu(&mut self, pid: i32, time: u64) {
        let pid = self.number(pid);
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        task.on = Some(time);
        task.woken = None;
        let Some(pause) = task.off.take() else { return };
        let Some(length) = time.checked_sub(pause.since) else {
            self.backwards += 1;
            return;
        };
        let waited = pause.state & WAITS != 0;
        if let Some((_, nanos)) = &mut task.borrows
            && waited
            && !pause.looked_at
        {
            *nanos += length;
        }
        if let Some(span) = &mut task.span {
            span.away += length;
        }
        if let Some(group) = self.groups.get_mut(&task.group)
            && !pause.looked_at
        {
            group.waits += u64::from(waited);
            group.preempted += u64::from(!waited);
        }
    }

    /// The task has left its CPU for the last time.
    fn gone(&mut self, pid: i32, time: u64, out: &mut Vec<Timed>) {
        let Some(task) = self.tasks.remove(&pid) else { return };
        if let Some(Span { call: call @ Call::Exit, since, away, .. }) = task.span {
            match time.checked_sub(since).and_then(|whole| whole.checked_sub(away)) {
                Some(nanos) => {
                    if let Some(group) = self.groups.get_mut(&task.group) {
                        group.in_calls += nanos;
                    }
                    out.push((pid, RawKind::Took { call, nanos, away, tracer: NO_CPU }));
                }
                None => self.backwards += 1,
            }
        }
        let Some(group) = self.groups.get_mut(&task.group) else { return };
        group.alive = group.alive.saturating_sub(1);
        if group.alive == 0
            && let Some(group) = self.groups.remove(&task.group)
        {
            self.used(pid, &group, out);
        }
    }

    /// Takes counters of a process that were read at a stop.
    fn count(&mut self, number: i32, counters: Counters, time: u64, out: &mut Vec<Timed>) {
        let group = self.groups.entry(number).or_default();
        match counters.when {
            When::Start => {
                if !group.awaits_start {
                    return;
                }
                *group =
                    GroupTime { alive: group.alive, start: counters, started: time, ..GroupTime::default() };
            }
            When::Last => {
                if !self.switches {
                    group.waits += counters.waits;
                    group.preempted += counters.preempted;
                }
                // Only the last thread reads those of the process.
                if counters.total > 0 {
                    let of_group = self.tasks.values().filter(|task| task.group == number);
                    let running = of_group.filter_map(|task| Some(time.saturating_sub(task.on?)));
                    group.last = Some(counters);
                    group.ran_before = group.ran + running.sum::<u64>();
                }
            }
            When::GoingOn => {
                if let Some(mut group) = self.groups.remove(&number) {
                    (group.last, group.ran, group.ran_before) = (Some(counters), 0, 0);
                    self.used(number, &group, out);
                }
            }
            When::Ended => {
                let last = group.last.get_or_insert(counters);
                last.own = counters.own;
                group.ran_before = 0;
                group.ran = counters.total.saturating_sub(last.total);
                if let Some(group) = self.groups.remove(&number) {
                    self.used(number, &group, out);
                }
                self.tasks.retain(|_, task| task.group != number);
            }
        }
    }

    /// Sums up a process at its end, or at the recording's. Without its last counters, too little
    /// is known.
    fn used(&mut self, pid: i32, group: &GroupTime, out: &mut Vec<Timed>) {
        let Some(last) = group.last.filter(|_| !group.partial) else { return };
        let mut last = last.since(group.start);
        last.own += group.apart;
        let total = last.total + group.ran.saturating_sub(group.ran_before);
        let counted = group.in_calls - group.before_start;
        let (_, system) = self.split.of(total, &last, counted + last.own);
        // Stops are not the program's. The calls are measured, and the ticks of the rest are not.
        let system = system.saturating_sub(last.own).max(counted);
        let user = total.saturating_sub(last.own).saturating_sub(system);
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let usage = Usage {
            user: user / 1000,
            system: (system + group.before_start).div_ceil(1000),
            minor: last.minor,
            major: small(last.major),
            waits: small(group.waits),
            preempted: small(group.preempted),
        };
        out.push((pid, RawKind::Used(usage)));
    }
}

#[cfg(test)]
mod tests;
