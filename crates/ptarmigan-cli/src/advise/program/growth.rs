//! Arrays that grow by a copy: a longer mapping gets the contents of a shorter one, which goes.
//!
//! # Why
//!
//! Each page of the copy is a fault that clears a page, and the old ones are freed. `mremap` moves
//! the entries of the page table instead, and the pages stay:
//!
//! ```text
//!   recorded   mmap B      800 faults in B   munmap A   fault in B for what is new
//!   moved      mremap A B  ─                 ─          fault in B for what is new
//! ```
//!
//! A program that fills one buffer while it has another looks alike. So a step counts only if the
//! longer mapping has the pages of the shorter one when that goes, and hardly any other, and if
//! steps follow each other: the longer mapping of one is the shorter one of the next.
use super::edit::Edit;
use super::event_set::EventSet;
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use foldhash::HashMap;
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::{Trace, When};
use ptarmigan_trace::{FaultFlags, Kind, MapFlags};
use std::collections::{BTreeMap, VecDeque};

/// Steps of a chain before they count.
const LEAST_STEPS: usize = 2;
/// The part of the shorter mapping's pages that the longer one has at least.
const COPIED: f64 = 0.75;
/// Pages behind the copy that the longer mapping has at most: the element that did not fit.
const BEHIND: usize = 2;
/// Mappings of a space that may get a copy, the last that were made.
const NEWEST: usize = 16;

/// The saving of one program.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrowthSaving {
    /// Faults on pages of copies.
    pub faults: u64,
    /// Steps. Each has a `mmap` and a `munmap`, instead of one `mremap`.
    pub steps: u64,
    /// The longest mapping that was made, in pages.
    pub longest: u64,
}

impl GrowthSaving {
    /// Adds the savings of another run of the same program.
    pub fn add(&mut self, other: &GrowthSaving) {
        self.faults += other.faults;
        self.steps += other.steps;
        self.longest = self.longest.max(other.longest);
    }
}

/// One step: three kinds of events, by their numbers.
struct Step {
    program: u32,
    /// The longer mapping is made, and the call instead.
    made: u32,
    moved: Kind,
    /// Faults of the copy.
    faults: Vec<u32>,
    /// The shorter mapping goes.
    gone: u32,
}

/// A private mapping that one call made.
#[derive(Default)]
struct Array {
    pages: u64,
    /// The last fault in it.
    fault: u32,
    /// The steps by which it grew.
    steps: Vec<Step>,
}

/// A mapping of a space that may get a copy.
struct Newest {
    made: u32,
    start: u64,
    /// Its faults: page and event.
    faults: Vec<(u64, u32)>,
}

/// One address space.
#[derive(Default)]
struct SpaceArrays {
    newest: VecDeque<Newest>,
    /// By the first page.
    arrays: BTreeMap<u64, Array>,
}

/// Follows the private mappings of all programs.
#[derive(Default)]
pub struct Growth {
    spaces: HashMap<u32, SpaceArrays>,
    steps: Vec<Step>,
    /// By the number of the program.
    pub programs: HashMap<u32, GrowthSaving>,
}

impl SpaceArrays {
    fn fault(&mut self, event: u32, page: u64) {
        let found = self.arrays.range_mut(..=page).next_back();
        let Some((start, array)) = found.filter(|(start, array)| page - **start < array.pages) else {
            return;
        };
        array.fault = event;
        if let Some(newest) = self.newest.iter_mut().find(|newest| newest.start == *start) {
            newest.faults.push((page, event));
        }
    }

    /// The mapping at `start` is no array any more. Returns what was known of it.
    fn forget(&mut self, start: u64) -> Option<Array> {
        self.newest.retain(|newest| newest.start != start);
        self.arrays.remove(&start)
    }

