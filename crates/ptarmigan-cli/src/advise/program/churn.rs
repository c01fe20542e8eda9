//! Memory that comes back: pages that a process gives up and faults in again.
//!
//! # Why
//!
//! An allocator that returns free memory at once (`munmap`, `MADV_DONTNEED`, a heap that shrinks)
//! pays for each page twice: the kernel frees it, and the next use is a fault that clears another
//! one. The other side of the comparison is the same program with a pool: memory that it gives back
//! stays mapped, and a later mapping takes it.
//!
//! ```text
//!   recorded   mmap A   800 faults   munmap A   mmap B   800 faults   munmap B
//!   kept       mmap A   800 faults   ─          ─        ─            ─
//! ```
//!
//! Only private memory without a file is kept, and only if a call gives up a page of it: other
//! memory has no faults to save. A fork takes a pool's pages away from both sides, since each has
//! to copy pages that it writes. A page that was only read is one of zeroes: its first write is a
//! fault in either case.
use super::edit::Edit;
use super::page_set::PageSet;
use super::pool::{Place, Pool};
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use foldhash::{HashMap, HashSet};
use ptarmigan::space::{Area, AreaFlags};
use ptarmigan_replay::{PackedKind, Trace, When};
use ptarmigan_trace::{Call, FaultFlags, Kind, MapFlags, Prot};
use std::collections::BTreeMap;
use std::ops::Range;

/// The deed of a program that keeps its memory, instead of a recorded one.
enum Change {
    /// The page is there: no fault.
    NoFault,
    /// The page lies elsewhere.
    Fault(u64),
    /// Other calls; an empty list leaves the recorded one out.
    Calls(Vec<Kind>),
    /// Calls before the fault; the page lies elsewhere, or is there.
    Retaken(Vec<Kind>, Option<u64>),
}

/// An event that differs, or is left out, in a program that keeps its memory.
struct Changed {
    event: u32,
    program: u32,
    to: Change,
}

/// The saving of one program, from its start to its end.
#[derive(Clone, Debug, Default)]
pub struct ChurnSaving {
    /// Faults on pages that were given back.
    pub faults: u64,
    /// Of these, faults of the heap that `brk` grows.
    pub in_heap: u64,
    /// Of these, faults of stacks of threads (`MAP_STACK`).
    pub in_stacks: u64,
    /// Calls that are not made, by kind.
    pub calls: BTreeMap<Call, u64>,
    /// Calls of `madvise` for parts of that heap.
    pub heap_advised: u64,
    /// The longest range that a call gave back, in bytes.
    pub longest: u64,
    /// The most bytes that were kept for later mappings, touched or not.
    pub kept: u64,
    /// Mappings that took kept memory.
    pub taken: u64,
    /// Of these, stacks of threads (`MAP_STACK`).
    pub stacks: u64,
    /// Of these, reserves without permissions, which a C library's `malloc` does not map.
    pub reserves: u64,
    /// Calls that unmap a part of what one call mapped, which `malloc` does not do.
    pub cuts: u64,
}

/// Files and shared memory that a program unmaps and maps again, maybe another part of it.
#[derive(Clone, Copy, Debug)]
pub struct Remapped {
    /// Mappings of a length that was unmapped before.
    pub times: u64,
    /// The length of the shortest, in pages.
    pub pages: u64,
}

/// One address space.
#[derive(Clone, Default)]
struct SpaceMemory {
    pool: Pool,
    /// Pages since they were last given back, by their recorded place: touched, and written.
    touched: PageSet,
    written: PageSet,
    /// Pages that were given back and are kept, by their place: touched, and written.
    back: PageSet,
    back_written: PageSet,
    /// All pages of the program that keeps its memory.
    there: PageSet,
    heap: Option<Heap>,
    /// Mappings of files and shared memory that were unmapped, by their length.
    unmapped: HashMap<u64, u64>,
    /// Those that are mapped, by their first page: their length, and whether it is one that was
    /// unmapped before.
    files: BTreeMap<u64, (u64, bool)>,
    /// Pages of them that had a fault, from their first page on, by their length.
    of_files: HashMap<u64, PageSet>,
    /// Private mappings by their first page.
    made: BTreeMap<u64, Made>,
}

