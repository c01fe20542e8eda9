//! Measures forks: their copies, and the side that writes to them afterwards.
//!
//! Linux copies an entry for each private page, and counts the page once more. So a fork takes as
//! long as its parent is large. A child that starts another program needs no copy (`share`). Others
//! may do without a part: reads of inherited pages make no fault, so the recording says only which
//! areas a child has *written*. Two kinds are told apart:
//!
//! * A *worker* writes to the memory that it got: it copies more pages than its parent does.
//! * A *snapshot* is read by the child while the parent goes on: the parent copies more.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, REGION, SpaceOperation};
use crate::advise::facts::Facts;
use foldhash::{HashMap, HashMapExt, HashSet};
use ptarmigan::addr::VirtRange;
use ptarmigan::space::{Area, AreaFlags};
use ptarmigan_replay::{PackedKind, Trace, When};
use ptarmigan_trace::{FaultFlags, Kind};
use std::collections::BTreeMap;

/// The fewest pages that a fork of a large process copies: 16 MiB.
pub const LARGE: u64 = 8 * REGION;

/// The forks of one program whose children start no other.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// Forks of large processes.
    pub forks: u64,
    /// Their nanoseconds, as far as they were timed.
    pub ns: u64,
    /// Forks that were timed.
    pub timed: u64,
    /// The most private pages that one copied.
    pub most_pages: u64,
    /// All pages that they copied.
    pub pages: u64,
    /// Leaf tables that they copied.
    pub tables: u64,
    /// Pages that children copied afterwards by writing.
    pub by_children: u64,
    /// Pages that parents copied afterwards by writing.
    pub by_parents: u64,
}

impl Copied {
    /// Returns whether children read what they got while their parents go on.
    pub fn is_snapshot(&self) -> bool {
        self.by_parents > self.by_children
    }
}

/// A fork of a child that starts another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartingFork {
    /// Private pages that it copies.
    pub pages: u64,
    /// Leaf tables that it copies.
    pub tables: u64,
    /// The program that forks, as an index of [`Facts::programs`].
    pub program: usize,
}

/// An area of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    start: u64,
    end: u64,
}

/// A fork of a large process.
struct Large {
    program: usize,
    /// Large private areas, and whether the child has faulted in each.
    areas: Vec<(Given, bool)>,
}

/// Looks at forks.
pub struct ForkSizes<'f> {
    facts: &'f Facts,
    /// Forks whose child starts another program.
    starters: &'f HashSet<u32>,
    /// By program, as an index of [`Facts::programs`].
    pub programs: BTreeMap<usize, Copied>,
    /// The forks of children that start another program, by event.
    pub starting: HashMap<u32, StartingFork>,
    large: BTreeMap<u32, Large>,
    /// The fork that made a space.
    child_of: HashMap<u32, u32>,
    /// The number of children that live, of spaces that have forked.
    parents: HashMap<u32, u64>,
    parent_of: HashMap<u32, u32>,
}

impl<'f> ForkSizes<'f> {
    /// Begins. `starters` are the events of forks whose child starts another program.
    pub fn new(facts: &'f Facts, starters: &'f HashSet<u32>) -> Self {
        ForkSizes {
            facts,
            starters,
            programs: BTreeMap::new(),
            starting: HashMap::new(),
            large: BTreeMap::new(),
            child_of: HashMap::new(),
            parents: HashMap::new(),
            parent_of: HashMap::new(),
        }
    }

