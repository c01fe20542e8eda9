//! Huge pages: regions of 2 MiB that a program fills page by page.
//!
//! A region counts if it lies in one private anonymous area, no page of it is mapped at its first
//! fault, and the program touches at least seven eighths of its pages before it gives a part of it
//! away, forks, or ends. With a huge page the first fault stays, and the first write if that one
//! read: Linux maps a huge page of zeroes until then. The others go.
//!
//! Linux keeps a leaf table in reserve for each huge page and counts it, so no table is saved
//! there. The variant without a reserve makes none.
//!
//! A fork shares huge pages as it shares small ones. As in Linux since 5.8, the first write while
//! another space maps the huge page splits it: the writer's table has 512 entries from then on,
//! which further forks copy, and each of its pages is copied by a fault of its own. If the others
//! have ended, the writer gets the whole huge page back with one fault.
//!
//! A call for a part of a region splits its huge page, which has a price. Regions are left out if
//! no huge page can stay or save a fault:
//!
//! 1. `mprotect` changes parts, page after page, as the write barrier of a garbage collector does.
//! 2. More than half of the pages were there without a fault.
//! 3. The program waits about once for each fault, as with `userfaultfd`: another thread copies
//!    each page. The recording does not have that call.
//!
//! # Heaps
//!
//! With `glibc.malloc.hugetlb=1` the C library grows and trims the heap of `brk` in whole 2 MiB. So
//! regions of such a heap count though the heap ends in the middle of them when they are touched
//! first, and `brk` does not split them.
//!
//! # Forks
//!
//! A program whose children live on, and start no program, gains little from huge pages that are
//! split like that: each write copies a page, as before, and each further fork copies 512 entries.
//! So regions that such a fork shares are left out if one of the program's was split, and all of
//! its regions if half of them were shared ([`HugeRegions::unfit`]).
use super::edit::Edit;
use super::event_set::EventSet;
use super::seen::{Finder, Happens, PAGE, REGION, RegionPages, SpaceOperation};
use super::work::{Both, FaultWork, Kinds};
use foldhash::{HashMap, HashMapExt, HashSet};
use ptarmigan::addr::VirtRange;
use ptarmigan::space::{Area, AreaFlags};
use ptarmigan_replay::{HugeFaults, PackedKind, Trace, When, is_found};
use ptarmigan_trace::{FaultFlags, Kind};
use std::collections::BTreeMap;

/// Pages of a region from which on it is full.
const FULL: u64 = REGION - REGION / 8;

/// Pages that are copied one by one, each with a count of its own: as Linux copied those of a split
/// huge page before 6.9.
pub const ONE_BY_ONE: FaultFlags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER);

/// A region of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spot {
    /// The program that touched it first.
    pub program: u32,
    /// The space.
    pub space: u32,
    /// The region.
    pub region: u64,
}

/// Regions that are left out, as pairs of a space and a region.
pub type LeftOut = HashSet<(u32, u64)>;

/// A region from its first fault on, or from the fork that shared its huge page.
#[derive(Default)]
struct Life {
    at: Spot,
    /// A fork has shared it whose child starts no program.
    lent: bool,
    pages: RegionPages,
    first: u32,
    /// Faults that a huge page would serve as well.
    spared: Vec<u32>,
    /// Writes that split a shared huge page.
    splits: Vec<u32>,
    state: State,
    /// The huge page that it is, as an index, once a fork has shared it.
    shared: Option<usize>,
    /// It came by a fork: the region belongs to another space.
    inherited: bool,
    /// A part was given away or changed, or a write has split it: a huge page needs a table.
    split: bool,
    /// `mprotect` has changed a part.
    protected: bool,
    /// It was split by a call.
    cut: bool,
    /// `brk` grows it, in whole 2 MiB.
    heap: bool,
    /// Pages that were there without a fault.
    found: u64,
    /// Pages that a space has of it that came by a fork.
    size: u64,
    /// Faults that go, by what they do: fresh pages, copies, others.
    work: [u64; 3],
}

/// The effect of faults on a region.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The huge page may be written.
    #[default]
    Writable,
    /// It is one of zeroes: the first write is a fault.
    OnlyRead,
    /// A fork has write-protected it.
    Protected,
    /// A write has split it: faults are as they were, and its pages are parts of one folio.
    Split,
    /// Faults are as they were: a part was given away, or the region was not full when it was
    /// forked.
    Small,
}