/// A private mapping that one call made, without what was cut off at its ends.
#[derive(Clone, Copy)]
struct Made {
    pages: u64,
    /// It took no kept memory, and has had no fault.
    is_fresh: bool,
    /// It is the stack of a thread.
    is_stack: bool,
}

/// The heap that `brk` grows, in pages.
#[derive(Clone, Copy)]
struct Heap {
    start: u64,
    end: u64,
    /// The end that it has if it never shrinks.
    kept_end: u64,
}

/// The most pages at once, over all spaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    now: u64,
    /// The most pages.
    pub most: u64,
}

/// Follows the memory of all programs.
#[derive(Default)]
pub struct Churn {
    access_unknown: bool,
    spaces: HashMap<u32, SpaceMemory>,
    changes: Vec<Changed>,
    /// By the number of the program.
    pub programs: HashMap<u32, ChurnSaving>,
    /// Files and shared memory that are mapped again, by the number of the program.
    pub again: HashMap<u32, Remapped>,
    /// The events of faults on pages that had one in an earlier mapping of the same length, with
    /// the number of the program.
    again_faults: Vec<(u32, u32)>,
    /// Programs that move memory in a way that is not followed.
    lost: HashSet<u32>,
    /// Private pages as recorded.
    pub recorded: Peak,
    /// Private pages of programs that keep them.
    pub kept: Peak,
}

impl ChurnSaving {
    /// Adds the savings of another run of the same program.
    pub fn add(&mut self, other: &ChurnSaving) {
        self.faults += other.faults;
        self.in_heap += other.in_heap;
        self.in_stacks += other.in_stacks;
        self.heap_advised += other.heap_advised;
        self.longest = self.longest.max(other.longest);
        self.kept = self.kept.max(other.kept);
        self.taken += other.taken;
        self.stacks += other.stacks;
        self.reserves += other.reserves;
        self.cuts += other.cuts;
        for (call, n) in &other.calls {
            *self.calls.entry(*call).or_default() += n;
        }
    }
}

impl Peak {
    fn change(&mut self, more: u64, fewer: u64) {
        self.now = (self.now + more).saturating_sub(fewer);
        self.most = self.most.max(self.now);
    }
}

/// Returns whether a program could keep an area.
fn keeps(area: &Area) -> bool {
    let unfit = [AreaFlags::SHARED, AreaFlags::BACKED, AreaFlags::GROWS_DOWN, AreaFlags::SPECIAL];
    !unfit.into_iter().any(|flag| area.flags.has(flag))
}

fn protect(Place { start, pages }: Place, prot: Prot) -> Kind {
    Kind::Mprotect { start, pages, prot }
}

fn prot(area: &Area) -> Prot {
    Prot((area.flags.0 & AreaFlags::PERMISSIONS.0) as u8)
}

/// A part of a range, with the area that it lies in.
type Part = (Place, Option<Area>);

/// Returns a range piece by piece, one for each area and each hole.
fn parts(seen: &SpaceOperation<'_>, start: u64, pages: u64) -> Vec<Part> {
    let (mut at, end) = (start, start.saturating_add(pages));
    let mut parts = Vec::new();
    while at < end {
        let area = seen.look.area(at << PAGE);
        let to = match &area {
            Some(area) => (area.end >> PAGE).min(end),
            None => {
                let mut next = end;
                seen.look.areas(&mut |area| {
                    let first = area.start >> PAGE;
                    if first > at {
                        next = next.min(first);
                    }
                });
                next
            }
        };
        parts.push((Place { start: at, pages: to - at }, area));
        at = to;
    }
    parts
}

impl SpaceMemory {
    /// The pages of a recorded range are given back, and kept.
    fn keep(&mut self, start: u64, pages: u64) -> u64 {
        let gone = self.touched.take(start, pages);
        for page in &gone {
            self.back.add(self.pool.page(*page));
        }
        for page in self.written.take(start, pages) {
            self.back_written.add(self.pool.page(page));
        }
        gone.len() as u64
    }

    /// The pages of a recorded range go for good. Returns how many, and how many the program has
    /// that keeps its memory.
    fn lose(&mut self, start: u64, pages: u64) -> (u64, u64) {
        let gone = self.touched.take(start, pages).len() as u64;
        self.written.take(start, pages);
        let places = self.pool.places(start, pages);
        (gone, places.into_iter().map(|place| self.empty(place)).sum())
    }

