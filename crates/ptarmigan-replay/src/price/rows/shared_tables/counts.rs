//! Counts faults and tables of shared memory, as they are and as if tables were shared.
use super::objects::{Objects, Part};
use crate::linux::PAGE;
use crate::pages::{REGION, RegionPages};
use crate::price::{Effect, Moment, entries, regions};
use foldhash::{HashMap, HashSet};
use ptarmigan::space::AreaFlags;
use std::collections::BTreeMap;

/// A table that spaces share.
#[derive(Default)]
struct Table {
    pages: RegionPages,
    spaces: HashSet<u32>,
}

/// Counts of a recording.
#[derive(Default)]
pub struct Counts {
    objects: Objects,
    tables: HashMap<Part, Table>,
    /// The shared tables of each space, by region.
    of_spaces: HashMap<u32, BTreeMap<u64, Part>>,
    /// Faults on shared memory.
    pub faults: u64,
    /// Of these, faults in areas that do not cover their table.
    pub partial: u64,
    /// Faults on objects that other mappings may show, too.
    pub unknown: u64,
    /// Faults on pages that the table has already.
    pub spared: u64,
    /// Tables of shared memory that are made today.
    pub made: u64,
    now: u64,
    /// The most of them at once.
    pub peak: u64,
    /// Tables that are made if they are shared.
    pub shared_made: u64,
    /// The most of them at once.
    pub shared_peak: u64,
}

impl Counts {
    /// Follows an event.
    pub fn follow(&mut self, moment: &Moment<'_>) {
        self.objects.follow(&moment.event);
        let Some(space) = moment.space else { return };
        let faults = moment.served().is_some();
        for effect in moment.effects {
            match *effect {
                Effect::Mapped { start, pages } => {
                    (start..start + pages).for_each(|page| self.add(moment, space, page, faults));
                }
                Effect::Unmapped { start, pages } | Effect::Moved { from: start, pages, .. } => {
                    for (region, _) in regions(start, pages) {
                        let left = moment.view.and_then(|view| entries(view, region));
                        if left.is_none_or(|left| left == 0)
                            && let Some(tables) = self.of_spaces.get_mut(&space)
                            && let Some(part) = tables.remove(&region)
                        {
                            self.leave(space, part);
                        }
                    }
                }
                Effect::Ended => {
                    let parts = self.of_spaces.remove(&space).unwrap_or_default();
                    parts.into_values().for_each(|part| self.leave(space, part));
                }
                _ => {}
            }
            if let Effect::Moved { to, pages, .. } = *effect {
                (to..to + pages).for_each(|page| self.add(moment, space, page, false));
            }
        }
    }

    /// A page of shared memory has come; `faults` says that it came at a fault.
    fn add(&mut self, moment: &Moment<'_>, space: u32, page: u64, faults: bool) {
        let Some(area) = moment.view.and_then(|view| view.area(page << PAGE)) else { return };
        if !area.flags.has(AreaFlags::SHARED) || area.flags.has(AreaFlags::SPECIAL) {
            return;
        }
        self.faults += u64::from(faults);
        let start = page / REGION * REGION;
        if start << PAGE < area.start || area.end < (start + REGION) << PAGE {
            self.partial += u64::from(faults);
            return;
        }
        let Some((part, is_known)) = self.objects.part(space, start, area.offset_at(start << PAGE) >> PAGE)
        else {
            return;
        };
        self.unknown += u64::from(faults && !is_known);
        let table = self.tables.entry(part).or_default();
        self.shared_made += u64::from(table.spaces.is_empty());
        let is_new = table.spaces.insert(space);
        let has = !table.pages.add(page);
        self.spared += u64::from(faults && has);
        self.made += u64::from(is_new);
        self.now += u64::from(is_new);
        self.peak = self.peak.max(self.now);
        self.shared_peak = self.shared_peak.max(self.tables.len() as u64);
        self.of_spaces.entry(space).or_default().insert(page / REGION, part);
    }

    /// A space has a table no more.
    fn leave(&mut self, space: u32, part: Part) {
        let Some(table) = self.tables.get_mut(&part) else { return };
        self.now -= u64::from(table.spaces.remove(&space));
        if table.spaces.is_empty() {
            self.tables.remove(&part);
        }
    }
}