/// Looks for full regions.
#[derive(Default)]
pub struct HugeRegions {
    access_unknown: bool,
    lives: HashMap<u32, BTreeMap<u64, Life>>,
    /// The number of spaces that map each huge page that was shared.
    mapped: Vec<u32>,
    heaps: HashMap<u32, u64>,
    left_out: LeftOut,
    /// Numbers of programs with a heap that can grow in whole 2 MiB.
    growers: HashSet<u32>,
    /// Forks whose child starts a program, by their event.
    starters: HashSet<u32>,
    /// Programs of which a write has split a region that was lent.
    splitters: HashSet<u32>,
    /// Regions that are huge, whether a fork has lent them, and whether `mprotect` has changed a
    /// part.
    log: Vec<(Spot, bool, bool)>,
    /// Regions that are full, for the first time that each is.
    pub spots: Vec<Spot>,
    /// Faults that go.
    spared: EventSet,
    /// The first faults of full regions that are never split.
    whole: EventSet,
    /// Writes that split a huge page.
    splits: EventSet,
    /// Regions that are full.
    pub full: u64,
    /// Regions that could be huge but are not full.
    pub sparse: u64,
    /// The untouched pages of those, by space and region.
    rest: HashMap<(u32, u64), u64>,
    /// Full regions of which most pages were there without a fault.
    pub found: u64,
    /// Pages of full regions that the program does not touch.
    pub untouched: u64,
    /// What Linux does for pages.
    pub work: Both,
    /// Pages in the range of the call that is carried out, if they are private.
    before: u64,
    /// Full regions that faults have filled and that are there.
    full_now: u64,
}

impl Finder for HugeRegions {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, flags }, When::Before) => self.fault(seen, page, flags),
            (Happens::Call(kind), When::Before) => self.before(seen, &kind),
            (Happens::Call(kind), When::After) => self.call(seen, &kind),
            (Happens::Fork { child }, When::Before) => self.fork(seen, child),
            (Happens::End, _) => {
                let kinds = self.kinds(seen.space, 0, u64::MAX);
                self.work.end(seen.space, seen.look.private_pages(), kinds);
                for life in self.lives.remove(&seen.space).unwrap_or_default().into_values() {
                    self.end(life);
                }
            }
            _ => {}
        }
    }
}

fn addresses(first: u64, pages: u64) -> VirtRange {
    VirtRange::saturating_pages(first, pages, PAGE)
}

/// Returns the pages of a range that lies in a private area without a file.
fn private_pages(seen: &SpaceOperation<'_>, start: u64, pages: u64) -> u64 {
    let private = seen
        .look
        .area(start << PAGE)
        .is_some_and(|area| !area.flags.has(AreaFlags::SHARED) && !area.flags.has(AreaFlags::BACKED));
    if private { seen.look.pages(addresses(start, pages)) } else { 0 }
}

impl Life {
    /// Adds a page. Returns whether this makes the region full.
    fn touch(&mut self, page: u64) -> bool {
        self.pages.add(page) && self.pages.count() == FULL
    }

    /// A fault that the huge page serves. Returns whether it makes the region full.
    fn spare(&mut self, page: u64, event: u32, work: FaultWork) -> bool {
        self.spared.push(event);
        self.work[work as usize] += 1;
        self.touch(page)
    }

    /// Returns whether faults have filled it.
    fn is_filled(&self) -> bool {
        !self.inherited && self.pages.count() >= FULL
    }

    /// Returns the pages that the space has of it.
    fn size(&self) -> u64 {
        if self.inherited { self.size } else { self.pages.count() }
    }

    /// Whether it is, or was until a write split it, a huge page.
    fn is_huge(&self) -> bool {
        self.state != State::Small && (self.inherited || self.pages.count() >= FULL)
    }
}

impl HugeRegions {
    /// Looks at a recording that does or does not tell reads from writes.
    /// `starters` are the events of forks whose child starts a program, `growers` the numbers of
    /// programs whose heap can grow in whole 2 MiB; regions of `left_out` do not count.
    pub fn new(
        access_unknown: bool,
        starters: HashSet<u32>,
        growers: HashSet<u32>,
        left_out: LeftOut,
    ) -> Self {
        HugeRegions { access_unknown, starters, growers, left_out, ..HugeRegions::default() }
    }

    /// Returns the regions that a program forks and then writes to.
    pub fn unfit(&self) -> LeftOut {
        let mut counts: HashMap<u32, (u64, u64)> = HashMap::new();
        for (spot, lent, _) in &self.log {
            let (all, shared) = counts.entry(spot.program).or_default();
            (*all, *shared) = (*all + 1, *shared + u64::from(*lent));
        }
        let of = |(spot, lent, _): &&(Spot, bool, bool)| {
            let (all, shared) = counts[&spot.program];
            self.splitters.contains(&spot.program) && (*lent || shared * 2 >= all)
        };
        let log = self.log.iter().filter(of);
        log.map(|(spot, ..)| (spot.space, spot.region)).collect()
    }

