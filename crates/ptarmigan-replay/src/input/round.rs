//! Rounds a recording to the larger pages of another format.
//!
//! Addresses stay. A *page* is one of the format here; it holds several *recorded* pages, some of
//! which may belong to one area and some to another. The rules:
//!
//! 1. A page with a recorded page of an area belongs to an area. If several share it, it is part of
//!    the one that came first: the others end before it or begin behind it, so areas stay disjoint.
//! 2. A page that is shared gets the permissions of all of them.
//! 3. Calls that take something away (`munmap`, advice) reach a page if no recorded page of an area
//!    is in it that they do not reach. Calls that make pages, or lock them, reach every page that
//!    they touch.
//! 4. Faults stay as they are. The second one in a page finds it present.
//!
//! So a page is mapped if one of its recorded pages would be. Its contents may come from another
//! area than recorded.
use super::trace::{PackedEvent, PackedKind, Trace};
use crate::linux::PAGE;
use crate::ranges::RangeMap;
use ptarmigan_trace::{AreaKind, CloneKind, FailedCall, Kind, MapFlags, Prot};
use std::collections::BTreeSet;
use std::ops::Range;

const NONE: u32 = u32::MAX;
const RW: Prot = Prot(Prot::READ | Prot::WRITE);

/// The areas of a space as recorded.
#[derive(Clone, Default)]
struct RecordedAreas {
    /// The permissions of each.
    areas: RangeMap<Prot>,
    /// Once its start is known.
    heap: Option<Heap>,
}

/// The heap, as recorded and as rounded.
#[derive(Clone, Copy)]
struct Heap {
    recorded: Ends,
    rounded: Ends,
}

/// A first page, and the first page behind.
#[derive(Clone, Copy)]
struct Ends {
    start: u64,
    end: u64,
}

impl RecordedAreas {
    /// Returns the end of the areas that lie from the start of `range` on without a hole.
    fn first_hole(&self, range: &Range<u64>) -> u64 {
        let mut hole = range.start;
        self.areas.each(range, |part, _| {
            if part.start == hole {
                hole = part.end;
            }
        });
        hole
    }

    /// Returns the permissions of all areas in `range`, if there are any.
    fn allowed(&self, range: &Range<u64>) -> Option<Prot> {
        let mut all = None;
        self.areas.each(range, |_, prot| all = Some(Prot(prot.0 | all.map_or(0, |all: Prot| all.0))));
        all
    }
}

/// The rounding of one recording.
struct Rounding {
    /// Recorded pages in a page.
    step: u64,
    /// The space of each task.
    tasks: Vec<u32>,
    /// The number of tasks in each space, and its areas.
    spaces: Vec<(u32, RecordedAreas)>,
}

/// A range in whole pages, and the pages at its ends that it does not reach because areas have
/// recorded pages outside of the range there.
struct Rounded {
    whole: Range<u64>,
    shared: Vec<u64>,
}

impl Rounded {
    fn pages(&self) -> u64 {
        self.whole.end.saturating_sub(self.whole.start)
    }
}

impl Rounding {
    fn down(&self, page: u64) -> u64 {
        page - page % self.step
    }

    fn up(&self, page: u64) -> u64 {
        page.checked_next_multiple_of(self.step).unwrap_or_else(|| self.down(u64::MAX))
    }

    /// Returns a range to every page that it touches.
    fn out(&self, start: u64, pages: u64) -> (u64, u64) {
        let first = self.down(start);
        (first, if pages == 0 { 0 } else { self.up(start.saturating_add(pages)) - first })
    }

    /// Rounds a range to the pages in which no area has recorded pages outside of it.
    fn within(&self, areas: &RecordedAreas, range: &Range<u64>) -> Rounded {
        let mut rounded = Rounded { whole: self.down(range.start)..self.up(range.end), shared: Vec::new() };
        if range.is_empty() {
            rounded.whole.end = rounded.whole.start;
            return rounded;
        }
        let is_shared = |page: u64| {
            let (before, behind) = (page..range.start.max(page), range.end..page + self.step);
            areas.allowed(&before).or_else(|| areas.allowed(&behind)).is_some()
        };
        let (first, last) = (self.down(range.start), self.down(range.end - 1));
        if is_shared(first) {
            rounded.whole.start += self.step;
            rounded.shared.push(first);
        }
        if last != first && is_shared(last) {
            rounded.whole.end = last;
            rounded.shared.push(last);
        }
        rounded
    }

