//! Memory that is given back piece by piece, and leaves empty tables behind.
//!
//! `munmap` frees a leaf table once no area lies in its 2 MiB. `MADV_DONTNEED` frees one (Linux
//! 6.14 and later) if one call gives up all of its 2 MiB, and only then; before 6.14 none. A
//! program that gives them up piece by piece keeps a table without pages. A region counts if a call
//! for a part of it has taken its last page, and the program does not use it again. After that call
//! the corrected program gives the whole region up: with `MADV_DONTNEED` if it lies in one area, or
//! with `munmap` if several areas without pages are left in it.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, REGION, SpaceOperation};
use foldhash::{HashMap, HashMapExt};
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::{Trace, When};
use ptarmigan_trace::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// How the rest of a region is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    DontNeed,
    Munmap,
}

/// A region that was left empty.
#[derive(Clone, Copy)]
struct EmptyRegion {
    event: u32,
    program: u32,
    cure: Cure,
}

/// Looks for tables that are left empty.
#[derive(Default)]
pub struct EmptyTables {
    /// Regions that the call which is being carried out covers in part, and that have pages.
    partial: Vec<u64>,
    /// The regions of each space that are left empty.
    left: HashMap<u32, BTreeMap<u64, EmptyRegion>>,
    /// Regions that were left empty, and used again.
    pub refilled: u64,
    /// Regions with an empty table now, in each space.
    empty: HashMap<u32, BTreeSet<u64>>,
    now: u64,
    /// The most empty tables at once.
    pub peak: u64,
    /// Empty tables that spaces had when they ended.
    pub at_end: u64,
    /// Tables with pages that one `MADV_DONTNEED` covers as a whole: Linux frees them since 6.14.
    pub reclaimed: u64,
}

fn region_of(region: u64) -> VirtRange {
    VirtRange::saturating_pages(region * REGION, REGION, PAGE)
}

/// Returns the range of a call that takes pages away: its first page, and the first one after it.
fn takes(kind: &Kind) -> Option<(u64, u64)> {
    let (start, pages) = match *kind {
        Kind::Madvise { start, pages, advice }
            if matches!(i32::from(advice), libc::MADV_DONTNEED | libc::MADV_REMOVE) =>
        {
            (start, pages)
        }
        Kind::Munmap { start, pages } | Kind::Mmap { start, pages, .. } => (start, pages),
        Kind::Mremap { from, old_pages, .. } if old_pages > 0 => (from, old_pages),
        _ => return None,
    };
    (pages > 0).then_some((start, start.saturating_add(pages)))
}

/// Returns the range of any call that needs the areas of its range.
fn uses(kind: &Kind) -> Option<(u64, u64)> {
    let (start, pages) = match *kind {
        // Heaps move at their end.
        Kind::Brk { end } => (end.saturating_sub(REGION), 2 * REGION),
        Kind::Area { .. } => return None,
        kind => kind.range()?,
    };
    (pages > 0).then_some((start, start.saturating_add(pages)))
}

impl Finder for EmptyTables {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, .. }, When::Before) => {
                let region = page / REGION;
                let refilled = self.left.get_mut(&seen.space).and_then(|left| left.remove(&region));
                self.refilled += u64::from(refilled.is_some());
                self.fills(seen.space, region);
            }
            (Happens::Call(kind), When::Before) => {
                self.partial.clear();
                let used = uses(&kind).map(|(start, end)| self.used_again(seen.space, start, end));
                match takes(&kind) {
                    Some((start, end)) => {
                        self.before(seen, start, end, &kind);
                        // Another piece goes, and the table stays empty.
                        self.partial.extend(used.unwrap_or_default());
                        self.partial.sort_unstable();
                        self.partial.dedup();
                    }
                    None => self.refilled += used.map_or(0, |used| used.len() as u64),
                }
            }
            (Happens::Call(kind), When::After) => {
                self.after(seen, &kind);
                if let Some((start, end)) = takes(&kind) {
                    self.freed(seen, start, end);
                }
            }
            (Happens::End, _) => {
                seen.look.leaf_tables(VirtRange::up_to(1 << 47), &mut |table| {
                    self.at_end += u64::from(table.entries == 0);
                });
                self.now -= self.empty.remove(&seen.space).map_or(0, |empty| empty.len() as u64);
            }
            _ => {}
        }
    }
}

/// Returns whether a region has a table without entries.
fn has_empty_table(seen: &SpaceOperation<'_>, region: u64) -> bool {
    let mut empty = false;
    seen.look.leaf_tables(region_of(region), &mut |table| empty = table.entries == 0);
    empty
}

