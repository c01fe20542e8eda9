//! `MADV_DONTNEED` that leaves empty tables behind.
//!
//! Linux (6.14 and later) frees a leaf table if one call gives up all of its 2 MiB, and only then.
//! A program that gives them up piece by piece keeps a table without pages. A region counts if it
//! lies in one area, a call for a part of it has taken its last page, and the program does not
//! touch it again. The mended program gives up the whole region after that call.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, REGION, Seen};
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::{Trace, When};
use ptarmigan_trace::Kind;
use std::collections::HashMap;

/// Looks for tables that are left empty.
#[derive(Default)]
pub struct EmptyTables {
    /// Regions that the call which is being carried out covers in part, with their pages before.
    partial: Vec<(u64, u64)>,
    /// For each space and region: the event that left it empty.
    left: HashMap<(u32, u64), u32>,
    /// Regions that were left empty, and touched again.
    pub refilled: u64,
}

fn region_of(region: u64) -> VirtRange {
    VirtRange { start: (region * REGION) << PAGE, end: ((region + 1) * REGION) << PAGE }
}

impl Finder for EmptyTables {
    fn see(&mut self, seen: &Seen<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, .. }, When::Before) => {
                let refilled = self.left.remove(&(seen.space, page / REGION));
                self.refilled += u64::from(refilled.is_some());
            }
            (Happens::Call(Kind::Madvise { start, pages, advice }), when)
                if i32::from(advice) == libc::MADV_DONTNEED =>
            {
                match when {
                    When::Before => self.before(seen, start, start + pages),
                    When::After => self.after(seen),
                }
            }
            _ => {}
        }
    }
}

impl EmptyTables {
    /// Notes the pages of regions that are given up in part: the first one, the last one, or both.
    fn before(&mut self, seen: &Seen<'_>, start: u64, end: u64) {
        self.partial.clear();
        let (first, last) = (start / REGION, (end - 1) / REGION);
        for region in if first == last { vec![first] } else { vec![first, last] } {
            let whole = start <= region * REGION && end >= (region + 1) * REGION;
            let pages = if whole { 0 } else { seen.look.pages(region_of(region)) };
            if pages > 0 {
                self.partial.push((region, pages));
            }
        }
    }

    fn after(&mut self, seen: &Seen<'_>) {
        for (region, _) in std::mem::take(&mut self.partial) {
            let range = region_of(region);
            let in_one = |area: &ptarmigan::space::Area| area.start <= range.start && range.end <= area.end;
            if seen.look.pages(range) == 0 && seen.look.area(range.start).is_some_and(|area| in_one(&area)) {
                self.left.insert((seen.space, region), seen.event);
            }
        }
    }

    /// Returns how many regions stay empty.
    pub fn regions(&self) -> u64 {
        self.left.len() as u64
    }

    /// Returns the recording of a program that gives up whole regions.
    pub fn rewrite(&self, trace: &Trace) -> Trace {
        let mut after: HashMap<u32, Vec<u64>> = HashMap::new();
        for (&(_, region), &event) in &self.left {
            after.entry(event).or_default().push(region);
        }
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            edit.keep(step);
            let mut regions = after.remove(&event).unwrap_or_default();
            regions.sort_unstable();
            for region in regions {
                let advice = libc::MADV_DONTNEED as u16;
                edit.call(step, Kind::Madvise { start: region * REGION, pages: REGION, advice });
            }
        }
        edit.finish()
    }
}