    /// Gives shared pages the permissions of all their areas.
    fn allow(&self, areas: &RecordedAreas, shared: &[u64], each: &mut dyn FnMut(Kind)) {
        for &start in shared {
            if let Some(prot) = areas.allowed(&(start..start + self.step)) {
                each(Kind::Mprotect { start, pages: self.step, prot });
            }
        }
    }

    /// Rounds an event. Calls `each` with the events that it becomes.
    fn event(&mut self, task: u32, kind: Kind, each: &mut dyn FnMut(Kind)) {
        let number = self.tasks[task as usize];
        if number == NONE {
            return each(kind);
        }
        let mut areas = std::mem::take(&mut self.spaces[number as usize].1);
        self.of_space(&mut areas, kind, each);
        self.spaces[number as usize].1 = areas;
        self.follow(task, number, kind);
    }

    /// Follows tasks from space to space.
    fn follow(&mut self, task: u32, number: u32, kind: Kind) {
        let users = |spaces: &mut Vec<(u32, RecordedAreas)>| {
            let (users, areas) = &mut spaces[number as usize];
            *users -= 1;
            if *users == 0 {
                *areas = RecordedAreas::default();
            }
        };
        match kind {
            Kind::Clone { child, kind: CloneKind::Fork } => {
                let copy = self.spaces[number as usize].1.clone();
                self.tasks[child as usize] = self.spaces.len() as u32;
                self.spaces.push((1, copy));
            }
            Kind::Clone { child, .. } => {
                self.tasks[child as usize] = number;
                self.spaces[number as usize].0 += 1;
            }
            Kind::Exec { .. } => {
                users(&mut self.spaces);
                self.tasks[task as usize] = self.spaces.len() as u32;
                self.spaces.push((1, RecordedAreas::default()));
            }
            Kind::Exit { .. } => {
                users(&mut self.spaces);
                self.tasks[task as usize] = NONE;
            }
            _ => {}
        }
    }

    fn of_space(&self, areas: &mut RecordedAreas, kind: Kind, each: &mut dyn FnMut(Kind)) {
        let range = |start: u64, pages: u64| start..start.saturating_add(pages);
        match kind {
            Kind::Exec { stack_end, arg_pages } => {
                let pages = u64::from(arg_pages.max(1));
                let (first, pages) = self.out(stack_end.saturating_sub(pages), pages.min(stack_end));
                let arg_pages = u32::try_from(pages).unwrap_or(u32::MAX);
                each(Kind::Exec { stack_end: first + pages, arg_pages });
            }
            Kind::Area { start, pages, prot, kind: AreaKind::Stack } => {
                areas.areas.insert(range(start, pages), prot);
                let (start, pages) = self.out(start, pages);
                each(kind.with_range(start, pages));
            }
            Kind::Area { start, pages, prot, .. } | Kind::Mmap { start, pages, prot, .. } => {
                self.map(areas, range(start, pages), prot, each, |start, pages| {
                    kind.with_range(start, pages)
                });
            }
            Kind::Munmap { start, pages } => self.unmap(areas, &range(start, pages), each),
            Kind::Mprotect { start, pages, prot } => {
                self.mprotect(areas, range(start, pages), prot, each, |start, pages| {
                    kind.with_range(start, pages)
                });
            }
            Kind::Brk { end } => self.brk(areas, end, each),
            Kind::Mremap { from, old_pages, to, new_pages, keep } => {
                self.mremap(areas, range(from, old_pages), range(to, new_pages), keep, each);
            }
            Kind::Madvise { start, pages, advice } => {
                let (start, pages) = self.advised(areas, start, pages, advice);
                if pages > 0 {
                    each(kind.with_range(start, pages));
                }
            }
            Kind::Lock { start, pages, .. } | Kind::Touched { start, pages, .. } => {
                let (start, pages) = self.out(start, pages);
                each(kind.with_range(start, pages));
            }
            Kind::Failed { errno, mut call } => {
                let (start, pages) = call.range();
                let (start, pages) = match &mut call {
                    FailedCall::Lock { .. } => self.out(start, pages),
                    FailedCall::Madvise { advice, .. } => self.advised(areas, start, pages, *advice),
                    FailedCall::Mprotect { prot, .. } => {
                        let prot = *prot;
                        return self.mprotect(areas, range(start, pages), prot, each, |start, pages| {
                            call.set_range(start, pages);
                            Kind::Failed { errno, call }
                        });
                    }
                    FailedCall::Mremap { to, .. } => {
                        *to = self.down(*to);
                        self.reached(areas, start, pages)
                    }
                };
                if pages > 0 {
                    call.set_range(start, pages);
                    each(Kind::Failed { errno, call });
                }
            }
            kind => each(kind),
        }
    }