    /// Places a new range in kept memory: in one piece, or in several if more is kept than the
    /// program uses.
    fn reuse(&mut self, start: u64, pages: u64) -> Option<Vec<(Place, Option<Prot>)>> {
        if let Some((at, prot)) = self.pool.reuse(start, pages) {
            return Some(vec![(Place { start: at, pages }, prot)]);
        }
        let kept_is_most = self.pool.kept_pages() > self.touched.len();
        kept_is_most.then(|| self.pool.reuse_pieces(start, pages))?
    }

    /// Returns the private mapping that a page lies in: its first page.
    fn made_around(&self, page: u64) -> Option<(u64, Made)> {
        let (start, made) = self.made.range(..=page).next_back()?;
        (page - start < made.pages).then_some((*start, *made))
    }

    /// A range is unmapped, or mapped anew. Returns whether it was a whole mapping.
    fn cut(&mut self, start: u64, pages: u64) -> bool {
        let end = start.saturating_add(pages);
        let is_whole = self.made.get(&start).is_some_and(|made| made.pages == pages);
        let around = self.made_around(start).into_iter();
        let within = self.made.range(start..end).map(|(first, made)| (*first, *made));
        for (first, made) in around.chain(within).collect::<Vec<_>>() {
            self.made.remove(&first);
            let last = first + made.pages;
            // Two parts are left of a mapping with a hole: neither is one that is handed out.
            let rest = match (first < start, last > end) {
                (true, false) => first..start,
                (false, true) => end..last,
                _ => continue,
            };
            self.made.insert(rest.start, Made { pages: rest.end - rest.start, ..made });
        }
        is_whole
    }

    /// The first fault in a mapping: what is left of it takes kept memory, if it fits now. Returns
    /// the calls that the program makes instead of using the recorded place.
    ///
    /// A program that needs aligned memory maps more and unmaps both ends, so a mapping has its
    /// length only when it is used.
    fn retake(&mut self, page: u64, wanted: Prot) -> Option<Vec<Kind>> {
        let (start, made) = self.made_around(page).filter(|(_, made)| made.is_fresh)?;
        let Made { pages, .. } = made;
        self.made.insert(start, Made { is_fresh: false, ..made });
        let old = self.pool.places(start, pages);
        if old.iter().any(|place| self.there.any(place.start, place.pages)) {
            return None;
        }
        let pieces = self.reuse(start, pages)?;
        let gone = old.into_iter().map(|Place { start, pages }| Kind::Munmap { start, pages });
        let other = pieces.into_iter().filter(|(_, has)| *has != Some(wanted));
        let open = other.map(|(place, _)| protect(place, wanted));
        Some(gone.chain(open).collect())
    }

    /// Takes the pages of a place away. Returns how many.
    fn empty(&mut self, Place { start, pages }: Place) -> u64 {
        self.back.take(start, pages);
        self.back_written.take(start, pages);
        self.there.take(start, pages).len() as u64
    }

    /// A fault in a file or in shared memory. Returns whether an earlier mapping of the same length
    /// had it.
    fn is_mapped_again(&mut self, page: u64) -> bool {
        let Some((start, (pages, again))) = self.files.range(..=page).next_back() else { return false };
        page - start < *pages && !self.of_files.entry(*pages).or_default().add(page - start) && *again
    }

    /// A fault on a page. Returns whether it is spared: the page came back, written if this is a
    /// write. Later faults on it have other reasons, and stay.
    fn comes_back(&mut self, page: u64, write: bool) -> bool {
        let at = self.pool.page(page);
        if write {
            self.back.take(at, 1);
            !self.back_written.take(at, 1).is_empty()
        } else {
            !self.back.take(at, 1).is_empty()
        }
    }
}

impl Finder for Churn {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, flags }, When::Before) => self.fault(seen, page, flags),
            (Happens::Call(kind), When::Before) => self.call(seen, &kind),
            (Happens::Fork { child }, When::Before) => {
                let memory = self.spaces.entry(seen.space).or_default();
                (memory.back, memory.back_written) = Default::default();
                let (pool, heap) = (memory.pool.clone(), memory.heap);
                self.spaces.insert(child, SpaceMemory { pool, heap, ..SpaceMemory::default() });
            }
            (Happens::End, _) => {
                if let Some(memory) = self.spaces.remove(&seen.space) {
                    self.recorded.change(0, memory.touched.len());
                    self.kept.change(0, memory.there.len());
                }
            }
            _ => {}
        }
    }
}