    /// Returns the full regions of which `mprotect` changes parts.
    pub fn protected_in_part(&self) -> LeftOut {
        let log = self.log.iter().filter(|(.., protected)| *protected);
        log.map(|(spot, ..)| (spot.space, spot.region)).collect()
    }

    /// Returns the full regions of some programs.
    pub fn of_programs(&self, chosen: impl Fn(u32) -> bool) -> LeftOut {
        let log = self.log.iter().filter(|(spot, ..)| chosen(spot.program));
        log.map(|(spot, ..)| (spot.space, spot.region)).collect()
    }

    /// Returns whether a region lies in a heap that ends in the middle of it and can grow in whole
    /// 2 MiB.
    fn grows(&self, seen: &SpaceOperation<'_>, area: &Area, va: u64) -> bool {
        let heap = self.heaps.get(&seen.space).is_some_and(|end| end << PAGE == area.end);
        let whole = area.end.checked_next_multiple_of(REGION << PAGE).unwrap_or(area.end);
        let grown = Area { end: whole, ..*area };
        heap && self.growers.contains(&seen.program) && HugeFaults::Always.reaches(&grown, va)
    }

    fn fault(&mut self, seen: &SpaceOperation<'_>, page: u64, flags: FaultFlags) {
        if flags.0 & FaultFlags::REFUSED != 0 {
            return;
        }
        let region = page / REGION;
        if self.left_out.contains(&(seen.space, region)) {
            let anonymous =
                seen.look.area(page << PAGE).is_some_and(|area| !area.flags.has(AreaFlags::BACKED));
            let write = flags.may_write(self.access_unknown);
            let present = seen.look.pages(addresses(page, 1)) > 0;
            self.work.fault(seen.space, present, anonymous, write);
            return;
        }
        let write = flags.may_write(self.access_unknown);
        let area = seen.look.area(page << PAGE);
        let anonymous = area.is_some_and(|area| !area.flags.has(AreaFlags::BACKED));
        let present = seen.look.pages(addresses(page, 1)) > 0;
        let work = self.work.fault(seen.space, present, anonymous, write);
        if write && area.is_some_and(|area| !area.flags.has(AreaFlags::WRITE)) {
            // A signal follows, whatever the size of the page.
            return;
        }
        let lives = self.lives.entry(seen.space).or_default();
        if let Some(life) = lives.get_mut(&region) {
            let mut filled = false;
            match life.state {
                State::Small | State::Split => {}
                State::Writable => filled = life.spare(page, seen.event, work),
                State::OnlyRead | State::Protected if !write => filled = life.spare(page, seen.event, work),
                State::OnlyRead => {
                    filled = life.touch(page);
                    life.state = State::Writable;
                }
                State::Protected if life.shared.is_some_and(|at| self.mapped[at] > 1) => {
                    life.splits.push(seen.event);
                    if life.lent {
                        self.splitters.insert(life.at.program);
                    }
                    (life.state, life.split) = (State::Split, true);
                    self.work.with.splits += 1;
                    let mut copy = [0; 3];
                    copy[work as usize] = 1;
                    self.work.with.spare(copy);
                }
                // The others have ended: the huge page is this space's alone again.
                State::Protected => life.state = State::Writable,
            }
            if filled && life.is_filled() {
                self.full_now += 1;
                self.work.huge_at_once = self.work.huge_at_once.max(self.full_now);
            }
            return;
        }
        let va = page << PAGE;
        let grown = area.filter(|area| self.grows(seen, area, va));
        // When the heap has not grown yet, no page can be mapped for the whole region: it counts as
        // split, so that it keeps its table in each replay.
        let heap = grown.is_some();
        let fits = heap || area.is_some_and(|area| HugeFaults::Always.reaches(&area, va));
        if fits && seen.look.pages(addresses(region * REGION, REGION)) == 0 {
            let state = if write { State::Writable } else { State::OnlyRead };
            let at = Spot { program: seen.program, space: seen.space, region };
            let mut life = Life { at, first: seen.event, state, heap, split: heap, ..Life::default() };
            life.pages.add(page);
            self.lives.entry(seen.space).or_default().insert(region, life);
        }
    }