    /// The mapping at `start` goes, of which `present` pages are there. Adds a step to the one that
    /// is its copy, if there is one.
    fn grows(&mut self, seen: &SpaceOperation<'_>, start: u64, pages: u64, present: u64) -> Option<()> {
        self.newest.retain(|newest| newest.start != start);
        let shorter = self.arrays.get(&start).filter(|array| array.pages == pages && present > 0)?;
        let is_copy = |newest: &Newest| {
            let inside = || newest.faults.iter().filter(|(page, _)| page - newest.start < pages).count();
            shorter.fault < newest.made
                && self.arrays.get(&newest.start).is_some_and(|longer| longer.pages > pages)
                // Many more faults are no copy, and need not be looked through at each munmap.
                && newest.faults.len() <= 2 * present as usize + BEHIND
                && inside() as f64 >= present as f64 * COPIED
                && newest.faults.len() - inside() <= BEHIND
        };
        let newest = self.newest.remove(self.newest.iter().rposition(is_copy)?)?;
        let new_pages = self.arrays.get(&newest.start)?.pages;
        let copied = newest.faults.into_iter().filter(|(page, _)| page - newest.start < pages);
        let mut steps = self.arrays.remove(&start)?.steps;
        steps.push(Step {
            program: seen.program,
            made: newest.made,
            moved: Kind::Mremap { from: start, old_pages: pages, keep: false, to: newest.start, new_pages },
            faults: copied.map(|(_, event)| event).collect(),
            gone: seen.event,
        });
        self.arrays.get_mut(&newest.start)?.steps = steps;
        Some(())
    }
}

impl Finder for Growth {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        if seen.when != When::Before {
            return;
        }
        let of = self.spaces.entry(seen.space).or_default();
        match seen.what {
            Happens::Fault { page, flags } if flags.0 & FaultFlags::REFUSED == 0 => {
                of.fault(seen.event, page)
            }
            Happens::Fault { .. } => {}
            Happens::Call(Kind::Mmap { start, pages, flags, .. }) => {
                let unfit = MapFlags::SHARED | MapFlags::POPULATE | MapFlags::GROWSDOWN | MapFlags::HUGE_ONLY;
                let over = seen.look.area(start << PAGE).is_some();
                let old = of.forget(start);
                if flags.0 & MapFlags::ANON != 0 && flags.0 & unfit == 0 && !over {
                    if of.newest.len() == NEWEST {
                        of.newest.pop_front();
                    }
                    of.newest.push_back(Newest { made: seen.event, start, faults: Vec::new() });
                    of.arrays.insert(start, Array { pages, ..Array::default() });
                }
                self.ended(old);
            }
            Happens::Call(Kind::Munmap { start, pages }) => {
                let present = seen.look.pages(VirtRange::saturating_pages(start, pages, PAGE));
                if of.grows(seen, start, pages, present).is_none() {
                    let old = of.forget(start);
                    self.ended(old);
                }
            }
            // Its pages lie elsewhere from now on.
            Happens::Call(Kind::Mremap { from, .. }) => {
                let old = of.forget(from);
                self.ended(old);
            }
            Happens::Call(_) => {}
            // The next writes copy pages that are shared with the child.
            Happens::Fork { .. } => of.newest.clear(),
            Happens::End => {
                let of = self.spaces.remove(&seen.space);
                self.ended(of.into_iter().flat_map(|of| of.arrays.into_values()));
            }
        }
    }
}

impl Growth {
    /// Arrays are at their end: their steps count, if they are a chain.
    fn ended(&mut self, arrays: impl IntoIterator<Item = Array>) {
        for array in arrays.into_iter().filter(|array| array.steps.len() >= LEAST_STEPS) {
            for step in array.steps {
                let of = self.programs.entry(step.program).or_default();
                of.faults += step.faults.len() as u64;
                of.steps += 1;
                of.longest = of.longest.max(array.pages);
                self.steps.push(step);
            }
        }
    }

    /// The recording is at its end.
    pub fn finish(&mut self) {
        let spaces = std::mem::take(&mut self.spaces);
        self.ended(spaces.into_values().flat_map(|of| of.arrays.into_values()));
    }

    /// Returns the recording in which arrays of chosen programs are moved.
    pub fn rewrite(&self, trace: &Trace, chosen: impl Fn(u32) -> bool) -> Trace {
        let steps = || self.steps.iter().filter(|step| chosen(step.program));
        let moved: HashMap<u32, Kind> = steps().map(|step| (step.made, step.moved)).collect();
        let mut spared = EventSet::default();
        steps().flat_map(|step| step.faults.iter().chain([&step.gone])).for_each(|event| spared.add(*event));
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            match moved.get(&event) {
                Some(kind) => edit.call(step, *kind),
                None if spared.has(event) => {}
                None => edit.keep(step),
            }
        }
        edit.finish()
    }
}
