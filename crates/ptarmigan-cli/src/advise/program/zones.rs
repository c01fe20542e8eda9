//! Finds the memory that each program maps for itself, by life, and the pages of it that are
//! touched.
//!
//! A *zone* is private anonymous memory, from the `mmap` that makes it to the `munmap` that takes
//! its last page, or to the end of its address space. Memory that is mapped again at the same place
//! is another zone: for example, 1,000 threads one after the other have 1,000 stacks, of which one
//! is there at a time. A mapping within a zone belongs to it.
//!
//! Three kinds of zones are left where they are:
//!
//! * A file or shared memory was mapped into it, or `mremap` has moved it.
//! * It is the stack of a thread, which the C library maps.
//! * The dynamic loader has mapped it: before it unmapped its cache of libraries, a file.
use super::filled::FilledBlocks;
use super::seen::{PAGE, REGION, RegionPages};
use foldhash::HashMap;
use ptarmigan_replay::{PackedEvent, PackedKind, RangeMap, Tasks, Trace};
use ptarmigan_trace::{CloneKind, FaultFlags, Kind, Locking, MapFlags};
use std::collections::BTreeMap;

/// Lengths that the C library's allocator maps for an arena of 64 MiB: the arena itself, and twice
/// that to cut an aligned one out of.
const ARENA: [u64; 2] = [(64 << 20) >> PAGE, (128 << 20) >> PAGE];
/// The first page that AddressSanitizer maps on x86-64: one page before its shadow memory.
const SHADOW: u64 = 0x7fff_7000 >> PAGE;
/// A zone is sparse if its tables are at most this full, on average.
const SPARSE: u64 = REGION / 8;

/// Memory that a program has mapped for itself.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// The number of the program.
    pub program: u32,
    /// The event that makes it.
    pub begin: u32,
    /// The event after which all of it is gone. `None` if it is there at the end.
    pub end: Option<u32>,
    /// It may be packed.
    pub movable: bool,
    /// It is an arena of the C library's allocator.
    pub arena: bool,
    /// A fork has copied it, so that its addresses may be in use after its end.
    pub forked: bool,
    /// The touched pages in order, of arenas and sparse zones that may be packed.
    pub pages: Vec<u64>,
    space: usize,
    /// Pages that its space has not unmapped.
    left: u64,
    /// Its pages were too many to be kept.
    dense: bool,
}

/// One program, from its start to the end of the last task that runs it.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// All that was ever mapped, as pairs of the first page and the first one after it.
    pub mapped: Vec<(u64, u64)>,
    /// It runs under AddressSanitizer, which lays out memory itself.
    pub sanitized: bool,
}

/// The zones of all programs.
#[derive(Default)]
pub struct Zones {
    /// The zones, by their number.
    pub zones: Vec<Zone>,
    /// By the number of the program.
    pub programs: HashMap<u32, Layout>,
}

/// An address space.
#[derive(Clone, Debug, Default)]
struct Space {
    /// Tasks that use it.
    tasks: u32,
    /// Parts of zones: the zone of each.
    parts: RangeMap<u32>,
    /// First pages of files that were mapped while the loader runs; `None` after that.
    files: Option<Vec<u64>>,
    heap: Option<u64>,
    /// The task that made a zone last.
    last: Option<(u32, u32)>,
}

/// Follows the address spaces of a recording.
pub struct Walk<'t> {
    trace: &'t Trace,
    tasks: Tasks,
    space_of: Vec<usize>,
    spaces: Vec<Space>,
    found: Zones,
    /// Zones that the last step has ended.
    ended: Vec<u32>,
}

impl Zone {
    /// Makes a zone that is there from one event to another, with touched pages.
    #[cfg(test)]
    pub fn with(begin: u32, end: Option<u32>, pages: &[u64]) -> Self {
        Zone { begin, end, pages: pages.to_vec(), ..Zone::default() }
    }
}

impl<'t> Walk<'t> {
    /// Begins at the start of a recording.
    pub fn new(trace: &'t Trace) -> Self {
        Walk {
            trace,
            tasks: Tasks::new(trace),
            space_of: vec![0; trace.tasks as usize],
            spaces: vec![Space { tasks: 1, ..Space::default() }],
            found: Zones::default(),
            ended: Vec::new(),
        }
    }

    /// Calls `each` with the parts of zones that a task has in a range, in order: the first page,
    /// the first page after it, and the zone.
    pub fn parts(&self, task: u32, start: u64, end: u64, mut each: impl FnMut(u64, u64, u32)) {
        let parts = &self.spaces[self.space_of[task as usize]].parts;
        parts.each(&(start..end), |part, zone| each(part.start, part.end, zone));
    }

    /// Returns the zone of a page.
    pub fn zone(&self, task: u32, page: u64) -> Option<u32> {
        let parts = &self.spaces[self.space_of[task as usize]].parts;
        parts.around(page).map(|(_, zone)| zone)
    }