impl EmptyTables {
    fn fills(&mut self, space: u32, region: u64) {
        let gone = self.empty.get_mut(&space).is_some_and(|empty| empty.remove(&region));
        self.now -= u64::from(gone);
    }

    /// Forgets regions of which the program needs the areas after all. Returns them.
    fn used_again(&mut self, space: u32, start: u64, end: u64) -> Vec<u64> {
        let Some(left) = self.left.get_mut(&space) else { return Vec::new() };
        let range = left.range(start / REGION..=(end - 1) / REGION);
        let used: Vec<u64> =
            range.filter(|(_, left)| left.cure == Cure::Munmap).map(|(region, _)| *region).collect();
        for region in &used {
            left.remove(region);
        }
        used
    }

    /// Notes regions with pages that are given up in part: the first one, the last one, or both.
    fn before(&mut self, seen: &SpaceOperation<'_>, start: u64, end: u64, kind: &Kind) {
        let (first, last) = (start / REGION, (end - 1) / REGION);
        let whole = |region: u64| start <= region * REGION && end >= (region + 1) * REGION;
        for region in if first == last { vec![first] } else { vec![first, last] } {
            if !whole(region) && seen.look.pages(region_of(region)) > 0 {
                self.partial.push(region);
            }
        }
        let (first, end) = (start.div_ceil(REGION) * REGION, end / REGION * REGION);
        if matches!(kind, Kind::Madvise { .. }) && first < end {
            let range = VirtRange::saturating_pages(first, end - first, PAGE);
            seen.look.leaf_tables(range, &mut |table| {
                self.reclaimed += u64::from(table.entries > 0);
            });
        }
    }

    fn after(&mut self, seen: &SpaceOperation<'_>, kind: &Kind) {
        for region in std::mem::take(&mut self.partial) {
            let range = region_of(region);
            if seen.look.pages(range) > 0 || !has_empty_table(seen, region) {
                continue;
            }
            let in_one = |area: &ptarmigan::space::Area| area.start <= range.start && range.end <= area.end;
            let in_one = seen.look.area(range.start).is_some_and(|area| in_one(&area));
            let cure = match kind {
                _ if in_one => Cure::DontNeed,
                // A part of an area that is kept: its place is wanted.
                Kind::Madvise { .. } => continue,
                _ => Cure::Munmap,
            };
            let left = EmptyRegion { event: seen.event, program: seen.program, cure };
            self.left.entry(seen.space).or_default().insert(region, left);
            let new = self.empty.entry(seen.space).or_default().insert(region);
            self.now += u64::from(new);
            self.peak = self.peak.max(self.now);
        }
    }

    /// Forgets empty tables that the call has freed.
    fn freed(&mut self, seen: &SpaceOperation<'_>, start: u64, end: u64) {
        let Some(empty) = self.empty.get_mut(&seen.space) else { return };
        let within: Vec<u64> = empty.range(start / REGION..=(end - 1) / REGION).copied().collect();
        for region in within {
            if !has_empty_table(seen, region) {
                empty.remove(&region);
                self.now -= 1;
            }
        }
    }

    /// Returns how many regions stay empty, by the number of the program.
    pub fn regions(&self) -> BTreeMap<u32, u64> {
        let mut programs = BTreeMap::new();
        for left in self.left.values().flat_map(BTreeMap::values) {
            *programs.entry(left.program).or_default() += 1;
        }
        programs
    }

    /// Returns the recording of programs that give up whole regions.
    pub fn rewrite(&self, trace: &Trace, chosen: impl Fn(u32) -> bool) -> Trace {
        let mut after: HashMap<u32, Vec<(u64, Cure)>> = HashMap::new();
        for (&region, left) in self.left.values().flatten() {
            if chosen(left.program) {
                after.entry(left.event).or_default().push((region, left.cure));
            }
        }
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            edit.keep(step);
            let mut regions = after.remove(&event).unwrap_or_default();
            regions.sort_unstable_by_key(|(region, _)| *region);
            for (region, cure) in regions {
                let (start, pages) = (region * REGION, REGION);
                let advice = libc::MADV_DONTNEED as u16;
                edit.call(
                    step,
                    match cure {
                        Cure::DontNeed => Kind::Madvise { start, pages, advice },
                        Cure::Munmap => Kind::Munmap { start, pages },
                    },
                );
            }
        }
        edit.finish()
    }
}
