//! Pages of chosen zones moved next to each other.
//!
//! Touched pages keep their order, and untouched ones go. So a range of pages stays one: of the
//! touched pages in it. Other pages stay where they are.
use super::edit::Edit;
use super::seen::REGION;
use super::zones::{Walk, Zone};
use foldhash::HashMap;
use ptarmigan_replay::{PackedKind, RangeMap, Trace};
use ptarmigan_trace::Kind;
use std::collections::BTreeMap;

/// Pages of the user's half.
const USER_PAGES: u64 = 1 << 35;

/// The pages of one program that move.
pub struct Packed {
    /// The zones by their number: the first page's place, and the touched pages.
    zones: Vec<(u32, u64, Vec<u64>)>,
    /// At the moment at which packing saves the most: zones, pages, and the regions of these.
    most: (u64, u64, u64),
}

/// Places for pages. Places of zones that have ended are used again.
#[derive(Default)]
struct Room {
    free: RangeMap<()>,
    /// The first page after all that was ever in use.
    top: u64,
    /// Ranges in use, by the event that ends them.
    used: BTreeMap<(u32, u64), u64>,
}

impl Room {
    /// Returns a place for so many pages, in use from one event to another.
    fn take(&mut self, pages: u64, begin: u32, end: Option<u32>) -> u64 {
        while let Some(first) = self.used.first_entry().filter(|first| first.key().0 <= begin) {
            let ((_, start), length) = first.remove_entry();
            self.free.join(start..start + length, (), |(), ()| ());
        }
        let fits = self.free.iter().find(|(free, ())| free.end - free.start >= pages);
        let start = match fits {
            Some((free, ())) => free.start,
            None => {
                self.top += pages;
                self.top - pages
            }
        };
        self.free.remove(&(start..start + pages));
        if let Some(end) = end {
            self.used.insert((end, start), pages);
        }
        start
    }
}

impl Packed {
    /// Packs zones of a program, of which it has mapped `mapped`; `most` are the zones that are
    /// there when this saves the most. `None` if there is no place for them.
    pub fn new(zones: &[(u32, &Zone)], most: &[(u32, &Zone)], mapped: &[(u64, u64)]) -> Option<Self> {
        let mut zones = zones.to_vec();
        zones.sort_by_key(|(_, zone)| zone.begin);
        let mut room = Room::default();
        let mut places: Vec<(u32, u64, Vec<u64>)> = Vec::new();
        for (number, zone) in &zones {
            let end = zone.end.filter(|_| !zone.forked);
            places.push((*number, room.take(zone.pages.len() as u64, zone.begin, end), zone.pages.clone()));
        }
        let lowest = zones.iter().filter_map(|(_, zone)| zone.pages.first()).min()?;
        let base = gap(mapped, *lowest, room.top);
        places.iter_mut().for_each(|(_, place, _)| *place += base);
        let mut regions: Vec<u64> =
            most.iter().flat_map(|(_, zone)| zone.pages.iter().map(|page| page / REGION)).collect();
        regions.sort_unstable();
        regions.dedup();
        let pages = most.iter().map(|(_, zone)| zone.pages.len() as u64).sum();
        let most = (most.len() as u64, pages, regions.len() as u64);
        (base + room.top <= USER_PAGES).then_some(Packed { zones: places, most })
    }

    /// Returns how many pages there are at the most.
    pub fn pages(&self) -> u64 {
        self.most.1
    }

    /// Returns how many zones have them.
    pub fn zones(&self) -> u64 {
        self.most.0
    }

    /// Returns over how many regions they are spread.
    pub fn regions(&self) -> u64 {
        self.most.2
    }
}

/// The places of zones that move, by their number.
struct Places<'p>(HashMap<u32, (u64, &'p [u64])>);

impl Places<'_> {
    /// Returns where a part of a zone is now: the first page and a length. `None` if the zone
    /// stays.
    fn part(&self, zone: u32, from: u64, to: u64) -> Option<(u64, u64)> {
        let (base, touched) = self.0.get(&zone)?;
        let index = |end: u64| touched.partition_point(|page| *page < end) as u64;
        Some((base + index(from), index(to) - index(from)))
    }

    /// Returns where the pages of a range are now: ranges as pairs of the first page and a length.
    fn moved(&self, walk: &Walk<'_>, task: u32, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut at, mut ranges) = (start, Vec::new());
        walk.parts(task, start, end, |from, to, zone| {
            if let Some(part) = self.part(zone, from, to) {
                ranges.push((at, from - at));
                ranges.push(part);
                at = to;
            }
        });
        ranges.push((at, end - at));
        ranges.retain(|(_, pages)| *pages > 0);
        ranges
    }

    /// Returns the parts of zones in a range that move: the zone, and where it is now.
    fn taken(&self, walk: &Walk<'_>, task: u32, start: u64, end: u64) -> Vec<(u32, u64, u64)> {
        let mut taken = Vec::new();
        walk.parts(task, start, end, |from, to, zone| {
            let part = self.part(zone, from, to).filter(|(_, pages)| *pages > 0);
            taken.extend(part.map(|(start, pages)| (zone, start, pages)));
        });
        taken
    }
}

