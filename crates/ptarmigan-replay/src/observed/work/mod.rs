//! Adds up the work of a recording by mapping and by function.
mod functions;
mod group;
mod programs;
mod rows;

pub use rows::{FunctionWork, MappingWork, Work};

use super::mappings::{Mapping, MappingTracker};
use crate::input::trace::{PackedKind, Trace};
use functions::Functions;
use group::{Counts, Group};
use programs::Starts;
use ptarmigan_trace::{Event, FaultFlags, Kind, Symbols};
use std::collections::{HashMap, HashSet};

/// Pages of one last-level table.
const REGION: u64 = 512;
/// The most regions that are remembered.
const MOST_REGIONS: usize = 1 << 24;
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
    /// The regions of each space that have a table.
    regions: HashMap<u32, HashSet<u64>>,
    remembered: usize,
}

impl WorkSurvey {
    /// Adds up the work of a trace in memory.
    pub fn of(trace: &Trace) -> Work {
        let mut survey = Self::default();
        // Times stand before the step of their number.
        let mut timings = trace.timings.iter().peekable();
        let mut time = |survey: &mut Self, until: u32| {
            while let Some(timing) = timings.next_if(|timing| timing.step <= until) {
                survey.see(&Event { task: timing.task, cpu: 0, kind: Kind::Note(timing.note) });
            }
        };
        for (step, event) in (0..).zip(&trace.steps) {
            time(&mut survey, step);
            let kind = match event.what {
                PackedKind::Fault { page, flags } => Kind::Fault { page, flags },
                PackedKind::Rare(number) => trace.rare[number as usize],
                PackedKind::Idle => continue,
            };
            survey.see(&Event { task: event.task, cpu: event.cpu, kind });
        }
        time(&mut survey, u32::MAX);
        survey.finish(&trace.symbols)
    }

    /// Returns the mappings at this event.
    pub fn mappings(&self) -> &MappingTracker {
        &self.tracker
    }

    /// Adds the next event.
    pub fn see(&mut self, event: &Event) {
        let (task, before) = (event.task, self.tracker.space(event.task));
        self.tracker.see(event);
        let after = self.tracker.space(task);
        self.starts.see(event);
        match event.kind {
            Kind::Fault { page, flags } if flags.0 & FaultFlags::REFUSED == 0 => self.fault(task, page),
            Kind::Munmap { start, pages } => self.free_tables(before, start, pages),
            Kind::Exec { .. } | Kind::Exit { .. } if before != after => {
                if let Some(space) = before.filter(|space| self.tracker.map_of(*space).is_none()) {
                    let gone = self.regions.remove(&space).map_or(0, |regions| regions.len());
                    self.remembered -= gone;
                }
            }
            Kind::Note(note) => self.functions.see(task, self.starts.of(task), &note),
            _ => {}
        }
    }

    fn fault(&mut self, task: u32, page: u64) {
        let Some(space) = self.tracker.space(task) else { return };
        let (start, mapping) = (self.starts.of(task), self.tracker.at(task, page));
        self.functions.fault(start);
        let counts = self.groups.entry(Group::of(start, mapping.as_ref())).or_default();
        counts.faults += 1;
        let huge = mapping.is_some_and(|mapping| mapping.huge_only);
        if !huge
            && self.remembered < MOST_REGIONS
            && self.regions.entry(space).or_default().insert(page / REGION)
        {
            counts.tables += 1;
            self.remembered += 1;
        }
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

    /// Tables of regions that are unmapped as a whole are freed.
    fn free_tables(&mut self, space: Option<u32>, start: u64, pages: u64) {
        let (first, end) = (start.div_ceil(REGION), start.saturating_add(pages) / REGION);
        let Some(regions) = space.and_then(|space| self.regions.get_mut(&space)) else { return };
        let before = regions.len();
        if end.saturating_sub(first) < regions.len() as u64 {
            for region in first..end {
                regions.remove(&region);
            }
        } else {
            regions.retain(|region| !(first..end).contains(region));
        }
        self.remembered -= before - regions.len();
    }

    /// Returns the sums.
    pub fn finish(self, symbols: &Symbols) -> Work {
        let programs = self.starts.finish();
        let faults = self.groups.values().map(|counts| counts.faults).sum();
        Work {
            mappings: rows::mappings(&self.groups, &self.single, &programs, symbols, faults),
            functions: self.functions.finish(&programs, symbols),
        }
    }
}

#[cfg(test)]
mod tests;
