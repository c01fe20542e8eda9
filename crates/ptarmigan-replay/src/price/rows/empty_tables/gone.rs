//! Regions whose pages have gone.
use foldhash::HashMap;
use std::collections::BTreeMap;

/// A region of a space whose pages have gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Its table is there, without entries.
    Empty,
    /// A call that covers it gave its table back.
    Freed,
}

/// The regions of all spaces whose pages have gone.
#[derive(Default)]
pub struct EmptyRegions {
    spaces: HashMap<u32, BTreeMap<u64, Table>>,
    now: u64,
    /// The most empty tables at once.
    pub peak: u64,
}

impl EmptyRegions {
    /// Adds a region.
    pub fn add(&mut self, space: u32, region: u64, table: Table) {
        self.remove(space, region);
        self.spaces.entry(space).or_default().insert(region, table);
        self.now += u64::from(table == Table::Empty);
        self.peak = self.peak.max(self.now);
    }

    /// Takes a region out.
    pub fn remove(&mut self, space: u32, region: u64) -> Option<Table> {
        let table = self.spaces.get_mut(&space)?.remove(&region);
        self.now -= u64::from(table == Some(Table::Empty));
        table
    }

    /// Takes all regions of a space out. Returns how many have an empty table.
    pub fn end(&mut self, space: u32) -> u64 {
        let empty = self.empty(space).count() as u64;
        self.now -= empty;
        self.spaces.remove(&space);
        empty
    }

    /// Returns the regions of a space with an empty table.
    pub fn empty(&self, space: u32) -> impl Iterator<Item = u64> {
        let regions = self.spaces.get(&space).into_iter().flatten();
        regions.filter(|(_, table)| **table == Table::Empty).map(|(region, _)| *region)
    }
}