impl Churn {
    /// Follows a recording that does or does not tell reads from writes.
    pub fn new(access_unknown: bool) -> Self {
        Churn { access_unknown, ..Churn::default() }
    }

    fn fault(&mut self, seen: &SpaceOperation<'_>, page: u64, flags: FaultFlags) {
        let memory = self.spaces.entry(seen.space).or_default();
        let refused = flags.0 & FaultFlags::REFUSED != 0;
        let area = seen.look.area(page << PAGE).filter(|area| keeps(area) && !refused);
        let retaken = area.and_then(|area| memory.retake(page, prot(&area)));
        if area.is_none() && memory.is_mapped_again(page) {
            self.again_faults.push((seen.event, seen.program));
        }
        let at = memory.pool.page(page);
        let mut spared = false;
        if area.is_some() {
            let write = flags.may_write(self.access_unknown);
            let in_stack = memory.made_around(page).is_some_and(|(_, made)| made.is_stack);
            spared = memory.comes_back(page, write);
            let in_heap = memory.heap.is_some_and(|heap| (heap.start..heap.end).contains(&page));
            self.arrive(seen.space, page..page + 1, write);
            if spared || retaken.is_some() {
                let comes = self.programs.entry(seen.program).or_default();
                comes.faults += u64::from(spared);
                comes.in_heap += u64::from(spared && in_heap);
                comes.in_stacks += u64::from(spared && in_stack);
                comes.taken += u64::from(retaken.is_some());
            }
        }
        let fault = (!spared).then_some(at);
        match (retaken, fault) {
            (Some(calls), fault) => self.change(seen, Change::Retaken(calls, fault)),
            (None, None) => self.change(seen, Change::NoFault),
            (None, Some(at)) if at != page => self.change(seen, Change::Fault(at)),
            (None, Some(_)) => {}
        }
    }

    /// Returns the recording without the faults of mappings of files that were there before.
    pub fn without_mapped_again(&self, trace: &Trace, chosen: impl Fn(u32) -> bool) -> Trace {
        let gone = self.again_faults.iter().filter(|(_, program)| chosen(*program));
        Edit::without(trace, gone.map(|(event, _)| *event))
    }

    /// Pages of a recorded range are there from now on.
    fn arrive(&mut self, space: u32, pages: Range<u64>, written: bool) {
        let memory = self.spaces.entry(space).or_default();
        for page in pages {
            let at = memory.pool.page(page);
            self.recorded.change(u64::from(memory.touched.add(page)), 0);
            self.kept.change(u64::from(memory.there.add(at)), 0);
            if written {
                memory.written.add(page);
            }
        }
    }

    /// Pages of a recorded range go for good.
    fn lose(&mut self, space: u32, start: u64, pages: u64) {
        let (gone, lost) = self.spaces.entry(space).or_default().lose(start, pages);
        self.recorded.change(0, gone);
        self.kept.change(0, lost);
    }

    fn change(&mut self, seen: &SpaceOperation<'_>, to: Change) {
        self.changes.push(Changed { event: seen.event, program: seen.program, to });
    }

