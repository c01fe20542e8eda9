//! Leaf tables that several spaces have.
use crate::pages::REGION;
use crate::price::{Effect, Moment, PageSets};
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// The table of a space that came from a fork, or went to one.
#[derive(Clone, Copy)]
struct Shared {
    group: u32,
    /// Whether the entry above it is write-protected.
    protected: bool,
}

/// A table that several spaces have, or had.
#[derive(Default)]
struct Group {
    spaces: Vec<u32>,
    /// The entries that the last fork has copied.
    entries: u32,
}

/// The effect of a change to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The table is not shared, and never was.
    Own,
    /// No other space has it any more. The change lifts the protection above it, if there is one.
    Last {
        /// Whether there was one.
        lifted: bool,
    },
    /// Other spaces have it: it is copied.
    Copied {
        /// The entries that a fork of today has copied for it.
        entries: u32,
    },
}

/// Tables that forks share.
#[derive(Default)]
pub struct Sharing {
    /// By space and region.
    tables: HashMap<u32, BTreeMap<u64, Shared>>,
    /// By number.
    groups: HashMap<u32, Group>,
    next: u32,
    /// Pages whose own entries are write-protected.
    protected: PageSets<1>,
}

impl Sharing {
    /// Follows the pages and the forks of an event. Tables without pages are not shared.
    pub fn follow(&mut self, moment: &Moment<'_>) {
        self.protected.follow(moment);
        let Some(space) = moment.space else { return };
        let mut child = space;
        for effect in moment.effects {
            match *effect {
                Effect::Forked { child: new } => child = new,
                Effect::TableCopied { start, entries } if entries > 0 => {
                    self.share([space, child], start / REGION, entries);
                }
                Effect::Ended => {
                    let tables = self.tables.get(&space).into_iter().flatten();
                    let regions: Vec<u64> = tables.map(|(region, _)| *region).collect();
                    regions.into_iter().for_each(|region| self.leave(space, region));
                    self.tables.remove(&space);
                }
                _ => {}
            }
        }
    }

    /// A fork shares a table of the first space with the second.
    fn share(&mut self, [parent, child]: [u32; 2], region: u64, entries: u32) {
        let known = self.tables.get(&parent).and_then(|tables| tables.get(&region));
        let number = known.map_or(self.next, |shared| shared.group);
        self.next += u32::from(known.is_none());
        let group = self.groups.entry(number).or_insert_with(|| Group { spaces: vec![parent], entries });
        group.spaces.push(child);
        group.entries = entries;
        for space in [parent, child] {
            self.tables.entry(space).or_default().insert(region, Shared { group: number, protected: true });
        }
    }

    /// A space has its table no more.
    pub fn leave(&mut self, space: u32, region: u64) {
        let shared = self.tables.get_mut(&space).and_then(|tables| tables.remove(&region));
        let Some(number) = shared.map(|shared| shared.group) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.spaces.retain(|other| *other != space);
        if group.spaces.is_empty() {
            self.groups.remove(&number);
        }
    }

    /// Returns the parts of a run of pages whose tables are shared, or were, by region.
    pub fn within(&self, space: u32, start: u64, pages: u64) -> Vec<(u64, Range<u64>)> {
        let (Some(tables), end) = (self.tables.get(&space), start.saturating_add(pages)) else {
            return Vec::new();
        };
        let part = |at: u64| (at, start.max(at * REGION)..end.min((at + 1) * REGION));
        tables.range(start / REGION..end.div_ceil(REGION)).map(|(region, _)| part(*region)).collect()
    }

    /// A space changes its table; `writes` says that the change needs the entry above writable.
    pub fn change(&mut self, space: u32, region: u64, writes: bool) -> Change {
        let table = self.tables.get_mut(&space).and_then(|tables| tables.get_mut(&region));
        let Some(table) = table else { return Change::Own };
        let Some(group) = self.groups.get(&table.group) else { return Change::Own };
        if group.spaces.len() > 1 {
            let (entries, spaces) = (group.entries, group.spaces.clone());
            // From now on the pages are protected one by one, on all sides.
            let all = region * REGION..(region + 1) * REGION;
            spaces.into_iter().for_each(|space| self.protect(space, &all));
            self.leave(space, region);
            return Change::Copied { entries };
        }
        let lifted = writes && table.protected;
        table.protected &= !writes;
        Change::Last { lifted }
    }

    /// Entries of pages in one region lose their permission to write.
    pub fn protect(&mut self, space: u32, pages: &Range<u64>) {
        self.protected.table(space, pages.start)[0].add_all(pages);
    }

    /// Entries of pages in one region are new, or were written.
    pub fn unprotect(&mut self, space: u32, pages: &Range<u64>) {
        if self.protected.get(space, pages.start).is_some() {
            self.protected.table(space, pages.start)[0].remove_all(pages);
        }
    }

    /// Returns whether the entry of a page is write-protected, apart from the entry above.
    pub fn is_protected(&self, space: u32, page: u64) -> bool {
        self.protected.get(space, page).is_some_and(|[pages]| pages.has(page))
    }
}