/// Returns the first place at or above `lowest` that is never mapped, for so many pages and a
/// region on both sides.
fn gap(mapped: &[(u64, u64)], lowest: u64, pages: u64) -> u64 {
    let mut mapped = mapped.to_vec();
    mapped.sort_unstable();
    let mut at = lowest;
    for (start, end) in mapped {
        if start > at + pages + 3 * REGION {
            break;
        }
        at = at.max(end);
    }
    (at / REGION + 2) * REGION
}

/// Returns a recording in which the pages of programs are packed, by the programs' numbers.
pub fn pack(trace: &Trace, programs: &HashMap<u32, Packed>) -> Trace {
    let zones = programs.values().flat_map(|packed| &packed.zones);
    let places = Places(zones.map(|(number, base, pages)| (*number, (*base, pages.as_slice()))).collect());
    let mut walk = Walk::new(trace);
    let mut edit = Edit::of(trace);
    for (step, event) in trace.steps.iter().zip(0_u32..) {
        let task = step.task;
        match (step.what, edit.kind(step)) {
            (PackedKind::Fault { page, flags }, _) => {
                let moved = places.moved(&walk, task, page, page + 1);
                moved.into_iter().for_each(|(page, _)| edit.fault(step, page, flags));
                walk.step(step, event);
            }
            // The place of a mapping is known once it is made.
            (_, Some(kind @ Kind::Mmap { start, pages, .. })) => {
                let taken = places.taken(&walk, task, start, start + pages);
                walk.step(step, event);
                let zone = walk.zone(task, start);
                for (_, start, pages) in taken.into_iter().filter(|(old, ..)| Some(*old) != zone) {
                    edit.call(step, Kind::Munmap { start, pages });
                }
                for (start, pages) in places.moved(&walk, task, start, start + pages) {
                    edit.call(step, kind.with_range(start, pages));
                }
            }
            (_, Some(kind)) => {
                match range(&kind) {
                    Some((start, pages)) => {
                        for (start, pages) in places.moved(&walk, task, start, start + pages) {
                            edit.call(step, kind.with_range(start, pages));
                        }
                    }
                    None => edit.keep(step),
                }
                walk.step(step, event);
            }
            _ => edit.keep(step),
        }
    }
    edit.finish()
}

/// Returns the pages that a call is about, if it may be about those of a zone.
fn range(kind: &Kind) -> Option<(u64, u64)> {
    match kind {
        Kind::Area { .. } | Kind::Mremap { .. } => None,
        kind => kind.range(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_stand_next_to_each_other_in_their_order() {
        let zone = |pages: &[u64]| Zone::with(0, None, pages);
        let (first, second) = (zone(&[10 * REGION + 7, 15 * REGION]), zone(&[30 * REGION + 1]));
        let mapped = [(10 * REGION, 20 * REGION), (30 * REGION, 31 * REGION)];
        let zones = [(2, &first), (4, &second)];
        let packed = Packed::new(&zones, &zones, &mapped).expect("pages move");
        assert_eq!((packed.pages(), packed.zones(), packed.regions()), (3, 2, 3));
        let base = packed.zones[0].1;
        let zones = packed.zones.iter();
        let places = Places(zones.map(|(number, at, pages)| (*number, (*at, pages.as_slice()))).collect());
        assert_eq!(places.part(2, 10 * REGION + 7, 10 * REGION + 8), Some((base, 1)));
        assert_eq!(places.part(2, 10 * REGION, 16 * REGION), Some((base, 2)));
        assert_eq!(places.part(4, 30 * REGION, 31 * REGION), Some((base + 2, 1)));
        assert_eq!(places.part(2, 11 * REGION, 12 * REGION), Some((base + 1, 0)), "nothing is touched there");
        assert_eq!(places.part(3, 0, 1), None, "it stays");
    }

    #[test]
    fn zones_that_have_ended_leave_their_place_to_others() {
        let mut room = Room::default();
        assert_eq!([room.take(3, 1, Some(5)), room.take(4, 2, None), room.take(2, 3, Some(6))], [0, 3, 7]);
        assert_eq!(room.take(1, 5, Some(9)), 0);
        assert_eq!(room.take(4, 6, None), 9, "three pages and two are apart");
        assert_eq!([room.take(3, 9, None), room.take(2, 9, None), room.top], [0, 7, 13]);
    }

    #[test]
    fn nothing_else_is_mapped_where_pages_go() {
        let mapped =
            [(0, 5), (10 * REGION, 20 * REGION), (22 * REGION, 23 * REGION), (90 * REGION, u64::MAX)];
        assert_eq!(gap(&mapped, 10 * REGION, 100), 25 * REGION);
    }
}