    /// Returns the pages that a call reaches which takes something away.
    fn reached(&self, areas: &RecordedAreas, start: u64, pages: u64) -> (u64, u64) {
        let rounded = self.within(areas, &(start..start.saturating_add(pages)));
        (rounded.whole.start, rounded.pages())
    }

    /// Returns the pages that advice reaches.
    fn advised(&self, areas: &RecordedAreas, start: u64, pages: u64, advice: u16) -> (u64, u64) {
        match i32::from(advice) {
            libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => self.out(start, pages),
            _ => self.reached(areas, start, pages),
        }
    }

    fn map(
        &self,
        areas: &mut RecordedAreas,
        range: Range<u64>,
        prot: Prot,
        each: &mut dyn FnMut(Kind),
        make: impl Fn(u64, u64) -> Kind,
    ) {
        let rounded = self.within(areas, &range);
        areas.areas.insert(range, prot);
        if rounded.pages() > 0 {
            each(make(rounded.whole.start, rounded.pages()));
        }
        self.allow(areas, &rounded.shared, each);
    }

    fn unmap(&self, areas: &mut RecordedAreas, range: &Range<u64>, each: &mut dyn FnMut(Kind)) {
        areas.areas.remove(range);
        let rounded = self.within(areas, range);
        if rounded.pages() > 0 {
            each(Kind::Munmap { start: rounded.whole.start, pages: rounded.pages() });
        }
    }

    /// As in the replay, permissions change up to the first hole: larger pages may hide it.
    fn mprotect(
        &self,
        areas: &mut RecordedAreas,
        range: Range<u64>,
        prot: Prot,
        each: &mut dyn FnMut(Kind),
        mut make: impl FnMut(u64, u64) -> Kind,
    ) {
        let first = self.down(range.start);
        let mut changed = range.start..areas.first_hole(&range);
        if changed.is_empty() && areas.allowed(&(first..first + self.step)).is_none() {
            // A stack may have grown to there. The replay knows.
            changed = range;
        } else {
            let mut parts = Vec::new();
            areas.areas.each(&changed, |part, _| parts.push(part));
            parts.into_iter().for_each(|part| areas.areas.insert(part, prot));
        }
        let rounded = self.within(areas, &changed);
        if rounded.pages() > 0 {
            each(make(rounded.whole.start, rounded.pages()));
        }
        self.allow(areas, &rounded.shared, each);
    }

    /// Rounds the end of a heap that grows: a page that it shares is another area's.
    fn heap_end(&self, areas: &RecordedAreas, start: u64, end: u64) -> u64 {
        let page = self.down(end);
        let before = areas.allowed(&(page..start.min(end)));
        let shared = before.or_else(|| areas.allowed(&(end..page + self.step))).is_some();
        if shared { page } else { self.up(end) }
    }

