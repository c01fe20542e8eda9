//! Finds the causes of Linux's flushes in a recording.
//!
//! # Rules
//!
//! A flush belongs to the call or fault in which its task was. A recording has these in the order
//! in which they took effect, so a flush mostly stands behind its cause. Three cases need a rule:
//!
//! 1. A fault flushes one page, and only where it replaces a page that was present. Any other flush
//!    behind a fault belongs to the call that comes next: its event stands at its end.
//! 2. A fork flushes everything once. Recordings have had the flush before the fork, and have it
//!    behind it now.
//! 3. Areas, names and the first `brk` behind an `execve` are parts of it.
//!
//! A flush at the request of another CPU, and a request that met the wrong CPU, interrupt any task.
//! So these have no cause.
use super::Flushes;
use crate::causes::Cause;
use crate::input::trace::{PackedKind, Trace};
use crate::starts::Starts;
use foldhash::HashMap;
use ptarmigan_trace::{Event, FaultFlags, FlushEvent, Kind, Unseen};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Linux's flushes of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinuxCauseFlushes {
    /// The cause.
    pub cause: Cause,
    /// Flushes by the CPU that asked for them.
    pub carried_out: Flushes,
    /// Requests to other CPUs.
    pub requested: Flushes,
}

/// Requests to other CPUs by one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramRequests {
    /// The program.
    pub program: String,
    /// The cause.
    pub cause: Cause,
    /// The requests.
    #[serde(flatten)]
    pub requested: Flushes,
}

/// Linux's flushes in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinuxFlushes {
    /// Flushes by the CPU that asked for them.
    pub carried_out: Flushes,
    /// Requests to other CPUs, which may be several each.
    pub requested: Flushes,
    /// Flushes at the request of another CPU.
    pub for_others: Flushes,
    /// Requests that met a CPU without the space: nothing was flushed.
    pub wrong_cpu: u64,
    /// Loads of another space. Most flush nothing.
    pub at_switches: u64,
    /// Events of reasons that are not known, by reason.
    pub unknown: BTreeMap<u8, u64>,
    /// Flushes and requests by cause, in the order of [`Cause::ALL`].
    pub by_cause: Vec<LinuxCauseFlushes>,
    /// Those of all calls on mappings together.
    pub calls: CallFlushes,
    /// Requests by program and cause, the most first.
    pub requests: Vec<ProgramRequests>,
}

/// Linux's flushes of all calls on mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallFlushes {
    /// Flushes by the CPU that asked for them.
    pub carried_out: Flushes,
    /// Requests to other CPUs.
    pub requested: Flushes,
}

impl LinuxFlushes {
    /// Returns the flushes of one cause by the CPU that asked for them.
    pub fn of(&self, cause: Cause) -> Flushes {
        let row = self.by_cause.iter().find(|row| row.cause == cause);
        row.map_or(Flushes::default(), |row| row.carried_out)
    }
}

/// A flush or a request whose cause is not known yet.
#[derive(Clone, Copy)]
struct Pending {
    requested: bool,
    pages: u64,
}

/// The last event of a task, and the flushes since then.
struct TaskFlushes {
    last: Last,
    pending: Vec<Pending>,
}

/// What the last event of a task may flush.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A call, or an `execve`: anything.
    Any(Cause),
    /// A fault on a page that was present: this page.
    Present,
    /// Nothing.
    Nothing(Cause),
}

impl Last {
    fn cause(self) -> Cause {
        match self {
            Last::Any(cause) | Last::Nothing(cause) => cause,
            Last::Present => Cause::Fault,
        }
    }
}

/// Flushes and requests of one cause.
#[derive(Clone, Copy, Default)]
struct Counts {
    carried_out: Flushes,
    requested: Flushes,
}

/// Adds up Linux's flushes, event by event.
#[derive(Default)]
pub struct FlushSurvey {
    starts: Starts,
    tasks: HashMap<u32, TaskFlushes>,
    counts: HashMap<(u32, Cause), Counts>,
    /// Whether a fork's flush stands behind the fork.
    behind_forks: bool,
    sums: LinuxFlushes,
}

impl FlushSurvey {
    /// Adds up the flushes of a trace in memory. `None` if it was recorded without any.
    pub fn of(trace: &Trace) -> Option<LinuxFlushes> {
        if trace.header.unseen.has(Unseen::TLB_FLUSHES) {
            return None;
        }
        let mut survey = Self::default();
        let mut marks = trace.flush_marks.iter().peekable();
        let mut flush = |survey: &mut Self, until: u32| {
            while let Some(mark) = marks.next_if(|mark| mark.step <= until) {
                let kind = Kind::TlbFlush { pages: mark.pages, reason: mark.reason };
                survey.see(&Event { task: mark.task, cpu: 0, kind });
            }
        };
        for (step, event) in (0..).zip(&trace.steps) {
            flush(&mut survey, step);
            let kind = match event.what {
                PackedKind::Fault { page, flags } => Kind::Fault { page, flags },
                PackedKind::Rare(number) => trace.rare[number as usize],
                PackedKind::Idle => continue,
            };
            survey.see(&Event { task: event.task, cpu: event.cpu, kind });
        }
        flush(&mut survey, u32::MAX);
        Some(survey.finish())
    }