    /// A call gives a range up. Memory that can be kept is; the rest goes. Returns the calls that
    /// are left.
    fn give_up(&mut self, seen: &SpaceOperation<'_>, kind: &Kind, unmaps: bool) -> Vec<Kind> {
        let Some((start, pages)) = kind.range() else { return vec![*kind] };
        let mut calls = Vec::new();
        let mut kept = 0;
        let parts = parts(seen, start, pages);
        let memory = self.spaces.entry(seen.space).or_default();
        let has_pages = |(part, area): &Part| {
            // As recorded, or given back before and kept.
            let kept = || memory.pool.places(part.start, part.pages);
            area.is_some_and(|area| keeps(&area))
                && (memory.touched.any(part.start, part.pages)
                    || kept().iter().any(|place| memory.there.any(place.start, place.pages)))
        };
        let keeps_parts = parts.iter().any(has_pages);
        // A library: one call maps all of it, others put its segments there, and one unmaps it.
        let is_library =
            unmaps && parts.len() > 1 && memory.files.get(&start).is_some_and(|(length, _)| *length == pages);
        if is_library {
            memory.files.remove(&start);
            *memory.unmapped.entry(pages).or_default() += 1;
        }
        for (part, area) in parts {
            let memory = self.spaces.entry(seen.space).or_default();
            let shared = area
                .is_some_and(|area| area.flags.has(AreaFlags::SHARED) || area.flags.has(AreaFlags::BACKED));
            if let Some(area) = area.filter(|area| keeps_parts && keeps(area)) {
                let given = memory.keep(part.start, part.pages);
                kept += given;
                self.recorded.change(0, given);
                if unmaps {
                    memory.pool.keep(part.start, part.pages, Some(prot(&area)));
                }
                continue;
            }
            if unmaps && shared && !is_library {
                memory.files.remove(&part.start);
                *memory.unmapped.entry(part.pages).or_default() += 1;
            }
            let places = memory.pool.places(part.start, part.pages);
            self.lose(seen.space, part.start, part.pages);
            if unmaps {
                self.spaces.entry(seen.space).or_default().pool.forget(part.start, part.pages);
            }
            calls.extend(places.into_iter().map(|place| kind.with_range(place.start, place.pages)));
        }
        if kept > 0 {
            let bytes = self.spaces.entry(seen.space).or_default().pool.kept_pages() << PAGE;
            let comes = self.programs.entry(seen.program).or_default();
            comes.longest = comes.longest.max(pages << PAGE);
            comes.kept = comes.kept.max(bytes);
        }
        // Holes and neighbours that go with one call do so still.
        join(calls)
    }

    fn call(&mut self, seen: &SpaceOperation<'_>, kind: &Kind) {
        let calls = match *kind {
            Kind::Munmap { start, pages } => {
                let is_whole = self.spaces.entry(seen.space).or_default().cut(start, pages);
                self.programs.entry(seen.program).or_default().cuts += u64::from(!is_whole);
                self.give_up(seen, kind, true)
            }
            Kind::Madvise { start, advice, .. } if i32::from(advice) == libc::MADV_DONTNEED => {
                let heap = self.spaces.entry(seen.space).or_default().heap;
                let in_heap = heap.is_some_and(|heap| (heap.start..heap.end).contains(&start));
                self.programs.entry(seen.program).or_default().heap_advised += u64::from(in_heap);
                self.give_up(seen, kind, false)
            }
            Kind::Brk { end } => self.brk(seen, end),
            Kind::Mmap { start, pages, flags, prot } => self.mmap(seen, kind, start, pages, flags, prot),
            Kind::Mremap { .. } => self.mremap(seen, kind),
            Kind::Touched { start, pages, flags } => {
                self.found(seen, start, pages, flags);
                self.followed(seen.space, kind)
            }
            // A new program has its areas where they were recorded.
            Kind::Area { .. } => return,
            _ => self.followed(seen.space, kind),
        };
        if let (true, Some(call)) = (calls.is_empty(), kind.call()) {
            let comes = self.programs.entry(seen.program).or_default();
            *comes.calls.entry(call).or_default() += 1;
        }
        if calls != [*kind] {
            self.change(seen, Change::Calls(calls));
        }
    }

    /// Returns a call on the places of its range.
    fn followed(&mut self, space: u32, kind: &Kind) -> Vec<Kind> {
        let Some((start, pages)) = kind.range().filter(|(_, pages)| *pages > 0) else { return vec![*kind] };
        let places = self.spaces.entry(space).or_default().pool.places(start, pages);
        places.into_iter().map(|place| kind.with_range(place.start, place.pages)).collect()
    }

    fn brk(&mut self, seen: &SpaceOperation<'_>, end: u64) -> Vec<Kind> {
        let memory = self.spaces.entry(seen.space).or_default();
        let Some(heap) = &mut memory.heap else {
            memory.heap = Some(Heap { start: end, end, kept_end: end });
            return vec![Kind::Brk { end }];
        };
        let before = std::mem::replace(&mut heap.end, end);
        let grows = end > heap.kept_end;
        heap.kept_end = heap.kept_end.max(end);
        let kept_end = heap.kept_end;
        if end < before {
            let given = memory.keep(end, before - end);
            self.recorded.change(0, given);
            let comes = self.programs.entry(seen.program).or_default();
            comes.longest = comes.longest.max((before - end) << PAGE);
            comes.kept = comes.kept.max((kept_end - end) << PAGE);
        }
        if grows || end == before { vec![Kind::Brk { end }] } else { Vec::new() }
    }