    fn brk(&self, areas: &mut RecordedAreas, end: u64, each: &mut dyn FnMut(Kind)) {
        let Some(Heap { recorded, rounded }) = areas.heap else {
            let page = self.down(end);
            let shared = areas.allowed(&(page..page + self.step)).is_some();
            let start = if shared { self.up(end) } else { page };
            let none = |start| Ends { start, end: start };
            areas.heap = Some(Heap { recorded: none(end), rounded: none(start) });
            return each(Kind::Brk { end: start });
        };
        // Refused: another area is in the way.
        if end < recorded.start || areas.allowed(&(recorded.end..end)).is_some() {
            return;
        }
        // Where the heap begins, where it ended and where it ends, it may share pages.
        let whole = |page: u64| page..page + self.step;
        let ends = BTreeSet::from([recorded.start, recorded.end, end].map(|end| self.down(end)));
        let ends: Vec<_> = ends.into_iter().map(|page| (page, areas.allowed(&whole(page)))).collect();
        let grows = end > recorded.end;
        let new_end = if grows {
            self.heap_end(areas, recorded.start, end).max(rounded.end)
        } else {
            areas.areas.remove(&(end..recorded.end));
            let last = self.down(end);
            let kept = areas.allowed(&whole(last)).map_or(last, |_| self.up(end));
            kept.min(rounded.end)
        };
        let new_end = new_end.max(rounded.start);
        areas.areas.insert(recorded.end.min(end)..end, RW);
        areas.heap =
            Some(Heap { recorded: Ends { end, ..recorded }, rounded: Ends { end: new_end, ..rounded } });
        let new = rounded.end..new_end;
        let gone = new_end..rounded.end;
        for &(start, before) in &ends {
            // It was another area's and becomes the heap's, which does not map over others.
            if before.is_some() && new.contains(&start) {
                each(Kind::Munmap { start, pages: self.step });
            }
        }
        each(Kind::Brk { end: new_end });
        // Each of them is to be mapped if an area is in it.
        for (start, before) in ends {
            let now = match before {
                _ if new.contains(&start) => Some(RW),
                _ if gone.contains(&start) => None,
                before => before,
            };
            let pages = self.step;
            match (now, areas.allowed(&whole(start))) {
                (None, Some(prot)) => {
                    each(Kind::Mmap { start, pages, prot, flags: MapFlags(MapFlags::ANON) });
                }
                (Some(_), None) => each(Kind::Munmap { start, pages }),
                (Some(now), Some(prot)) if grows && now != prot => {
                    each(Kind::Mprotect { start, pages, prot });
                }
                _ => {}
            }
        }
    }