    fn fork(&mut self, seen: &SpaceOperation<'_>, child: u32) {
        let mut kept_out = 0;
        seen.look.areas(&mut |area: &Area| {
            if area.flags.has(AreaFlags::NO_FORK) && !area.flags.has(AreaFlags::SHARED) {
                kept_out += seen.look.pages(VirtRange::saturating_pages(
                    area.start >> PAGE,
                    (area.end - area.start) >> PAGE,
                    PAGE,
                ));
            }
        });
        let pages = seen.look.private_pages().saturating_sub(kept_out);
        let mut tables = 0;
        seen.look.leaf_tables(VirtRange::up_to(1 << 47), &mut |_| tables += 1);
        if self.starters.contains(&seen.event) {
            let program = self.facts.program(seen.program);
            self.starting.insert(seen.event, StartingFork { pages, tables, program });
            return;
        }
        if pages < LARGE {
            return;
        }
        let program = self.facts.program(seen.program);
        let of = self.programs.entry(program).or_default();
        of.forks += 1;
        (of.pages, of.tables, of.most_pages) =
            (of.pages + pages, of.tables + tables, of.most_pages.max(pages));
        if let Some(ns) = self.facts.forks.get(&seen.event).and_then(|fork| fork.ns) {
            (of.ns, of.timed) = (of.ns + ns, of.timed + 1);
        }
        let mut areas = Vec::new();
        seen.look.areas(&mut |area: &Area| {
            let plain = !area.flags.has(AreaFlags::SHARED)
                && !area.flags.has(AreaFlags::BACKED)
                && !area.flags.has(AreaFlags::GROWS_DOWN)
                && !area.flags.has(AreaFlags::NO_FORK);
            let (start, end) = (area.start >> PAGE, area.end >> PAGE);
            if plain && end - start >= 4 * REGION {
                areas.push((Given { start, end }, false));
            }
        });
        self.large.insert(seen.event, Large { program, areas });
        self.child_of.insert(child, seen.event);
        self.parent_of.insert(child, seen.space);
        *self.parents.entry(seen.space).or_default() += 1;
    }

    fn fault(&mut self, seen: &SpaceOperation<'_>, page: u64, flags: FaultFlags) {
        let copies =
            flags.0 & (FaultFlags::PRESENT | FaultFlags::WRITE) == FaultFlags::PRESENT | FaultFlags::WRITE;
        if let Some(large) = self.child_of.get(&seen.space).and_then(|event| self.large.get_mut(event)) {
            if copies && let Some(of) = self.programs.get_mut(&large.program) {
                of.by_children += 1;
            }
            let within = large.areas.iter_mut().find(|(area, _)| (area.start..area.end).contains(&page));
            if let Some((_, used)) = within {
                *used = true;
            }
        } else if copies && self.parents.get(&seen.space).is_some_and(|children| *children > 0) {
            let program = self.facts.program(seen.program);
            if let Some(of) = self.programs.get_mut(&program) {
                of.by_parents += 1;
            }
        }
    }
}

impl Finder for ForkSizes<'_> {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fork { child }, When::Before) => self.fork(seen, child),
            (Happens::Fault { page, flags }, When::Before) => self.fault(seen, page, flags),
            (Happens::End, _) => {
                self.child_of.remove(&seen.space);
                if let Some(parent) = self.parent_of.remove(&seen.space)
                    && let Some(children) = self.parents.get_mut(&parent)
                {
                    *children -= 1;
                }
            }
            _ => {}
        }
    }
}

impl ForkSizes<'_> {
    /// Returns the pages of areas that children of a program got and never had a fault in, over all
    /// of its large forks.
    pub fn untouched(&self, program: usize) -> u64 {
        let forks = self.large.values().filter(|large| large.program == program);
        forks.flat_map(|large| &large.areas).filter(|(_, used)| !used).map(|(a, _)| a.end - a.start).sum()
    }

    /// Returns the recording of a program that keeps those areas out of its forks.
    pub fn rewrite(&self, trace: &Trace, program: usize) -> Trace {
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            let large = match step.what {
                PackedKind::Rare(_) => self.large.get(&event).filter(|large| large.program == program),
                _ => None,
            };
            let areas = large.map(|large| large.areas.as_slice()).unwrap_or_default();
            for (area, _) in areas.iter().filter(|(_, used)| !used) {
                let (start, pages) = (area.start, area.end - area.start);
                edit.call(step, Kind::Madvise { start, pages, advice: libc::MADV_DONTFORK as u16 });
            }
            edit.keep(step);
            for (area, _) in areas.iter().filter(|(_, used)| !used) {
                let (start, pages) = (area.start, area.end - area.start);
                edit.call(step, Kind::Madvise { start, pages, advice: libc::MADV_DOFORK as u16 });
            }
        }
        edit.finish()
    }
}
