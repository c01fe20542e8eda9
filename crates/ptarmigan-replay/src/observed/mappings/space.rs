//! The mappings of one address space.
use super::{Mapping, MappingKind};
use ptarmigan_trace::Text;
use std::collections::BTreeMap;

/// The usual limit of a stack, in pages: 8 MiB.
pub(super) const USUAL_STACK: u64 = 2048;

/// The mappings of an address space at one moment. They do not overlap.
#[derive(Clone, Debug, Default)]
pub struct SpaceMap {
    /// By the first page.
    areas: BTreeMap<u64, Mapping>,
    /// The first page of the heap.
    heap: Option<u64>,
    pub(super) stack_limit: Option<u64>,
}

impl SpaceMap {
    /// Returns the mapping of a page. A page below a stack belongs to it as far as it may grow.
    pub fn at(&self, page: u64) -> Option<Mapping> {
        let below = self.areas.range(..=page).next_back().map(|(_, area)| *area);
        if let Some(area) = below.filter(|area| page < area.end) {
            return Some(area);
        }
        let (_, above) = self.areas.range(page..).next()?;
        let limit = self.stack_limit.unwrap_or(USUAL_STACK);
        let grows = above.grows && above.end.saturating_sub(page) <= limit;
        grows.then_some(*above)
    }

    /// Returns all mappings, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.areas.values()
    }

    /// Adds a mapping in the place of all before it.
    pub(super) fn map(&mut self, mapping: Mapping) {
        self.unmap(mapping.start, mapping.end);
        if mapping.start < mapping.end {
            self.areas.insert(mapping.start, mapping);
        }
    }

    /// Cuts out a range. Returns the parts that were there.
    pub(super) fn unmap(&mut self, start: u64, end: u64) -> Vec<Mapping> {
        let before = self.areas.range(..start).next_back().map(|(first, _)| *first);
        let from = before.unwrap_or(start);
        let hit: Vec<Mapping> =
            self.areas.range(from..end.max(from)).map(|(_, area)| *area).filter(|a| a.end > start).collect();
        let mut gone = Vec::new();
        for area in hit {
            self.areas.remove(&area.start);
            for (from, to) in [(area.start, start), (end, area.end)] {
                if from < to {
                    self.areas.insert(from, Mapping { start: from, end: to, ..area });
                }
            }
            gone.push(Mapping { start: area.start.max(start), end: area.end.min(end), ..area });
        }
        gone
    }

    /// Moves the end of the heap. The first call only tells where it begins.
    pub(super) fn brk(&mut self, end: u64, empty: Mapping) {
        let Some(start) = self.heap else {
            self.heap = Some(end);
            return;
        };
        let old = self.areas.get(&start).filter(|area| area.kind == MappingKind::Heap).copied();
        let old_end = old.map_or(start, |area| area.end);
        if end > old_end {
            self.map(Mapping { start, end, ..old.unwrap_or(empty) });
        } else {
            self.unmap(end.max(start), old_end);
        }
    }

    /// Moves a mapping. `keep` leaves the old place mapped.
    pub(super) fn remap(&mut self, from: (u64, u64), to: (u64, u64), keep: bool) {
        let ((from, old_pages), (to, new_pages)) = (from, to);
        let Some(first) = self.at(from) else { return };
        let parts = if old_pages == 0 { vec![first] } else { self.unmap(from, from + old_pages) };
        if keep {
            parts.iter().for_each(|part| self.map(*part));
        }
        self.unmap(to, to + new_pages);
        for part in &parts {
            let (start, end) = (part.start.max(from) - from + to, part.end - from + to);
            self.map(Mapping { start, end: end.min(to + new_pages), ..*part });
        }
        // The rest of a mapping that grew.
        let (start, end) = (to + old_pages.min(new_pages), to + new_pages);
        if start < end {
            let last = parts.last().copied().unwrap_or(first);
            let joined = self.areas.range(..start).next_back().map(|(_, area)| *area);
            match joined.filter(|area| area.end == start && area.number == last.number) {
                Some(area) => self.map(Mapping { end, ..area }),
                None => self.map(Mapping { start, end, ..last }),
            }
        }
    }

    /// Tells which object the mappings of a range show.
    pub(super) fn describe(&mut self, start: u64, end: u64, kind: MappingKind, name: Option<Text>) {
        for part in self.unmap(start, end) {
            let name = name.or(part.name);
            self.areas.insert(part.start, Mapping { kind, name, ..part });
        }
    }

    /// Notes which thread has the stack that a page is in.
    pub(super) fn stack_of(&mut self, page: u64, task: u32) {
        let area = self.areas.range_mut(..=page).next_back().map(|(_, area)| area);
        if let Some(area) = area.filter(|area| page < area.end) {
            area.thread = Some(task);
        }
    }
}