    /// Follows a step. `event` is its number.
    pub fn step(&mut self, step: &PackedEvent, event: u32) {
        self.ended.clear();
        let program = self.tasks.step(self.trace, step).unwrap_or_default();
        let PackedKind::Rare(rare) = step.what else { return };
        let (task, space) = (step.task as usize, self.space_of[step.task as usize]);
        match self.trace.rare[rare as usize] {
            Kind::Clone { child, kind: CloneKind::Fork } => {
                let copy = Space { tasks: 1, last: None, ..self.spaces[space].clone() };
                for (_, zone) in copy.parts.iter() {
                    self.found.zones[zone as usize].forked = true;
                }
                self.space_of[child as usize] = self.spaces.len();
                self.spaces.push(copy);
            }
            Kind::Clone { child, .. } => {
                self.space_of[child as usize] = space;
                self.spaces[space].tasks += 1;
                // The C library has mapped the stack of the new task just before.
                if let Some((_, zone)) = self.spaces[space].last.take_if(|(by, _)| *by == step.task) {
                    self.found.zones[zone as usize].movable = false;
                }
            }
            Kind::Exec { .. } => {
                self.leave(space, event);
                self.space_of[task] = self.spaces.len();
                self.spaces.push(Space { tasks: 1, files: Some(Vec::new()), ..Space::default() });
            }
            Kind::Exit { .. } => self.leave(space, event),
            Kind::Mmap { start, pages, prot, flags } => {
                self.layout(program).mapped.push((start, start + pages));
                if start == SHADOW {
                    self.layout(program).sanitized = true;
                }
                let has = |flag| flags.0 & flag != 0;
                let unusual = MapFlags::SHARED | MapFlags::GROWSDOWN | MapFlags::HUGE_ONLY;
                let own = has(MapFlags::ANON) && !has(unusual);
                let arena = own && prot.0 == 0 && ARENA.contains(&pages);
                // Stacks have `MAP_STACK`.
                let zone = Zone { movable: own && !has(MapFlags::NO_HUGE), arena, ..Zone::default() };
                let zone = Zone { program, begin: event, space, left: pages, ..zone };
                let loads = self.spaces[space].files.as_mut().filter(|_| !has(MapFlags::ANON));
                loads.into_iter().for_each(|files| files.push(start));
                self.map(step.task, start, start + pages, own.then_some(zone), event);
            }
            Kind::Area { start, pages, .. } => {
                self.layout(program).mapped.push((start, start + pages));
                self.map(step.task, start, start + pages, None, event);
            }
            Kind::Brk { end } => {
                self.layout(program).mapped.push((end.saturating_sub(1), end));
                let space = &mut self.spaces[space];
                if end > *space.heap.get_or_insert(end) {
                    space.files = None;
                }
            }
            Kind::Mremap { from, old_pages, to, new_pages, .. } => {
                self.layout(program).mapped.extend([(from, from + old_pages), (to, to + new_pages)]);
                for (start, end) in [(from, from + old_pages), (to, to + new_pages)] {
                    self.stay(step.task, start, end);
                    self.cut(space, start, end, event);
                }
            }
            Kind::Munmap { start, pages } => {
                let files = &mut self.spaces[space].files;
                if files.take_if(|files| files.contains(&start)).is_some() {
                    // The loader has done its work: mappings up to now are its own.
                    self.stay(step.task, 0, u64::MAX);
                }
                self.cut(space, start, start + pages, event);
            }
            _ => {}
        }
    }

    fn layout(&mut self, program: u32) -> &mut Layout {
        self.found.programs.entry(program).or_default()
    }

    /// Takes a task from a space, which ends with the last one.
    fn leave(&mut self, space: usize, event: u32) {
        let tasks = &mut self.spaces[space].tasks;
        *tasks = tasks.saturating_sub(1);
        if *tasks == 0 {
            self.cut(space, 0, u64::MAX, event);
        }
    }

    /// Maps a new zone, or other memory.
    fn map(&mut self, task: u32, start: u64, end: u64, zone: Option<Zone>, event: u32) {
        let space = self.space_of[task as usize];
        let mut within = None;
        self.parts(task, start, end, |from, to, zone| {
            within = ((from, to) == (start, end)).then_some(zone);
        });
        if let Some(outer) = within {
            let outer = &mut self.found.zones[outer as usize];
            outer.movable &= zone.is_some_and(|zone| zone.movable);
            return;
        }
        self.cut(space, start, end, event);
        let Some(zone) = zone.filter(|_| start < end) else { return };
        let number = self.found.zones.len() as u32;
        self.found.zones.push(zone);
        self.spaces[space].parts.insert(start..end, number);
        self.spaces[space].last = Some((task, number));
    }