    fn mremap(
        &self,
        areas: &mut RecordedAreas,
        mut from: Range<u64>,
        to: Range<u64>,
        keep: bool,
        each: &mut dyn FnMut(Kind),
    ) {
        let in_place = from.start == to.start;
        if in_place && to.end <= from.end {
            return self.unmap(areas, &(to.end..from.end), each);
        }
        if from.is_empty() {
            // A second mapping of what is there.
            let page = self.down(from.start);
            let prot = areas.allowed(&(from.start..from.start + 1)).unwrap_or(RW);
            return self.map(areas, to, prot, each, |to, new_pages| Kind::Mremap {
                from: page,
                old_pages: 0,
                to,
                new_pages,
                keep,
            });
        }
        // As in the replay, a tail that does not move is unmapped first.
        let kept = from.start.saturating_add(to.end - to.start);
        if kept < from.end {
            self.unmap(areas, &(kept..from.end), each);
            from.end = kept;
            if from.is_empty() {
                return;
            }
        }
        // As in the replay, gaps stay, and the last part grows. How many areas these parts are does
        // not matter: Linux joins some that are several here.
        let mut parts = Vec::new();
        areas.areas.each(&from, |part, prot| parts.push((part, prot)));
        let gapless = areas.first_hole(&from) == from.end;
        let last = parts.len().saturating_sub(1);
        let grows = !parts.is_empty() && !keep && to.end - to.start > from.end - from.start;
        let source = self.within(areas, &from).whole;
        if in_place {
            areas.areas.remove(&from);
        }
        let target = self.within(areas, &to);
        if !keep {
            areas.areas.remove(&from);
        }
        let mut before = RecordedAreas::default();
        if !gapless {
            areas.areas.each(&target.whole, |part, prot| before.areas.insert(part, prot));
        }
        for (n, (part, prot)) in parts.iter().enumerate() {
            let (start, end) = (part.start - from.start + to.start, part.end - from.start + to.start);
            areas.areas.insert(start..if grows && n == last { to.end } else { end }, *prot);
        }
        // Pages move that have their old and their new place for themselves.
        let (old, new) = (self.down(from.start), self.down(to.start));
        let there = |page: u64| page - old + new;
        let back = |page: u64| page - new + old;
        let start = there(source.start).max(target.whole.start);
        let end = there(source.end.max(source.start)).min(target.whole.end);
        let moved = start..end.max(start);
        let grown = if grows && gapless && !moved.is_empty() && moved.end == there(source.end) {
            target.whole.end
        } else {
            moved.end
        };
        if !keep && !in_place {
            for gone in [source.start..back(moved.start), back(moved.end)..source.end] {
                if !gone.is_empty() && !moved.is_empty() {
                    each(Kind::Munmap { start: gone.start, pages: gone.end - gone.start });
                }
            }
            if moved.is_empty() && !source.is_empty() {
                each(Kind::Munmap { start: source.start, pages: source.end - source.start });
            }
        }
        let pages = moved.end - moved.start;
        if pages > 0 && !in_place {
            each(Kind::Mremap {
                from: back(moved.start),
                old_pages: pages,
                to: moved.start,
                new_pages: pages,
                keep,
            });
        }
        if pages > 0 && grown > moved.end {
            // The last page alone: shared pages may have cut the area in pieces, which do not grow.
            let (from, old_pages, more) = (moved.end - self.step, self.step, grown - moved.end);
            each(Kind::Munmap { start: moved.end, pages: more });
            each(Kind::Mremap { from, old_pages, to: from, new_pages: old_pages + more, keep });
        }
        // Others begin empty. Gaps between areas fall on other pages if the places differ within a
        // page.
        let aligned = gapless || !grows && from.start - old == to.start - new;
        let page = |start: u64| start..start + self.step;
        for start in (target.whole.start..target.whole.end).step_by(self.step as usize) {
            let done = moved.start <= start && start < grown;
            if done && aligned {
                continue;
            }
            let came = |from: Range<u64>| {
                parts.iter().any(|(part, _)| part.start < from.end && from.start < part.end)
            };
            let has = done && came(page(back(start))) || before.allowed(&page(start)).is_some();
            match areas.allowed(&page(start)) {
                Some(prot) if !has || !done => {
                    let flags = MapFlags(MapFlags::ANON);
                    each(Kind::Mmap { start, pages: self.step, prot, flags });
                }
                None if has => each(Kind::Munmap { start, pages: self.step }),
                _ => {}
            }
        }
        self.allow(areas, &target.shared, each);
    }
}

impl Trace {
    /// Rounds the trace to pages of 2^`shift` bytes, if these are larger than recorded ones.
    /// Returns their size in bytes then.
    pub fn round(&mut self, shift: u32) -> Option<u64> {
        if shift <= PAGE {
            return None;
        }
        let mut tasks = vec![NONE; self.tasks as usize];
        tasks[0] = 0;
        let spaces = vec![(1, RecordedAreas::default())];
        let mut rounding = Rounding { step: 1 << (shift - PAGE), tasks, spaces };
        let rare = std::mem::take(&mut self.rare);
        for step in std::mem::take(&mut self.steps) {
            let PackedKind::Rare(n) = step.what else {
                self.steps.push(step);
                continue;
            };
            rounding.event(step.task, rare[n as usize], &mut |kind| {
                self.steps.push(PackedEvent { what: PackedKind::Rare(self.rare.len() as u32), ..step });
                self.rare.push(kind);
            });
        }
        Some(1 << shift)
    }