    fn mmap(
        &mut self,
        seen: &SpaceOperation<'_>,
        kind: &Kind,
        start: u64,
        pages: u64,
        flags: MapFlags,
        wanted: Prot,
    ) -> Vec<Kind> {
        let has = |flag: u16| flags.0 & flag != 0;
        let unfit = MapFlags::SHARED
            | MapFlags::GROWSDOWN
            | MapFlags::HUGE_ONLY
            | MapFlags::DROPPABLE
            | MapFlags::LOCKED
            | MapFlags::SEGMENT;
        let fit = has(MapFlags::ANON) && !has(unfit);
        let over = seen.look.area(start << PAGE).is_some();
        self.spaces.entry(seen.space).or_default().cut(start, pages);
        if over {
            // It takes the place of other memory. Its pages go, or stay for the new one.
            let left = match fit {
                true => self.give_up(seen, kind, false),
                false => vec![*kind],
            };
            let memory = self.spaces.entry(seen.space).or_default();
            let places = memory.pool.places(start, pages);
            if left.is_empty() {
                return places.into_iter().map(|place| protect(place, wanted)).collect();
            }
            places.iter().for_each(|place| memory.pool.evict(place.start, place.pages));
            self.lose(seen.space, start, pages);
            return places.into_iter().map(|place| kind.with_range(place.start, place.pages)).collect();
        }
        let memory = self.spaces.entry(seen.space).or_default();
        let pieces = if fit { memory.reuse(start, pages) } else { None };
        let is_stack = has(MapFlags::NO_HUGE);
        if fit {
            let is_fresh = pieces.is_none() && !has(MapFlags::POPULATE);
            memory.made.insert(start, Made { pages, is_fresh, is_stack });
        }
        if let Some(pieces) = pieces {
            let comes = self.programs.entry(seen.program).or_default();
            comes.taken += 1;
            comes.stacks += u64::from(is_stack);
            comes.reserves += u64::from(!is_stack && wanted == Prot(0));
            let other = pieces.into_iter().filter(|(_, has)| *has != Some(wanted));
            return other.map(|(place, _)| protect(place, wanted)).collect();
        }
        // A private mapping of a file that is written has its changes, which a new one has not.
        let is_of_file = !has(MapFlags::ANON) && wanted.0 & Prot::WRITE == 0;
        if (has(MapFlags::SHARED) || is_of_file)
            && let Some(left) = memory.unmapped.get_mut(&pages).filter(|left| **left > 0)
        {
            *left -= 1;
            let again = self.again.entry(seen.program).or_insert(Remapped { times: 0, pages });
            again.times += 1;
            again.pages = again.pages.min(pages);
            memory.files.insert(start, (pages, true));
        } else if has(MapFlags::SHARED) || is_of_file {
            memory.files.insert(start, (pages, false));
        }
        let at = memory.pool.place(start, pages);
        if fit && has(MapFlags::POPULATE) && !has(MapFlags::LATER) {
            self.arrive(seen.space, start..start + pages, true);
        }
        vec![kind.with_range(at, pages)]
    }

