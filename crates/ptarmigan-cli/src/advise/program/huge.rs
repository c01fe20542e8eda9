//! Huge pages: regions of 2 MiB that a program fills page by page.
//!
//! A region counts if it lies in one private anonymous area, nothing is mapped there at its first
//! fault, and the program touches at least seven eighths of its pages before it gives a part of it
//! away, forks, or ends. With a huge page the first fault stays, and the first write if that one
//! read: Linux maps a huge page of zeroes until then. The others go.
//!
//! Linux keeps a leaf table in reserve for each huge page and counts it, so no table is saved there.
//! The variant without a reserve makes none.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, REGION, RegionPages, Seen};
use crate::replay::{HugeFaults, PackedKind, Trace, When};
use ptarmigan::addr::VirtRange;
use ptarmigan_trace::{FaultFlags, Kind};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Pages of a region from which on it is full.
const FULL: u64 = REGION - REGION / 8;

/// A region from its first fault on.
#[derive(Clone, Default)]
struct Life {
    pages: RegionPages,
    first: u32,
    /// Faults that a huge page would serve as well.
    spared: Vec<u32>,
    /// The first fault read, and nothing has been written yet.
    only_read: bool,
    /// A part was given away, or the space was copied: faults are as they were from there on.
    over: bool,
    /// A part was given away or changed: a huge page would be split, which needs a table.
    split: bool,
}

/// Looks for full regions.
#[derive(Clone, Default)]
pub struct HugeRegions {
    access_unknown: bool,
    lives: HashMap<u32, BTreeMap<u64, Life>>,
    heaps: HashMap<u32, u64>,
    /// Faults that go.
    spared: HashSet<u32>,
    /// The first faults of full regions that nothing splits.
    whole: HashSet<u32>,
    /// Regions that are full.
    pub full: u64,
    /// Regions that could be huge but are not full.
    pub sparse: u64,
    /// Pages of full regions that the program does not touch.
    pub untouched: u64,
}

impl Finder for HugeRegions {
    fn see(&mut self, seen: &Seen<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, flags }, When::Before) => self.fault(seen, page, flags),
            (Happens::Call(kind), When::After) => self.call(seen, &kind),
            (Happens::Fork, When::Before) => {
                let lives = self.lives.get_mut(&seen.space);
                lives.into_iter().flatten().for_each(|(_, life)| life.over = true);
            }
            (Happens::End, _) => {
                for life in self.lives.remove(&seen.space).unwrap_or_default().into_values() {
                    self.end(life);
                }
            }
            _ => {}
        }
    }
}

fn addresses(first: u64, pages: u64) -> VirtRange {
    VirtRange { start: first << PAGE, end: first.saturating_add(pages) << PAGE }
}

impl HugeRegions {
    /// Looks at a recording that does or does not tell reads from writes.
    pub fn new(access_unknown: bool) -> Self {
        HugeRegions { access_unknown, ..HugeRegions::default() }
    }

    fn fault(&mut self, seen: &Seen<'_>, page: u64, flags: FaultFlags) {
        if flags.0 & FaultFlags::REFUSED != 0 {
            return;
        }
        let region = page / REGION;
        let write = self.access_unknown || flags.0 & FaultFlags::WRITE != 0;
        let lives = self.lives.entry(seen.space).or_default();
        if let Some(life) = lives.get_mut(&region) {
            if !life.over {
                life.pages.add(page);
                if life.only_read && write {
                    life.only_read = false;
                } else {
                    life.spared.push(seen.event);
                }
            }
            return;
        }
        let va = page << PAGE;
        let fits = seen.look.area(va).is_some_and(|area| HugeFaults::Always.reaches(&area, va));
        if fits && seen.look.pages(addresses(region * REGION, REGION)) == 0 {
            let mut life = Life { first: seen.event, only_read: !write, ..Life::default() };
            life.pages.add(page);
            lives.insert(region, life);
        }
    }

    fn call(&mut self, seen: &Seen<'_>, kind: &Kind) {
        let (start, pages, takes) = match *kind {
            Kind::Munmap { start, pages } | Kind::Mmap { start, pages, .. } => (start, pages, true),
            Kind::Madvise { start, pages, advice } => {
                (start, pages, i32::from(advice) == libc::MADV_DONTNEED)
            }
            Kind::Mremap { from, old_pages, .. } => (from, old_pages, true),
            Kind::Mprotect { start, pages, .. } => (start, pages, false),
            Kind::Brk { end } => {
                let before = self.heaps.insert(seen.space, end).unwrap_or(end);
                (end, before.saturating_sub(end), true)
            }
            _ => return,
        };
        let Some(lives) = self.lives.get_mut(&seen.space).filter(|_| pages > 0) else { return };
        let mut gone = Vec::new();
        for (&region, life) in lives.range_mut(start / REGION..=(start + pages - 1) / REGION) {
            if takes && seen.look.pages(addresses(region * REGION, REGION)) == 0 {
                gone.push(region);
            } else if start > region * REGION || start + pages < (region + 1) * REGION {
                life.split = true;
                life.over |= takes;
            }
        }
        let ended: Vec<Life> = gone.iter().filter_map(|region| lives.remove(region)).collect();
        ended.into_iter().for_each(|life| self.end(life));
    }

    fn end(&mut self, life: Life) {
        let pages = life.pages.count();
        if pages < FULL {
            self.sparse += 1;
            return;
        }
        self.full += 1;
        self.untouched += REGION - pages;
        if !life.split {
            self.whole.insert(life.first);
        }
        self.spared.extend(life.spared);
    }

    /// Counts the regions of spaces that have not ended.
    pub fn finish(&mut self) {
        for lives in std::mem::take(&mut self.lives).into_values() {
            lives.into_values().for_each(|life| self.end(life));
        }
    }

    /// Returns the recording with huge pages. `reserve`: a leaf table is made for each of them all
    /// the same, as on Linux.
    pub fn rewrite(&self, trace: &Trace, reserve: bool) -> Trace {
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            match step.what {
                _ if self.spared.contains(&event) => {}
                PackedKind::Fault { page, .. } if !reserve && self.whole.contains(&event) => {
                    let (start, flags) = (page / REGION * REGION, FaultFlags(FaultFlags::HUGE));
                    edit.call(step, Kind::Touched { start, pages: REGION, flags });
                }
                _ => edit.keep(step),
            }
        }
        edit.finish()
    }
}