    /// Adds the next event.
    pub fn see(&mut self, event: &Event) {
        if let Kind::TlbFlush { pages, reason } = event.kind {
            return self.flush(event.task, pages, reason);
        }
        if let Some(cause) = Cause::of_event(&event.kind) {
            let last = match (&event.kind, cause) {
                (Kind::Fault { flags, .. }, _) if flags.0 & FaultFlags::PRESENT != 0 => Last::Present,
                // The end of a space is flushed by no event of the tracepoint.
                (_, Cause::Fault | Cause::Found) => Last::Nothing(Cause::Fault),
                (Kind::Brk { .. }, _) if self.is_in_exec(event.task) => Last::Any(Cause::Exec),
                _ => Last::Any(cause),
            };
            self.settle(event.task, Some(cause));
            self.task(event.task).last = last;
        }
        self.starts.see(event);
    }

    /// Returns whether the last event was an `execve` or one of its areas.
    fn is_in_exec(&self, task: u32) -> bool {
        self.tasks.get(&task).is_some_and(|task| task.last == Last::Any(Cause::Exec))
    }

    fn task(&mut self, task: u32) -> &mut TaskFlushes {
        let new = || TaskFlushes { last: Last::Nothing(Cause::Other), pending: Vec::new() };
        self.tasks.entry(task).or_insert_with(new)
    }

    fn flush(&mut self, task: u32, pages: u64, reason: u8) {
        let one = Flushes::one(pages);
        match FlushEvent::of(reason) {
            None => *self.sums.unknown.entry(reason).or_default() += 1,
            Some(FlushEvent::Switch) => self.sums.at_switches += 1,
            Some(FlushEvent::WrongCpu) => self.sums.wrong_cpu += 1,
            Some(FlushEvent::ForOthers) => self.sums.for_others += one,
            Some(FlushEvent::CarriedOut) => {
                self.sums.carried_out += one;
                self.task(task).pending.push(Pending { requested: false, pages });
            }
            Some(FlushEvent::Requested) => {
                self.sums.requested += one;
                self.task(task).pending.push(Pending { requested: true, pages });
            }
        }
    }

    /// Counts the flushes of a task since its last event, now that the next one is known.
    fn settle(&mut self, task: u32, next: Option<Cause>) {
        let start = self.starts.of(task);
        let task = self.task(task);
        let (last, pending) = (task.last, std::mem::take(&mut task.pending));
        // The page of a fault is flushed once, after other CPUs were asked.
        let mut of_fault = last == Last::Present;
        let own_fork = (next == Some(Cause::Fork) && !self.behind_forks)
            .then(|| pending.iter().rposition(|flush| flush.pages == 0 && !flush.requested))
            .flatten();
        for (at, flush) in pending.iter().enumerate() {
            let is_next_call = next.filter(|next| next.is_call());
            let is_of_fork =
                own_fork.is_some_and(|own| at == own || at + 1 == own && flush.requested && flush.pages == 0);
            let cause = match last {
                _ if is_of_fork => Cause::Fork,
                Last::Present if of_fault && flush.pages == 1 => {
                    of_fault = flush.requested;
                    Cause::Fault
                }
                Last::Present | Last::Nothing(_) => is_next_call.unwrap_or(last.cause()),
                Last::Any(cause) => cause,
            };
            self.behind_forks |= cause == Cause::Fork && last == Last::Any(Cause::Fork) && !is_of_fork;
            let counts = self.counts.entry((start, cause)).or_default();
            let sum = if flush.requested { &mut counts.requested } else { &mut counts.carried_out };
            *sum += Flushes::one(flush.pages);
        }
    }

    /// Returns the sums.
    pub fn finish(mut self) -> LinuxFlushes {
        let tasks: Vec<u32> = self.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.settle(task, None));
        let programs = self.starts.finish();
        let mut causes: BTreeMap<Cause, Counts> = BTreeMap::new();
        let mut requests: BTreeMap<(&str, Cause), Flushes> = BTreeMap::new();
        for ((start, cause), counts) in &self.counts {
            let sum = causes.entry(*cause).or_default();
            sum.carried_out += counts.carried_out;
            sum.requested += counts.requested;
            if counts.requested.total() > 0 {
                let program = programs.get(*start as usize).map_or("", String::as_str);
                *requests.entry((program, *cause)).or_default() += counts.requested;
            }
        }
        let mut sums = self.sums;
        for (cause, Counts { carried_out, requested }) in causes {
            if cause.is_call() {
                sums.calls.carried_out += carried_out;
                sums.calls.requested += requested;
            }
            sums.by_cause.push(LinuxCauseFlushes { cause, carried_out, requested });
        }
        let rows = requests.into_iter().map(|((program, cause), requested)| ProgramRequests {
            program: program.to_owned(),
            cause,
            requested,
        });
        sums.requests = rows.collect();
        sums.requests.sort_by_key(|row| Reverse(row.requested.total()));
        sums
    }
}

#[cfg(test)]
mod tests;
