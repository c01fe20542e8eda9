//! Adds up the work of a recording by mapping and by function.
mod functions;
mod group;
mod rows;

pub use rows::{FunctionWork, MappingWork, Work};

use super::mappings::{Mapping, MappingTracker};
use crate::input::trace::{PackedKind, Trace};
use crate::starts::Starts;
use foldhash::HashMap;
use functions::Functions;
use group::{Counts, Group};
use ptarmigan_trace::{Event, FaultFlags, Kind, Symbols};

/// The most mappings whose faults are told apart.
const MOST_MAPPINGS: usize = 1 << 20;

/// Adds up the work of a recording, event by event.
#[derive(Default)]
pub struct WorkSurvey {
    tracker: MappingTracker,
    starts: Starts,
    functions: Functions,
    groups: HashMap<Group, Counts>,
    /// Single mappings, with their last state.
    single: HashMap<(u32, u32), (Mapping, u64)>,
}

impl WorkSurvey {
    /// Adds up the work of a trace in memory. `tables` are the leaf tables that faults make in its
    /// replay: for each, the number of the fault among the steps, in order.
    pub fn of(trace: &Trace, tables: &[u32]) -> Work {
        let mut survey = Self::default();
        // Times stand before the step of their number.
        let mut timings = trace.timings.iter().peekable();
        let mut time = |survey: &mut Self, until: u32| {
            while let Some(timing) = timings.next_if(|timing| timing.step <= until) {
                survey.see(&Event { task: timing.task, cpu: 0, kind: Kind::Note(timing.note) });
            }
        };
        let mut tables = tables.iter().peekable();
        for (step, event) in (0..).zip(&trace.steps) {
            time(&mut survey, step);
            let kind = match event.what {
                PackedKind::Fault { page, flags } => Kind::Fault { page, flags },
                PackedKind::Rare(number) => trace.rare[number as usize],
                PackedKind::Idle => continue,
            };
            survey.see(&Event { task: event.task, cpu: event.cpu, kind });
            while tables.next_if(|made_at| **made_at == step).is_some() {
                if let Kind::Fault { page, .. } = kind {
                    let group = survey.group(event.task, page);
                    survey.groups.entry(group).or_default().tables += 1;
                }
            }
        }
        time(&mut survey, u32::MAX);
        survey.sum(&trace.symbols, true)
    }

    /// Returns the mappings at this event.
    pub fn mappings(&self) -> &MappingTracker {
        &self.tracker
    }

    /// Adds the next event.
    pub fn see(&mut self, event: &Event) {
        let task = event.task;
        self.tracker.see(event);
        self.starts.see(event);
        match event.kind {
            Kind::Fault { page, flags } if flags.0 & FaultFlags::REFUSED == 0 => self.fault(task, page),
            Kind::Note(note) => self.functions.see(task, self.starts.of(task), &note),
            _ => {}
        }
    }

    /// Returns the group of mappings that a page of a task is in.
    fn group(&self, task: u32, page: u64) -> Group {
        Group::of(self.starts.of(task), self.tracker.at(task, page).as_ref())
    }

    fn fault(&mut self, task: u32, page: u64) {
        if self.tracker.space(task).is_none() {
            return;
        }
        let (start, mapping) = (self.starts.of(task), self.tracker.at(task, page));
        self.functions.fault(start);
        self.groups.entry(Group::of(start, mapping.as_ref())).or_default().faults += 1;
        if let Some(mapping) = mapping
            && (self.single.len() < MOST_MAPPINGS || self.single.contains_key(&(start, mapping.number)))
        {
            let (last, faults) = self.single.entry((start, mapping.number)).or_insert((mapping, 0));
            *faults += 1;
            // A mapping that was cut is as long as all of its parts.
            let (from, to) = (last.start.min(mapping.start), last.end.max(mapping.end));
            *last = Mapping { start: from, end: to, ..mapping };
        }
    }

    /// Returns the sums, without tables: no event says which faults make one.
    pub fn finish(self, symbols: &Symbols) -> Work {
        self.sum(symbols, false)
    }

    fn sum(self, symbols: &Symbols, replayed: bool) -> Work {
        let programs = self.starts.finish();
        Work {
            mappings: rows::mappings(&self.groups, &self.single, &programs, symbols, replayed),
            functions: self.functions.finish(&programs, symbols),
        }
    }
}

#[cfg(test)]
mod tests;