    /// Returns the regions that are huge pages, or were, and lie in pages of a space.
    fn kinds(&self, space: u32, start: u64, pages: u64) -> Kinds {
        let mut kinds = Kinds::default();
        let Some(lives) = self.lives.get(&space) else { return kinds };
        let whole = start.div_ceil(REGION)..start.saturating_add(pages) / REGION;
        if whole.is_empty() {
            return kinds;
        }
        for life in lives.range(whole).map(|(_, life)| life).filter(|life| life.is_huge()) {
            kinds.add(life.state == State::Split || life.cut, life.size());
        }
        kinds
    }

    /// Shares the huge pages of a space with its copy.
    fn fork(&mut self, seen: &SpaceOperation<'_>, child: u32) {
        self.share(seen, child);
        if let Some(end) = self.heaps.get(&seen.space).copied() {
            self.heaps.insert(child, end);
        }
        let kinds = self.kinds(child, 0, u64::MAX);
        self.work.fork(seen.space, child, seen.look.private_pages(), kinds);
    }

    fn share(&mut self, seen: &SpaceOperation<'_>, child: u32) {
        let Some(lives) = self.lives.get_mut(&seen.space) else { return };
        let lent = !self.starters.contains(&seen.event);
        let mut copies = BTreeMap::new();
        for (&region, life) in lives {
            let at = Spot { space: child, ..life.at };
            if self.left_out.contains(&(child, region)) {
                continue;
            }
            let area = seen.look.area((region * REGION) << PAGE);
            let copied = area.is_some_and(|area| {
                !area.flags.has(AreaFlags::NO_FORK) && !area.flags.has(AreaFlags::WIPE_ON_FORK)
            });
            if !copied || life.state == State::Small {
                continue;
            }
            if !life.inherited && life.pages.count() < FULL {
                life.state = State::Small;
                continue;
            }
            if life.state == State::Split {
                let size = life.size();
                life.lent |= lent;
                let copy = Life { at, lent, state: State::Split, inherited: true, size, ..Life::default() };
                copies.insert(region, copy);
                continue;
            }
            life.state = State::Protected;
            life.lent |= lent;
            let size = life.size();
            let shared = *life.shared.get_or_insert_with(|| {
                self.mapped.push(1);
                self.mapped.len() - 1
            });
            self.mapped[shared] += 1;
            let shared = Some(shared);
            let state = State::Protected;
            let copy = Life { at, lent, state, inherited: true, shared, size, ..Life::default() };
            copies.insert(region, copy);
        }
        self.lives.insert(child, copies);
    }

    /// Returns the range of a call: first page, number, and whether it takes pages away.
    fn range(&self, space: u32, kind: &Kind) -> Option<(u64, u64, bool)> {
        Some(match *kind {
            Kind::Munmap { start, pages } | Kind::Mmap { start, pages, .. } => (start, pages, true),
            Kind::Madvise { start, pages, advice } => {
                (start, pages, i32::from(advice) == libc::MADV_DONTNEED)
            }
            Kind::Mremap { from, old_pages, .. } => (from, old_pages, true),
            Kind::Mprotect { start, pages, .. } => (start, pages, false),
            Kind::Brk { end } => {
                let before = self.heaps.get(&space).copied().unwrap_or(end);
                (end, before.saturating_sub(end), true)
            }
            _ => return None,
        })
    }

    /// Counts the pages of a call that is to be carried out.
    fn before(&mut self, seen: &SpaceOperation<'_>, kind: &Kind) {
        self.before = 0;
        let Some((start, pages, takes)) = self.range(seen.space, kind).filter(|(_, pages, _)| *pages > 0)
        else {
            return;
        };
        if takes {
            self.before = private_pages(seen, start, pages);
        } else if let Kind::Mprotect { .. } = kind {
            let there = private_pages(seen, start, pages);
            self.work.protected(there, self.kinds(seen.space, start, pages));
        }
    }

    /// Counts pages that were there without a fault.
    fn found(&mut self, space: u32, start: u64, pages: u64) {
        let (Some(lives), Some(last)) = (self.lives.get_mut(&space), (start + pages).checked_sub(1)) else {
            return;
        };
        for (region, life) in lives.range_mut(start / REGION..=last / REGION) {
            let first = start.max(region * REGION);
            life.found += (last + 1).min((region + 1) * REGION).saturating_sub(first);
        }
    }

