//! Finds the memory that each program maps for itself, and the pages of it that are touched.
//!
//! A *zone* is private anonymous memory that `mmap` has made: calls whose places overlap make one
//! zone, and `munmap` cuts off untouched ends. A zone that a file or shared memory was mapped into,
//! or that `mremap` has moved, cannot be packed.
use super::seen::{Finder, Happens, PAGE, REGION, RegionPages, SpaceOperation};
use ptarmigan::space::AreaFlags;
use ptarmigan_replay::When;
use ptarmigan_trace::{Kind, MapFlags};
use std::collections::{BTreeMap, HashMap};

/// Lengths that the C library's allocator maps for an arena of 64 MiB: the arena itself, and twice
/// that to cut an aligned one out of.
const ARENA: [u64; 2] = [(64 << 20) >> PAGE, (128 << 20) >> PAGE];

/// Addresses that a program has mapped for itself, in pages.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// The first page.
    pub start: u64,
    /// The first page after it.
    pub end: u64,
    /// It may be packed.
    pub movable: bool,
    /// It is an arena of the C library's allocator.
    pub arena: bool,
}

/// One program, from its start to the end of the last task that runs it.
#[derive(Clone, Default)]
pub struct Layout {
    /// The zones. They do not overlap.
    pub zones: Vec<Zone>,
    /// Pages with faults in private anonymous areas, by region.
    pub touched: BTreeMap<u64, RegionPages>,
    /// All that was ever mapped, as pairs of the first page and the first one after it.
    pub mapped: Vec<(u64, u64)>,
}

/// Finds the zones of all programs.
#[derive(Clone, Default)]
pub struct Zones {
    /// By the number of the program.
    pub programs: HashMap<u32, Layout>,
}

impl Finder for Zones {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        if seen.when == When::After {
            return;
        }
        match seen.what {
            Happens::Fault { page, .. } => {
                let private = seen.look.area(page << PAGE).is_some_and(|area| {
                    let flags = area.flags;
                    !flags.has(AreaFlags::SHARED)
                        && !flags.has(AreaFlags::BACKED)
                        && !flags.has(AreaFlags::GROWS_DOWN)
                });
                if private {
                    let layout = self.programs.entry(seen.program).or_default();
                    layout.touched.entry(page / REGION).or_default().add(page);
                }
            }
            Happens::Call(kind) => self.programs.entry(seen.program).or_default().call(&kind),
            Happens::Fork { .. } | Happens::End => {}
        }
    }
}

impl Layout {
    fn call(&mut self, kind: &Kind) {
        let (start, pages, movable) = match *kind {
            Kind::Mmap { start, pages, flags, .. } => {
                let has = |flag| flags.0 & flag != 0;
                let unusual = MapFlags::SHARED | MapFlags::GROWSDOWN | MapFlags::HUGE_ONLY;
                (start, pages, has(MapFlags::ANON) && !has(unusual))
            }
            Kind::Area { start, pages, .. } => (start, pages, false),
            Kind::Brk { end } => (end.saturating_sub(1), 1, false),
            Kind::Mremap { from, old_pages, to, new_pages, .. } => {
                self.add(Zone { start: from, end: from + old_pages, movable: false, arena: false });
                (to, new_pages, false)
            }
            Kind::Munmap { start, pages } => return self.cut(start, start + pages),
            _ => return,
        };
        let arena = matches!(kind, Kind::Mmap { prot, .. } if prot.0 == 0) && ARENA.contains(&pages);
        self.add(Zone { start, end: start + pages, movable, arena: arena && movable });
    }

    fn add(&mut self, mut zone: Zone) {
        if zone.start >= zone.end {
            return;
        }
        self.mapped.push((zone.start, zone.end));
        self.zones.retain(|old| {
            let apart = old.end <= zone.start || zone.end <= old.start;
            if !apart {
                zone = Zone {
                    start: old.start.min(zone.start),
                    end: old.end.max(zone.end),
                    movable: old.movable && zone.movable,
                    arena: old.arena,
                };
            }
            apart
        });
        self.zones.push(zone);
    }

    /// Cuts off the ends of zones that are unmapped and were never touched.
    fn cut(&mut self, start: u64, end: u64) {
        let touched = &self.touched;
        for zone in &mut self.zones {
            let (from, to) = (start.max(zone.start), end.min(zone.end));
            if from < to && !has_touched(touched, from, to) {
                if from == zone.start {
                    zone.start = to;
                } else if to == zone.end {
                    zone.end = from;
                }
            }
        }
        self.zones.retain(|zone| zone.start < zone.end);
    }
}

fn has_touched(touched: &BTreeMap<u64, RegionPages>, start: u64, end: u64) -> bool {
    let mut regions = touched.range(start / REGION..=(end - 1) / REGION);
    regions.any(|(&region, pages)| pages.pages(region).any(|page| (start..end).contains(&page)))
}

impl Zone {
    /// Returns the touched pages in this zone, in order.
    pub fn pages(&self, touched: &BTreeMap<u64, RegionPages>) -> Vec<u64> {
        let regions = touched.range(self.start / REGION..=(self.end - 1) / REGION);
        let pages = regions.flat_map(|(&region, pages)| pages.pages(region));
        pages.filter(|page| (self.start..self.end).contains(page)).collect()
    }
}
