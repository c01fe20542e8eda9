//! Answers which mapping a page of a space had at some step of a recording.
use super::{Mapping, MappingTracker};
use crate::input::trace::{PackedKind, Trace};
use ptarmigan_trace::{Event, Kind};

/// A page at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageAt {
    /// The number of an event in [`Trace::steps`]. The page's mapping after it is meant, or before
    /// it if it ends the space.
    pub step: u32,
    /// The number of the space.
    pub space: u32,
    /// The page.
    pub page: u64,
}

impl Trace {
    /// Returns the mapping of each page, in one pass over the trace.
    pub fn mappings_of(&self, pages: &[PageAt]) -> Vec<Option<Mapping>> {
        let mut found = vec![None; pages.len()];
        let mut order: Vec<usize> = (0..pages.len()).collect();
        order.sort_by_key(|&n| pages[n].step);
        let mut asked = order.into_iter().peekable();
        let mut tracker = MappingTracker::default();
        for (step, at) in self.steps.iter().zip(0_u32..) {
            let kind = match step.what {
                PackedKind::Fault { page, flags } => Kind::Fault { page, flags },
                PackedKind::Rare(rare) => self.rare[rare as usize],
                PackedKind::Idle => Kind::Idle,
            };
            let mut answer = |tracker: &MappingTracker| {
                while let Some(n) = asked.next_if(|&n| pages[n].step == at) {
                    let asked = pages[n];
                    found[n] = tracker.map_of(asked.space).and_then(|map| map.at(asked.page));
                }
            };
            if matches!(kind, Kind::Exit { .. }) {
                answer(&tracker);
            }
            tracker.see(&Event { task: step.task, cpu: step.cpu, kind });
            answer(&tracker);
        }
        found
    }
}
