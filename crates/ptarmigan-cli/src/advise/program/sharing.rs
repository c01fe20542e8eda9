//! Children that copy the memory that they have inherited, page after page.
//!
//! After a fork both sides share all private pages. A write makes a copy of the page: a fault on a
//! page that is present, of which the first by a child is on an inherited page. Some writes are not
//! of the program but of its runtime, such as marks of a garbage collector.
//!
//! The other side is the recording without these faults of children. It is an upper bound: a part
//! of the writes is the children's work.
use super::edit::Edit;
use super::seen::{Finder, Happens, SpaceOperation};
use crate::advise::facts::Facts;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use ptarmigan_replay::{PackedKind, Trace, When};
use ptarmigan_trace::{Cause, FaultFlags, Kind, Note, PlaceId};
use std::collections::BTreeMap;

/// The fewest copies of a child that count: 1 MiB. Each child copies some pages of its stack and of
/// the C library.
const LEAST: usize = 256;

/// The children of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostSharing {
    /// Children that copied many pages.
    pub children: u64,
    /// The pages.
    pub copies: u64,
}

/// A child that lives.
struct Child {
    program: usize,
    touched: HashSet<u64>,
    /// The events of its copies.
    copies: Vec<u32>,
}

/// Looks for children that copy inherited memory.
pub struct SharingLost<'f> {
    facts: &'f Facts,
    /// Tasks that start another program.
    starters: HashSet<u32>,
    children: HashMap<u32, Child>,
    /// By the program that forks, as an index of [`Facts::programs`].
    pub programs: BTreeMap<usize, LostSharing>,
    /// The copies, by event, with the program that forks.
    events: HashMap<u32, usize>,
}

impl<'f> SharingLost<'f> {
    /// Looks at a recording of which the facts are known.
    pub fn new(facts: &'f Facts, trace: &Trace) -> Self {
        let execs = trace.steps.iter().filter(|step| {
            matches!(step.what, PackedKind::Rare(rare) if matches!(trace.rare[rare as usize], Kind::Exec { .. }))
        });
        SharingLost {
            facts,
            starters: execs.map(|step| step.task).collect(),
            children: HashMap::new(),
            programs: BTreeMap::new(),
            events: HashMap::new(),
        }
    }

    fn end(&mut self, child: Child) {
        if child.copies.len() >= LEAST {
            let of = self.programs.entry(child.program).or_default();
            (of.children, of.copies) = (of.children + 1, of.copies + child.copies.len() as u64);
            self.events.extend(child.copies.into_iter().map(|event| (event, child.program)));
        }
    }

    /// Adds the children that live at the end of the recording.
    pub fn finish(&mut self) {
        for child in std::mem::take(&mut self.children).into_values() {
            self.end(child);
        }
    }

    /// Returns the function that made most of a program's copies, and its part of those of which
    /// the function was recorded.
    pub fn caller(&self, trace: &Trace, program: usize) -> Option<(PlaceId, f64)> {
        let mut last: HashMap<u32, u32> = HashMap::new();
        let mut places: BTreeMap<Option<PlaceId>, u64> = BTreeMap::new();
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            let PackedKind::Rare(rare) = step.what else {
                last.insert(step.task, event);
                continue;
            };
            if let Kind::Note(Note::Caller { cause: Cause::Fault, events, place, .. }) =
                trace.rare[rare as usize]
                && last.get(&step.task).is_some_and(|fault| self.events.get(fault) == Some(&program))
            {
                *places.entry(place).or_default() += events;
            }
        }
        let all: u64 = places.values().sum();
        let known = places.into_iter().filter_map(|(place, events)| Some((place?, events)));
        let (place, most) = known.max_by_key(|(_, events)| *events)?;
        Some((place, most as f64 / all.max(1) as f64))
    }

    /// Returns the recording without the copies by children of a program.
    pub fn rewrite(&self, trace: &Trace, program: usize) -> Trace {
        let copies = self.events.iter().filter(|(_, of)| **of == program);
        let mut gone: Vec<u32> = copies.map(|(event, _)| *event).collect();
        gone.sort_unstable();
        Edit::without(trace, gone)
    }
}

impl Finder for SharingLost<'_> {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fork { child }, When::Before) => {
                let task = self.facts.forks.get(&seen.event).map(|fork| fork.child);
                if task.is_some_and(|task| !self.starters.contains(&task)) {
                    let program = self.facts.program(seen.program);
                    let (touched, copies) = (HashSet::new(), Vec::new());
                    self.children.insert(child, Child { program, touched, copies });
                }
            }
            (Happens::Fault { page, flags }, When::Before) => {
                let Some(child) = self.children.get_mut(&seen.space) else { return };
                let first = child.touched.insert(page);
                let write = FaultFlags::PRESENT | FaultFlags::WRITE;
                if first && flags.0 & (write | FaultFlags::REFUSED) == write {
                    child.copies.push(seen.event);
                }
            }
            (Happens::End, _) => {
                if let Some(child) = self.children.remove(&seen.space) {
                    self.end(child);
                }
            }
            _ => {}
        }
    }
}
