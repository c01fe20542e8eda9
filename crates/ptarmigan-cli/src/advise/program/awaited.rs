//! Pages that another thread brings at each fault, with `userfaultfd`.
//!
//! Each fault stops a thread until a second one has copied the page and woken it. A copy of a
//! larger range spares the faults on the rest of it:
//!
//! ```text
//!  one page      fault copy wake  fault copy wake  fault copy wake  …
//!  64 KiB        fault copy wake  . . . . . . . . . . . . . . .  fault copy wake
//! ```
//!
//! The other side is the recording with one fault for each aligned range of [`UNIT`] pages.
use super::edit::Edit;
use super::page_set::PageSet;
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use foldhash::{HashMap, HashSet};
use ptarmigan::space::{Area, AreaFlags};
use ptarmigan_replay::{Trace, When};
use ptarmigan_trace::FaultFlags;

/// Pages of a larger copy: 64 KiB.
pub const UNIT: u64 = 16;

/// Faults of programs that wait for each page.
#[derive(Default)]
pub struct Awaited {
    programs: HashSet<u32>,
    /// The ranges that had a fault, by space.
    units: HashMap<u32, PageSet>,
    /// The events that larger copies spare, in order, with the number of the program.
    spared: Vec<(u32, u32)>,
}

impl Awaited {
    /// Follows programs of these numbers.
    pub fn new(programs: HashSet<u32>) -> Self {
        Awaited { programs, ..Awaited::default() }
    }

    /// Returns the faults that larger copies spare, by the number of the program.
    pub fn spared(&self) -> HashMap<u32, u64> {
        let mut counts = HashMap::default();
        self.spared.iter().for_each(|(_, program)| *counts.entry(*program).or_default() += 1);
        counts
    }

    /// Returns the recording with larger copies.
    pub fn rewrite(&self, trace: &Trace) -> Trace {
        Edit::without(trace, self.spared.iter().map(|(event, _)| *event))
    }
}

impl Finder for Awaited {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, flags }, When::Before) if self.programs.contains(&seen.program) => {
                let missing = flags.0 & (FaultFlags::PRESENT | FaultFlags::REFUSED) == 0;
                let unfit = [AreaFlags::GROWS_DOWN, AreaFlags::SPECIAL, AreaFlags::BACKED];
                let fits = |area: Area| !unfit.into_iter().any(|flag| area.flags.has(flag));
                if !missing || !seen.look.area(page << PAGE).is_some_and(fits) {
                    return;
                }
                if !self.units.entry(seen.space).or_default().add(page / UNIT) {
                    self.spared.push((seen.event, seen.program));
                }
            }
            (Happens::End, _) => drop(self.units.remove(&seen.space)),
            _ => {}
        }
    }
}
