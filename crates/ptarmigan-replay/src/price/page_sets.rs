//! Sets of pages by space, which follow forks, ends and moves.
use super::moment::{Effect, Moment};
use crate::pages::{REGION, RegionPages};
use foldhash::{HashMap, HashMapExt};
use ptarmigan_trace::Kind;

/// `N` sets of pages for each space.
///
/// Pages leave all sets when they go, mapped or not, and move along when they are. A copy of a space
/// begins with the sets of its parent, in the tables that a fork copies.
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
            && moment.view.is_some()
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
                Effect::Forked { child } => copy = Some(child),
                Effect::TableCopied { start, .. } => {
                    if let (Some(child), Some(sets)) = (copy, self.get(space, start).copied()) {
                        *self.table(child, start) = sets;
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
        for region in start / REGION..end.div_ceil(REGION) {
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
