//! Sets of pages by space, which follow forks, ends and moves.
use super::moment::{Effect, Moment};
use crate::linux::PAGE;
use crate::pages::{REGION, RegionPages};
use foldhash::{HashMap, HashMapExt};
use ptarmigan::space::AreaFlags;
use ptarmigan_trace::Kind;
use std::ops::Range;

/// Returns the pages of areas that a fork leaves to faults: it copies no entries of areas without
/// private pages.
fn left_out(moment: &Moment<'_>) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    if let Some(view) = moment.view {
        view.areas(&mut |area| {
            if !area.flags.has(AreaFlags::PRIVATE_PAGES) && !area.flags.has(AreaFlags::SPECIAL) {
                found.push(area.start >> PAGE..area.end >> PAGE);
            }
        });
    }
    found
}

/// `N` sets of pages for each space.
///
/// Pages leave all sets when they go, mapped or not, and move along. A copy of a space begins with
/// the sets of its parent, in the tables and the areas that a fork copies.
pub struct PageSets<const N: usize> {
    spaces: HashMap<u32, HashMap<u64, [RegionPages; N]>>,
}

impl<const N: usize> Default for PageSets<N> {
    fn default() -> Self {
        PageSets { spaces: HashMap::new() }
    }
}

impl<const N: usize> PageSets<N> {
    /// Returns the sets of the table that maps a page.
    pub fn table(&mut self, space: u32, page: u64) -> &mut [RegionPages; N] {
        let none = || [RegionPages::default(); N];
        self.spaces.entry(space).or_default().entry(page / REGION).or_insert_with(none)
    }

    /// Returns the sets of the table that maps a page, if it has any pages.
    pub fn get(&self, space: u32, page: u64) -> Option<&[RegionPages; N]> {
        self.spaces.get(&space)?.get(&(page / REGION))
    }

    /// Follows an event.
    pub fn follow(&mut self, moment: &Moment<'_>) {
        let Some(space) = moment.space else { return };
        if let Kind::Mremap { from, old_pages, to, new_pages, .. } = moment.event.kind
            && from != to
        {
            // What was at the new place is gone, and all that moves comes along, mapped or not.
            self.unmap(space, to, new_pages);
            self.relocate(space, from, to, old_pages.min(new_pages));
            return self.unmap(space, from, old_pages);
        }
        let mut copy = None;
        for effect in moment.effects {
            match *effect {
                Effect::Emptied { start, pages } | Effect::Unmapped { start, pages } => {
                    self.unmap(space, start, pages);
                }
                Effect::Forked { child } => copy = Some((child, left_out(moment))),
                Effect::TableCopied { start, .. } => {
                    if let (Some((child, left_out)), Some(sets)) = (&copy, self.get(space, start)) {
                        let mut sets = *sets;
                        for part in left_out {
                            let part = part.start.max(start)..part.end.min(start + REGION);
                            sets.iter_mut().for_each(|set| set.remove_all(&part));
                        }
                        *self.table(*child, start) = sets;
                    }
                }
                Effect::Ended => drop(self.spaces.remove(&space)),
                _ => {}
            }
        }
    }

    fn unmap(&mut self, space: u32, start: u64, pages: u64) {
        let Some(tables) = self.spaces.get_mut(&space) else { return };
        let end = start.saturating_add(pages);
        let mut regions: Vec<u64> = Vec::new();
        let all = start / REGION..end.div_ceil(REGION);
        if all.end.saturating_sub(all.start) > tables.len() as u64 {
            regions.extend(tables.keys().copied().filter(|region| all.contains(region)));
        } else {
            regions.extend(all);
        }
        for region in regions {
            let part = start.max(region * REGION)..end.min((region + 1) * REGION);
            if part.end - part.start == REGION {
                tables.remove(&region);
            } else if let Some(sets) = tables.get_mut(&region) {
                sets.iter_mut().for_each(|set| set.remove_all(&part));
            }
        }
    }

    fn relocate(&mut self, space: u32, from: u64, to: u64, pages: u64) {
        let range = from..from.saturating_add(pages);
        for region in from / REGION..range.end.div_ceil(REGION) {
            let Some(sets) = self.get(space, region * REGION).copied() else { continue };
            for (n, set) in sets.into_iter().enumerate() {
                for page in set.within(region, range.clone()) {
                    self.table(space, page - from + to)[n].add(page - from + to);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reach::emptied;
    use super::*;
    use ptarmigan::addr::VirtRange;
    use ptarmigan_trace::Event;

    /// Returns the pages of the only set below 2048 after a call that maps and unmaps none. The
    /// heap ends at page 12.
    fn after(kind: Kind, pages: Range<u64>) -> Vec<u64> {
        let mut sets = PageSets::<1>::default();
        sets.table(0, pages.start)[0].add_all(&pages);
        let event = Event { task: 0, cpu: 0, kind };
        let heap = VirtRange::saturating_pages(7, 5, PAGE);
        let gone = emptied(&kind, [Some(heap), None]);
        let effects: Vec<_> =
            gone.map(|(start, pages)| Effect::Emptied { start, pages }).into_iter().collect();
        sets.follow(&Moment { step: 0, event, space: Some(0), program: 0, effects: &effects, view: None });
        (0..4).flat_map(|n| sets.table(0, n * REGION)[0].within(n, 0..u64::MAX).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn pages_that_only_a_set_has_leave_with_their_range() {
        let advice = |advice: i32| Kind::Madvise { start: 6, pages: 2, advice: advice as u16 };
        assert_eq!(after(Kind::Munmap { start: 0, pages: 7 }, 5..9), [7, 8]);
        assert_eq!(after(Kind::Munmap { start: 0, pages: 1 << 40 }, 5..9), [0; 0]);
        assert_eq!(after(advice(libc::MADV_DONTNEED), 5..9), [5, 8]);
        assert_eq!(after(advice(libc::MADV_WILLNEED), 5..9), [5, 6, 7, 8]);
        assert_eq!(after(Kind::Brk { end: 7 }, 5..9), [5, 6]);
    }

    #[test]
    fn pages_that_only_a_set_has_move_along() {
        let remap = |to, new_pages| Kind::Mremap { from: 5, old_pages: 4, to, new_pages, keep: false };
        assert_eq!(after(remap(1022, 4), 5..9), [1022, 1023, 1024, 1025]);
        assert_eq!(after(remap(1022, 2), 5..9), [1022, 1023]);
        assert_eq!(after(remap(5, 2), 5..9), [5, 6]);
        // The new place may have had pages.
        assert_eq!(after(remap(1022, 4), 1022..1024), [0; 0]);
    }
}