    fn mremap(&mut self, seen: &SpaceOperation<'_>, kind: &Kind) -> Vec<Kind> {
        let &Kind::Mremap { from, old_pages, keep, to, new_pages } = kind else { return vec![*kind] };
        let memory = self.spaces.entry(seen.space).or_default();
        if memory.cut(from, old_pages) {
            memory.made.insert(to, Made { pages: new_pages, is_fresh: false, is_stack: false });
        }
        let places = memory.pool.places(from, old_pages.max(1));
        let &[place] = places.as_slice() else {
            // One call cannot move memory that lies in several places.
            self.lost.insert(seen.program);
            return vec![*kind];
        };
        let stay = old_pages.min(new_pages);
        let in_place = to == from && !keep && old_pages > 0;
        if in_place && new_pages < old_pages {
            // The end of it is given back, as by `munmap`.
            return self.give_up(seen, &Kind::Munmap { start: from + stay, pages: old_pages - stay }, true);
        }
        self.lose(seen.space, from + stay, old_pages - stay);
        let memory = self.spaces.entry(seen.space).or_default();
        let grown = old_pages..new_pages;
        if in_place
            && !grown.is_empty()
            && memory.pool.reuse_at(from + old_pages, new_pages - old_pages, place.start + old_pages)
        {
            return Vec::new();
        }
        let fits = in_place
            && (grown.is_empty() || memory.pool.is_free(place.start + old_pages, new_pages - old_pages));
        if fits {
            if place.start != from {
                memory.pool.forget(from, old_pages);
                memory.pool.lies(from, new_pages, place.start);
            }
            return vec![Kind::Mremap { from: place.start, old_pages, keep, to: place.start, new_pages }];
        }
        let (touched, written) = (memory.touched.take(from, stay), memory.written.take(from, stay));
        let there = memory.there.take(place.start, stay);
        memory.back.take(place.start, stay);
        memory.back_written.take(place.start, stay);
        if !keep && old_pages > 0 {
            memory.pool.forget(from, old_pages);
        }
        let at = match in_place {
            true => memory.pool.place_afresh(to, new_pages),
            false => memory.pool.place(to, new_pages),
        };
        touched.into_iter().for_each(|page| _ = memory.touched.add(page - from + to));
        written.into_iter().for_each(|page| _ = memory.written.add(page - from + to));
        there.into_iter().for_each(|page| _ = memory.there.add(page - place.start + at));
        vec![Kind::Mremap { from: place.start, old_pages, keep, to: at, new_pages }]
    }

    /// Pages are there that no fault has brought.
    fn found(&mut self, seen: &SpaceOperation<'_>, start: u64, pages: u64, flags: FaultFlags) {
        if flags == FaultFlags::WAITING || !seen.look.area(start << PAGE).is_some_and(|area| keeps(&area)) {
            return;
        }
        self.arrive(seen.space, start..start + pages, flags.0 & FaultFlags::WRITE != 0);
    }

    /// Returns the faults that come back, the calls that are not needed, and the mappings made
    /// again, by the number of the program.
    pub fn cases(&self) -> impl Iterator<Item = (u32, u64)> {
        let comes = |comes: &ChurnSaving| comes.faults + comes.calls.values().sum::<u64>();
        let programs = self.programs.iter().map(move |(number, one)| (*number, comes(one)));
        programs.chain(self.again.iter().map(|(number, again)| (*number, again.times)))
    }

    /// Returns whether the memory of a program was followed to its end.
    pub fn is_followed(&self, number: u32) -> bool {
        !self.lost.contains(&number)
    }

    /// Returns the recording of chosen programs that keep their memory.
    pub fn rewrite(&self, trace: &Trace, chosen: impl Fn(u32) -> bool) -> Trace {
        let mut changes = self.changes.iter().filter(|changed| chosen(changed.program)).peekable();
        let mut edit = Edit::of(trace);
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            let Some(changed) = changes.next_if(|changed| changed.event == event) else {
                edit.keep(step);
                continue;
            };
            match (&changed.to, step.what) {
                (Change::NoFault, _) => {}
                (Change::Fault(page), PackedKind::Fault { flags, .. }) => edit.fault(step, *page, flags),
                (Change::Fault(_), _) => edit.keep(step),
                (Change::Retaken(calls, to), what) => {
                    calls.iter().for_each(|kind| edit.call(step, *kind));
                    if let (Some(page), PackedKind::Fault { flags, .. }) = (to, what) {
                        edit.fault(step, *page, flags);
                    }
                }
                (Change::Calls(calls), _) => calls.iter().for_each(|kind| edit.call(step, *kind)),
            }
        }
        edit.finish()
    }
}

/// Joins calls on ranges that follow each other.
fn join(calls: Vec<Kind>) -> Vec<Kind> {
    let mut joined: Vec<Kind> = Vec::new();
    for call in calls {
        if let Some((last, (start, pages))) = joined.last_mut().and_then(|last| Some((*last, last.range()?)))
            && let Some((next, more)) = call.range()
            && start + pages == next
        {
            joined.pop();
            joined.push(last.with_range(start, pages + more));
        } else {
            joined.push(call);
        }
    }
    joined
}