    fn call(&mut self, seen: &SpaceOperation<'_>, kind: &Kind) {
        if let Kind::Touched { start, pages, flags } = *kind
            && is_found(flags)
        {
            return self.found(seen.space, start, pages);
        }
        let range = self.range(seen.space, kind);
        if let Kind::Brk { end } = *kind {
            self.heaps.insert(seen.space, end);
        }
        let Some((start, pages, takes)) = range else { return };
        let before = std::mem::take(&mut self.before);
        if before > 0 {
            let gone = before.saturating_sub(private_pages(seen, start, pages));
            let kinds = self.kinds(seen.space, start, pages);
            self.work.taken(seen.space, gone, kinds);
        }
        let Some(lives) = self.lives.get_mut(&seen.space).filter(|_| pages > 0) else { return };
        let mut gone = Vec::new();
        for (&region, life) in lives.range_mut(start / REGION..=(start + pages - 1) / REGION) {
            if takes && seen.look.pages(addresses(region * REGION, REGION)) == 0 {
                gone.push(region);
            } else if life.heap && matches!(kind, Kind::Brk { .. }) {
                // The heap would be trimmed in whole 2 MiB.
            } else if start > region * REGION || start + pages < (region + 1) * REGION {
                (life.split, life.cut) = (true, life.cut || life.state != State::Small);
                life.protected |= matches!(kind, Kind::Mprotect { .. });
                if takes {
                    life.state = State::Small;
                }
            }
        }
        let ended: Vec<Life> = gone.iter().filter_map(|region| lives.remove(region)).collect();
        ended.into_iter().for_each(|life| self.end(life));
    }

    fn end(&mut self, life: Life) {
        if let Some(shared) = life.shared {
            self.mapped[shared] -= 1;
        }
        let pages = life.pages.count();
        if !life.inherited && pages < FULL {
            self.sparse += 1;
            let rest = self.rest.entry((life.at.space, life.at.region)).or_default();
            *rest = (*rest).max(REGION - pages);
            return;
        }
        if life.is_filled() {
            self.full_now = self.full_now.saturating_sub(1);
        }
        if life.found * 2 > pages {
            self.found += 1;
            return;
        }
        self.log.push((life.at, life.lent, life.protected));
        self.work.with.cuts += u64::from(life.cut && !life.inherited);
        if !life.inherited {
            self.spots.push(life.at);
            self.full += 1;
            self.untouched += REGION - pages;
            if !life.split {
                self.whole.add(life.first);
            }
        }
        self.work.with.spare(life.work);
        if !life.inherited {
            self.work.with.spare([1, 0, 0]);
            self.work.with.huge.fresh += 1;
        }
        life.spared.into_iter().for_each(|event| self.spared.add(event));
        life.splits.into_iter().for_each(|event| self.splits.add(event));
    }

    /// Returns how many writes split a huge page that a fork has shared.
    pub fn splits(&self) -> u64 {
        self.splits.len()
    }

    /// Returns how many faults huge pages spare.
    pub fn spared(&self) -> u64 {
        self.spared.len()
    }

    /// Counts the regions of spaces that have not ended.
    pub fn finish(&mut self) {
        for lives in std::mem::take(&mut self.lives).into_values() {
            lives.into_values().for_each(|life| self.end(life));
        }
    }

    /// Returns the most pages by which the memory of a space grows if all of its regions are huge,
    /// of those with full ones.
    pub fn rest(&self) -> u64 {
        let spaces: HashSet<u32> = self.spots.iter().map(|spot| spot.space).collect();
        let mut sums: HashMap<u32, u64> = HashMap::new();
        for ((space, _), pages) in self.rest.iter().filter(|((space, _), _)| spaces.contains(space)) {
            *sums.entry(*space).or_default() += pages;
        }
        sums.into_values().max().unwrap_or(0)
    }

    /// Returns the recording with huge pages. `reserve`: a leaf table is made for each of them all
    /// the same, as on Linux. `pages` are the flags of the pages that a huge page is split into.
    pub fn rewrite(&self, trace: &Trace, reserve: bool, pages: FaultFlags) -> Trace {
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            match step.what {
                _ if self.spared.has(event) => {}
                PackedKind::Fault { page, .. } if self.splits.has(event) => {
                    let start = page / REGION * REGION;
                    edit.call(step, Kind::Touched { start, pages: REGION, flags: pages });
                    edit.keep(step);
                }
                PackedKind::Fault { page, .. } if !reserve && self.whole.has(event) => {
                    let (start, flags) = (page / REGION * REGION, FaultFlags(FaultFlags::HUGE));
                    edit.call(step, Kind::Touched { start, pages: REGION, flags });
                }
                _ => edit.keep(step),
            }
        }
        edit.finish()
    }
}
