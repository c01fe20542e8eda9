//! Pages of chosen zones moved next to each other.
//!
//! Touched pages keep their order, and untouched ones go. So a range of pages stays one: of the
//! touched pages in it. Other pages stay where they are.
use super::edit::Edit;
use super::seen::REGION;
use super::zones::{Layout, Zone};
use ptarmigan_replay::{PackedKind, Tasks, Trace};
use ptarmigan_trace::Kind;
use std::collections::HashMap;

/// Pages of the user's half.
const USER_PAGES: u64 = 1 << 35;

/// The pages of one program that move.
pub struct Packed {
    /// The zones, in order, with their touched pages and how many come before them.
    zones: Vec<(Zone, Vec<u64>, u64)>,
    /// Where the first touched page goes.
    base: u64,
}

impl Packed {
    /// Packs zones of a program; `None` if they have no touched pages, or there is no place for
    /// them.
    pub fn new(layout: &Layout, chosen: impl Fn(&Zone, &[u64]) -> bool) -> Option<Self> {
        let mut zones: Vec<(Zone, Vec<u64>, u64)> = Vec::new();
        let mut movable: Vec<Zone> = layout.zones.iter().filter(|zone| zone.movable).copied().collect();
        movable.sort_unstable_by_key(|zone| zone.start);
        let mut total = 0;
        for zone in movable {
            let pages = zone.pages(&layout.touched);
            if !pages.is_empty() && chosen(&zone, &pages) {
                let before = total;
                total += pages.len() as u64;
                zones.push((zone, pages, before));
            }
        }
        let base = gap(&layout.mapped, zones.first()?.0.start, total);
        (base + total <= USER_PAGES).then_some(Packed { base, zones })
    }

    /// Returns how many pages move.
    pub fn pages(&self) -> u64 {
        self.zones.last().map_or(0, |(_, pages, before)| before + pages.len() as u64)
    }

    /// Returns how many zones move.
    pub fn zones(&self) -> u64 {
        self.zones.len() as u64
    }

    /// Returns over how many regions the pages are spread.
    pub fn regions(&self) -> u64 {
        let mut regions: Vec<u64> =
            self.zones.iter().flat_map(|(_, pages, _)| pages.iter().map(|page| page / REGION)).collect();
        regions.dedup();
        regions.len() as u64
    }

    /// Returns where the pages of a range are now: ranges as pairs of the first page and a length.
    fn moved(&self, start: u64, pages: u64) -> Vec<(u64, u64)> {
        let (mut at, end) = (start, start + pages);
        let mut parts = Vec::new();
        let from = self.zones.partition_point(|(zone, ..)| zone.end <= start);
        for (zone, touched, before) in &self.zones[from..] {
            if zone.start >= end {
                break;
            }
            if at < zone.start {
                parts.push((at, zone.start - at));
            }
            let (first, last) = (
                touched.partition_point(|&page| page < at.max(zone.start)) as u64,
                touched.partition_point(|&page| page < end) as u64,
            );
            if first < last {
                parts.push((self.base + before + first, last - first));
            }
            at = zone.end;
        }
        if at < end {
            parts.push((at, end - at));
        }
        parts
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
    let mut tasks = Tasks::new(trace);
    let mut edit = Edit::of(trace);
    for step in &trace.steps {
        let Some(packed) = tasks.step(trace, step).and_then(|program| programs.get(&program)) else {
            edit.keep(step);
            continue;
        };
        match (step.what, edit.kind(step)) {
            (PackedKind::Fault { page, flags }, _) => {
                packed.moved(page, 1).into_iter().for_each(|(page, _)| edit.fault(step, page, flags));
            }
            (_, Some(kind)) => match range(&kind) {
                Some((start, pages)) => {
                    for (start, pages) in packed.moved(start, pages) {
                        edit.call(step, kind.with_range(start, pages));
                    }
                }
                None => edit.keep(step),
            },
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
    use super::super::seen::RegionPages;
    use super::*;

    /// A program with two zones of which three pages are touched.
    fn layout() -> Layout {
        let mut layout = Layout::default();
        let zone = |start, end| Zone { start, end, movable: true, arena: false };
        layout.zones = vec![zone(10 * REGION, 20 * REGION), zone(30 * REGION, 31 * REGION)];
        layout.mapped = layout.zones.iter().map(|zone| (zone.start, zone.end)).collect();
        for page in [10 * REGION + 7, 15 * REGION, 30 * REGION + 1] {
            layout.touched.entry(page / REGION).or_insert_with(RegionPages::default).add(page);
        }
        layout
    }

    #[test]
    fn touched_pages_stand_next_to_each_other_in_their_order() {
        let packed = Packed::new(&layout(), |_, _| true).expect("pages move");
        let base = packed.base;
        assert_eq!((packed.pages(), packed.zones(), packed.regions()), (3, 2, 3));
        assert_eq!(packed.moved(10 * REGION + 7, 1), [(base, 1)]);
        assert_eq!(packed.moved(10 * REGION, 6 * REGION), [(base, 2)]);
        assert_eq!(packed.moved(30 * REGION, REGION), [(base + 2, 1)]);
        assert_eq!(packed.moved(11 * REGION, REGION), [], "nothing is touched there");
        let around = [(9 * REGION, REGION), (base, 2), (20 * REGION, REGION)];
        assert_eq!(packed.moved(9 * REGION, 12 * REGION), around);
    }

    #[test]
    fn nothing_else_is_mapped_where_pages_go() {
        let mapped =
            [(0, 5), (10 * REGION, 20 * REGION), (22 * REGION, 23 * REGION), (90 * REGION, u64::MAX)];
        assert_eq!(gap(&mapped, 10 * REGION, 100), 25 * REGION);
    }
}