    /// Says that zones in a range stay where they are.
    fn stay(&mut self, task: u32, start: u64, end: u64) {
        let mut found = Vec::new();
        self.parts(task, start, end, |_, _, zone| found.push(zone));
        found.into_iter().for_each(|zone| self.found.zones[zone as usize].movable = false);
    }

    /// Takes a range from the zones of a space.
    fn cut(&mut self, space: usize, start: u64, end: u64, event: u32) {
        let parts = &mut self.spaces[space].parts;
        let mut gone = Vec::new();
        parts.each(&(start..end), |part, number| gone.push((part, number)));
        parts.remove(&(start..end));
        for (part, number) in gone {
            let zone = &mut self.found.zones[number as usize];
            // Copies that forks have made do not count.
            if zone.space == space {
                zone.left -= part.end - part.start;
                if zone.left == 0 {
                    zone.end = Some(event);
                    self.ended.push(number);
                }
            }
        }
    }
}

/// Pages that are touched while their zone is there.
#[derive(Default)]
struct Touched(HashMap<u32, BTreeMap<u64, RegionPages>>);

impl Touched {
    fn add(&mut self, walk: &Walk<'_>, task: u32, start: u64, end: u64) {
        walk.parts(task, start, end, |from, to, zone| {
            let regions = self.0.entry(zone).or_default();
            for page in from..to {
                regions.entry(page / REGION).or_default().add(page);
            }
        });
    }

    /// Hands the pages of a zone over to it, if it needs them.
    fn hand_over(&mut self, number: u32, zone: &mut Zone) {
        let Some(regions) = self.0.remove(&number) else { return };
        let pages: u64 = regions.values().map(RegionPages::count).sum();
        let sparse = zone.arena || pages <= regions.len() as u64 * SPARSE;
        if !zone.movable || zone.dense || !sparse {
            zone.dense = true;
            zone.pages = Vec::new();
            return;
        }
        zone.pages.extend(regions.iter().flat_map(|(region, pages)| pages.within(*region, 0..u64::MAX)));
        zone.pages.sort_unstable();
        zone.pages.dedup();
    }
}

impl Zones {
    /// Looks at a recording. `filled` are its faults that mapped several pages.
    pub fn of(trace: &Trace, filled: &FilledBlocks) -> Self {
        let (mut walk, mut touched) = (Walk::new(trace), Touched::default());
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            walk.step(step, event);
            if let Some((start, end)) = filled.range(event).or_else(|| touches(trace, step)) {
                touched.add(&walk, step.task, start, end);
            }
            for &ended in &walk.ended {
                touched.hand_over(ended, &mut walk.found.zones[ended as usize]);
            }
        }
        let mut found = walk.found;
        let open: Vec<u32> = touched.0.keys().copied().collect();
        open.into_iter().for_each(|zone| touched.hand_over(zone, &mut found.zones[zone as usize]));
        found
    }
}

