//! The map of pages: which pages a space has, with which permissions, and what they show.
use ptarmigan::format::{Attr, Format, MemoryType};
use ptarmigan::space::{Access, AreaFlags};
use std::collections::BTreeMap;
use std::ops::Range;

/// The pages of a space by number. A page that is mapped and was never written shows 0.
#[derive(Clone, Default)]
pub struct Map {
    areas: BTreeMap<u64, AreaFlags>,
    shows: BTreeMap<u64, u64>,
    /// The pages of devices, with those of physical memory that they show.
    devices: BTreeMap<u64, (u64, MemoryType)>,
    /// The pages of areas of objects, with those of the object that they show.
    objects: BTreeMap<u64, Shown>,
}

/// A page of an object that a page of a space shows.
#[derive(Clone, Copy)]
pub struct Shown {
    /// Its number in the object.
    pub page: u64,
    /// Whether writes go to the object; otherwise the first one makes a copy.
    pub shared: bool,
}

impl Map {
    /// Returns whether a page of a format `F` allows an access. A page that may be written may be
    /// read; so may one for execution, if `F` has none for execution alone.
    pub fn allows<F: Format>(&self, page: u64, access: Access) -> bool {
        let execute_only = F::RIGHTS.can_say(Attr::EXEC | Attr::USER);
        self.areas.get(&page).is_some_and(|flags| match access {
            Access::Read if !execute_only => *flags != AreaFlags(0),
            Access::Read => flags.has(AreaFlags::READ) || flags.has(AreaFlags::WRITE),
            Access::Write => flags.has(AreaFlags::WRITE),
            Access::Exec => flags.has(AreaFlags::EXEC),
        })
    }

    /// Returns one of the pages that are mapped, by a number.
    pub fn any(&self, n: u64) -> Option<u64> {
        let pages = self.areas.len() as u64;
        self.areas.keys().nth(n.checked_rem(pages)? as usize).copied()
    }

    /// Returns what a page shows.
    pub fn shows(&self, page: u64) -> u64 {
        self.shows.get(&page).copied().unwrap_or(0)
    }

    /// Returns the page of physical memory that a page of a device shows, and its type.
    pub fn device(&self, page: u64) -> Option<(u64, MemoryType)> {
        self.devices.get(&page).copied()
    }

    /// As `map_physical`: pages of a device in place of others.
    pub fn map_physical(&mut self, pages: Range<u64>, flags: AreaFlags, at: u64, memory: MemoryType) {
        self.mmap(pages.clone(), flags);
        let there = at.wrapping_sub(pages.start);
        self.devices.extend(pages.map(|page| (page, (page.wrapping_add(there), memory))));
    }

    /// Returns the page of an object that a page shows: not one that a write has copied.
    pub fn object(&self, page: u64) -> Option<Shown> {
        self.objects.get(&page).copied().filter(|_| !self.shows.contains_key(&page))
    }

    /// As `mmap`, of an object from its page `first` on.
    pub fn map_object(&mut self, pages: Range<u64>, flags: AreaFlags, first: u64, shared: bool) {
        self.mmap(pages.clone(), flags);
        let start = pages.start;
        self.objects.extend(pages.map(|page| (page, Shown { page: page - start + first, shared })));
    }

    /// Returns the pages that lie in areas of objects, behind page `first` of the object, in runs.
    pub fn of_objects(&self, first: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in self.objects.iter().filter(|(_, shown)| shown.page >= first).map(|(page, _)| *page) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// A program writes `value` to a page.
    pub fn write(&mut self, page: u64, value: u64) {
        self.shows.insert(page, value);
    }

    /// Returns the pages that were written, and what they show.
    pub fn written(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.shows.iter().map(|(page, value)| (*page, *value))
    }

    /// Returns whether all pages of a range are mapped.
    pub fn has_all(&self, pages: Range<u64>) -> bool {
        self.areas.range(pages.clone()).count() as u64 == pages.end - pages.start
    }

    /// Returns whether no page of a range is mapped.
    pub fn has_none(&self, pages: Range<u64>) -> bool {
        self.areas.range(pages).next().is_none()
    }

    /// As `mmap`: new pages in place of others.
    pub fn mmap(&mut self, pages: Range<u64>, flags: AreaFlags) {
        self.munmap(pages.clone());
        self.areas.extend(pages.map(|page| (page, flags)));
    }

    /// As `munmap`.
    pub fn munmap(&mut self, pages: Range<u64>) {
        self.discard(pages.clone());
        self.areas.retain(|page, _| !pages.contains(page));
        self.devices.retain(|page, _| !pages.contains(page));
        self.objects.retain(|page, _| !pages.contains(page));
    }

    /// As `madvise` with `DontNeed`.
    pub fn discard(&mut self, pages: Range<u64>) {
        self.shows.retain(|page, _| !pages.contains(page));
    }

    /// As `mprotect`: pages that are not mapped stay so.
    pub fn mprotect(&mut self, pages: Range<u64>, flags: AreaFlags) {
        self.areas.range_mut(pages).for_each(|(_, old)| *old = flags);
    }

    /// As `mremap` of pages that are mapped, to a place that is free.
    pub fn mremap(&mut self, from: Range<u64>, to: u64) {
        for page in from.clone() {
            let there = to + (page - from.start);
            if let Some(flags) = self.areas.remove(&page) {
                self.areas.insert(there, flags);
            }
            if let Some(value) = self.shows.remove(&page) {
                self.shows.insert(there, value);
            }
            if let Some(shown) = self.devices.remove(&page) {
                self.devices.insert(there, shown);
            }
            if let Some(shown) = self.objects.remove(&page) {
                self.objects.insert(there, shown);
            }
        }
    }

    /// Counts the tables that map the pages that have an entry, by level: tables of `level` map
    /// 2^`shift` pages each.
    pub fn tables(pages: impl Iterator<Item = u64>, shift: u32) -> usize {
        let mut tables: Vec<u64> = pages.map(|page| page >> shift).collect();
        tables.dedup();
        tables.len()
    }
}