    /// Leaves Linux's counts of tables out, which are of other tables.
    pub fn leave_counts_out(&mut self) {
        let rare = &self.rare;
        self.steps.retain(|step| match step.what {
            PackedKind::Rare(n) => !matches!(rare[n as usize], Kind::Truth { .. }),
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{Event, Header, Method, Writer};

    const RX: Prot = Prot(Prot::READ | Prot::EXEC);

    fn map(start: u64, pages: u64, prot: Prot) -> Kind {
        Kind::Mmap { start, pages, prot, flags: MapFlags(MapFlags::ANON) }
    }

    /// Rounds events to pages of 16 KiB, four recorded ones.
    fn rounded(kinds: &[Kind]) -> Vec<Kind> {
        let mut writer = Writer::new(Vec::new(), &Header::new("test", 1, Method::Synthetic), 3).unwrap();
        for kind in kinds {
            writer.event(&Event { task: 0, cpu: 0, kind: *kind }).unwrap();
        }
        let mut trace = Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap();
        trace.round(14);
        let rare = |step: &PackedEvent| match step.what {
            PackedKind::Rare(n) => Some(trace.rare[n as usize]),
            _ => None,
        };
        trace.steps.iter().filter_map(rare).collect()
    }

    #[test]
    fn an_area_alone_is_rounded_out_and_goes_with_its_last_page() {
        let events = rounded(&[
            map(9, 2, RX),
            Kind::Munmap { start: 9, pages: 1 },
            Kind::Munmap { start: 10, pages: 1 },
        ]);
        assert_eq!(events, [map(8, 4, RX), Kind::Munmap { start: 8, pages: 4 }]);
    }

    #[test]
    fn a_shared_page_is_the_first_areas_with_both_permissions() {
        let events = rounded(&[
            map(8, 2, RX),
            map(10, 7, RW),
            Kind::Mprotect { start: 10, pages: 7, prot: Prot(Prot::READ) },
            Kind::Munmap { start: 8, pages: 2 },
            Kind::Munmap { start: 10, pages: 7 },
        ]);
        let protect = |start, pages, prot| Kind::Mprotect { start, pages, prot };
        let wanted = [
            map(8, 4, RX),
            map(12, 8, RW),
            protect(8, 4, Prot(Prot::READ | Prot::WRITE | Prot::EXEC)),
            protect(12, 8, Prot(Prot::READ)),
            protect(8, 4, RX),
            Kind::Munmap { start: 8, pages: 12 },
        ];
        assert_eq!(events, wanted);
    }

    #[test]
    fn an_area_within_a_shared_page_maps_nothing() {
        let events = rounded(&[map(8, 1, RX), map(9, 1, RW)]);
        let all = Prot(Prot::READ | Prot::WRITE | Prot::EXEC);
        assert_eq!(events, [map(8, 4, RX), Kind::Mprotect { start: 8, pages: 4, prot: all }]);
    }

    #[test]
    fn advice_that_takes_pages_spares_those_that_others_share() {
        let advise = |start, pages, advice: i32| Kind::Madvise { start, pages, advice: advice as u16 };
        let events = rounded(&[
            map(8, 9, RW),
            advise(10, 6, libc::MADV_DONTNEED),
            advise(9, 1, libc::MADV_DONTNEED),
            advise(9, 1, libc::MADV_POPULATE_WRITE),
        ]);
        let wanted =
            [map(8, 12, RW), advise(12, 4, libc::MADV_DONTNEED), advise(8, 4, libc::MADV_POPULATE_WRITE)];
        assert_eq!(events, wanted);
    }

    #[test]
    fn a_heap_begins_behind_the_data_that_it_shares_a_page_with() {
        let events = rounded(&[map(8, 1, RX), Kind::Brk { end: 10 }, Kind::Brk { end: 13 }]);
        let brk = |end| Kind::Brk { end };
        let protect = Kind::Mprotect { start: 8, pages: 4, prot: Prot(RW.0 | RX.0) };
        assert_eq!(events, [map(8, 4, RX), brk(12), brk(16), protect]);
        let alone = rounded(&[Kind::Brk { end: 10 }, Kind::Brk { end: 13 }]);
        assert_eq!(alone, [brk(8), brk(16)]);
    }

    #[test]
    fn a_heap_that_shrinks_spares_the_page_of_another_area() {
        let brk = |end| Kind::Brk { end };
        let protect = Kind::Mprotect { start: 16, pages: 4, prot: RW };
        let events = rounded(&[brk(8), brk(18), map(17, 7, RW), brk(12)]);
        assert_eq!(events, [brk(8), brk(20), map(20, 4, RW), protect, brk(12), map(16, 4, RW)]);
    }

    #[test]
    fn a_heap_that_shrinks_within_a_shared_page_keeps_it() {
        let brk = |end| Kind::Brk { end };
        let protect = Kind::Mprotect { start: 8, pages: 4, prot: RW };
        let events = rounded(&[brk(8), brk(10), map(11, 5, RW), brk(9)]);
        assert_eq!(events, [brk(8), brk(12), map(12, 4, RW), protect, brk(12)]);
    }

    #[test]
    fn a_heap_grows_over_the_page_that_another_area_left() {
        let brk = |end| Kind::Brk { end };
        let gone = |start, pages| Kind::Munmap { start, pages };
        let protect = |prot| Kind::Mprotect { start: 12, pages: 4, prot };
        let events = rounded(&[brk(8), map(14, 2, RX), brk(13), gone(14, 2), brk(16)]);
        let both = Prot(RW.0 | RX.0);
        let wanted = [brk(8), map(12, 4, RX), brk(12), protect(both), gone(12, 4), brk(16)];
        assert_eq!(events, wanted);
    }

    #[test]
    fn a_heap_that_shrinks_takes_the_pages_that_others_left() {
        let brk = |end| Kind::Brk { end };
        let gone = |start, pages| Kind::Munmap { start, pages };
        let events = rounded(&[map(8, 1, RW), brk(10), brk(11), gone(8, 1), brk(10)]);
        assert_eq!(events, [map(8, 4, RW), brk(12), brk(12), brk(12), gone(8, 4)]);
    }

    #[test]
    fn a_heap_grows_in_a_page_that_was_unmapped() {
        let brk = |end| Kind::Brk { end };
        let events = rounded(&[brk(8), brk(10), Kind::Munmap { start: 8, pages: 2 }, brk(11)]);
        let gone = Kind::Munmap { start: 8, pages: 4 };
        assert_eq!(events, [brk(8), brk(12), gone, brk(12), map(8, 4, RW)]);
    }

    #[test]
    fn permissions_change_up_to_the_first_recorded_hole() {
        let read = Prot(Prot::READ);
        let protect = |start, pages, prot| Kind::Mprotect { start, pages, prot };
        let failed = Kind::Failed {
            errno: libc::ENOMEM as u8,
            call: FailedCall::Mprotect { start: 8, pages: 8, prot: read },
        };
        let made = [map(8, 4, RW), map(12, 4, RW)];
        for call in [failed, protect(8, 8, read)] {
            let events = rounded(&[map(8, 2, RW), map(11, 5, RW), call]);
            assert_eq!(events[..3], [made[0], made[1], protect(8, 4, RW)]);
            assert_eq!(events[3..], [protect(8, 4, RW)]);
        }
        // A hole at its start: permissions stay.
        let events = rounded(&[map(9, 7, RW), protect(8, 4, read), map(8, 1, read)]);
        assert_eq!(events, [map(8, 8, RW), protect(8, 4, RW)]);
    }

    #[test]
    fn a_tail_that_does_not_move_is_not_at_the_new_place() {
        let moved =
            |from, old_pages, to, new_pages| Kind::Mremap { from, old_pages, to, new_pages, keep: false };
        let events = rounded(&[map(9, 3, RW), moved(7, 5, 39, 2)]);
        let gone = Kind::Munmap { start: 8, pages: 4 };
        // Of no memory, as recorded.
        assert_eq!(events, [map(8, 4, RW), gone, moved(4, 8, 36, 8)]);
    }

    #[test]
    fn areas_that_linux_has_joined_grow_as_one() {
        let events = rounded(&[
            map(8, 4, RW),
            map(12, 4, RW),
            Kind::Mremap { from: 8, old_pages: 8, to: 32, new_pages: 16, keep: false },
            Kind::Munmap { start: 32, pages: 16 },
        ]);
        let moved =
            |from, old_pages, to, new_pages| Kind::Mremap { from, old_pages, to, new_pages, keep: false };
        let gone = |start, pages| Kind::Munmap { start, pages };
        let wanted = [
            map(8, 4, RW),
            map(12, 4, RW),
            moved(8, 8, 32, 8),
            gone(40, 8),
            moved(36, 4, 36, 12),
            gone(32, 16),
        ];
        assert_eq!(events, wanted);
    }

    #[test]
    fn arguments_are_in_whole_pages() {
        let events = rounded(&[Kind::Exec { stack_end: 102, arg_pages: 3 }]);
        assert_eq!(events, [Kind::Exec { stack_end: 104, arg_pages: 8 }]);
    }
}