/// Returns the range of pages that a step makes present: by a fault, by a call, or because they
/// were found present at a stop (`UFFDIO_COPY` makes no fault, for example).
fn touches(trace: &Trace, step: &PackedEvent) -> Option<(u64, u64)> {
    let rare = match step.what {
        PackedKind::Fault { flags, .. } if flags.0 & FaultFlags::REFUSED != 0 => return None,
        PackedKind::Fault { page, .. } => return Some((page, page + 1)),
        PackedKind::Rare(rare) => rare,
        PackedKind::Idle => return None,
    };
    match trace.rare[rare as usize] {
        Kind::Touched { start, pages, flags } if flags.0 & FaultFlags::HUGE == 0 => Some((start, pages)),
        Kind::Mmap { start, pages, flags, prot }
            if flags.0 & (MapFlags::POPULATE | MapFlags::LATER) == MapFlags::POPULATE && prot.0 != 0 =>
        {
            Some((start, pages))
        }
        Kind::Madvise { start, pages, advice }
            if [libc::MADV_POPULATE_READ, libc::MADV_POPULATE_WRITE].contains(&i32::from(advice)) =>
        {
            Some((start, pages))
        }
        Kind::Lock { start, pages, how } if how.0 & (Locking::NOW | Locking::ON_FAULT) == Locking::NOW => {
            Some((start, pages))
        }
        _ => None,
    }
    .map(|(start, pages)| (start, start + pages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_replay::HugeFaults;
    use ptarmigan_trace::{Event, Header, Method, Prot, Writer};

    fn zones(events: &[(u32, Kind)]) -> Zones {
        let mut writer = Writer::new(Vec::new(), &Header::new("made", 1, Method::Synthetic), 3).unwrap();
        for (task, kind) in events {
            writer.event(&Event { task: *task, cpu: 0, kind: *kind }).unwrap();
        }
        let trace = Trace::from_bytes(&writer.finish(0).unwrap().0, "made").unwrap();
        Zones::of(&trace, &FilledBlocks::new(HugeFaults::Never))
    }

    const EXEC: Kind = Kind::Exec { stack_end: (1 << 35) - 1, arg_pages: 1 };
    const BASE: u64 = 1 << 20;

    fn map_with(start: u64, pages: u64, flags: u16) -> (u32, Kind) {
        (0, Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(flags) })
    }

    fn map(start: u64, pages: u64) -> (u32, Kind) {
        map_with(start, pages, MapFlags::ANON)
    }

    fn fault(page: u64) -> (u32, Kind) {
        (0, Kind::Fault { page, flags: FaultFlags(FaultFlags::WRITE | FaultFlags::USER) })
    }

    fn unmap(start: u64, pages: u64) -> (u32, Kind) {
        (0, Kind::Munmap { start, pages })
    }

    #[test]
    fn memory_mapped_again_at_its_place_is_another_zone() {
        let mut events = vec![(0, EXEC)];
        for n in 0..3 {
            events.extend([map(BASE, 512), fault(BASE + n), unmap(BASE, 512)]);
        }
        let found = zones(&events);
        let lives: Vec<_> = found.zones.iter().map(|z| (z.begin, z.end, z.pages.clone())).collect();
        let expected = [(1, Some(3), vec![BASE]), (4, Some(6), vec![BASE + 1]), (7, Some(9), vec![BASE + 2])];
        assert_eq!(lives, expected);
    }

    #[test]
    fn a_zone_lives_until_its_last_page_goes() {
        let events = [(0, EXEC), map(BASE, 100), unmap(BASE + 40, 20), unmap(BASE, 40), fault(BASE + 99)];
        let found = zones(&events);
        assert_eq!((found.zones[0].end, found.zones[0].pages.as_slice()), (None, &[BASE + 99][..]));
        let found = zones(&[&events[..], &[unmap(BASE + 60, 40)]].concat());
        assert_eq!(found.zones[0].end, Some(5));
    }

    #[test]
    fn a_mapping_within_a_zone_belongs_to_it() {
        let within = |flags| {
            let found = zones(&[(0, EXEC), map(BASE, 4096), map_with(BASE + 64, 8, flags), fault(BASE + 65)]);
            found.zones.iter().map(|zone| (zone.movable, zone.pages.len())).collect::<Vec<_>>()
        };
        assert_eq!(within(MapFlags::ANON | MapFlags::FIXED), [(true, 1)]);
        assert_eq!(within(MapFlags::FIXED), [(false, 0)], "a file");
    }

    #[test]
    fn pages_that_are_found_or_populated_are_touched() {
        let found = Kind::Touched { flags: FaultFlags(FaultFlags::WRITE), start: BASE, pages: 60 };
        let pages = |kind| zones(&[(0, EXEC), map(BASE, 512), (0, kind)]).zones[0].pages.len();
        assert_eq!(pages(found), 60);
        let advice = libc::MADV_POPULATE_WRITE as u16;
        assert_eq!(pages(Kind::Madvise { start: BASE, pages: 50, advice }), 50);
        let all = Kind::Touched { flags: FaultFlags(FaultFlags::WRITE), start: BASE, pages: 512 };
        assert_eq!(pages(all), 0, "it is not sparse");
    }

    #[test]
    fn stacks_of_threads_and_the_loaders_memory_stay() {
        let stack = map_with(BASE, 2048, MapFlags::ANON | MapFlags::NO_HUGE);
        assert!(!zones(&[(0, EXEC), stack]).zones[0].movable);
        let thread = (0, Kind::Clone { child: 1, kind: CloneKind::Share });
        assert!(!zones(&[(0, EXEC), map(BASE, 2048), thread]).zones[0].movable);
        let cache = [map_with(BASE << 1, 20, 0), map(BASE, 3), unmap(BASE << 1, 20), map(BASE + 512, 3)];
        let found = zones(&[&[(0, EXEC)], &cache[..]].concat());
        assert_eq!([found.zones[0].movable, found.zones[1].movable], [false, true]);
    }

    #[test]
    fn a_childs_munmap_and_end_leave_the_parents_zone() {
        let events = [
            (0, EXEC),
            map(BASE, 512),
            (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
            (1, Kind::Munmap { start: BASE, pages: 512 }),
            (1, Kind::Mmap { start: BASE, pages: 8, prot: Prot(3), flags: MapFlags(MapFlags::ANON) }),
            (1, Kind::Exit { last: true }),
            fault(BASE + 3),
            (0, Kind::Exit { last: true }),
        ];
        let ends: Vec<_> = zones(&events).zones.iter().map(|zone| (zone.end, zone.pages.len())).collect();
        assert_eq!(ends, [(Some(7), 1), (Some(5), 0)]);
    }
}
