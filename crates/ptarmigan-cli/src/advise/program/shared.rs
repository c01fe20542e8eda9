//! Shared memory that many processes map: each of them fills leaf tables of its own for it.
//!
//! An *object* is memory that one `mmap` has made shared. Children of a fork map the same object.
//! Other mappings show the same object if they have the same name in the recording, or, without
//! names, the same place and length. So do anonymous mappings of processes that ran before the
//! recording: their common parent has made them. Files with a name are counted, but have no huge
//! pages, except on tmpfs.
//!
//! With huge pages of hugetlb or shmem an entry of an upper level maps 2 MiB. Linux keeps no leaf
//! table in reserve there. The first fault of each huge page in each space stays.
//!
//! Huge pages are counted from the start of the object, as Linux maps one that has them at a
//! multiple of 2 MiB. The recording keeps the object where it was: its huge pages take the aligned
//! 2 MiB of its mapping in order, and one without such a place has no entry.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, REGION, RegionPages, SpaceOperation};
use crate::advise::facts::{Facts, Mapping};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::{PackedKind, Trace, When};
use ptarmigan_trace::{FaultFlags, Kind, MapFlags, Object};
use std::collections::{BTreeMap, BTreeSet};

/// The fewest pages of an object that may have huge pages.
const LEAST: u64 = 2 * REGION;

/// How an object was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Made {
    /// Shared anonymous memory.
    Anonymous,
    /// A System V segment.
    Segment,
    /// Memory with a descriptor: `memfd_create`, `/dev/shm`.
    Descriptor,
    /// A file of which the recording has the name.
    File,
}

/// One object.
pub struct SharedObject {
    /// How it was made.
    pub made: Made,
    /// Its place in the space that mapped it first, and its length, in pages.
    pub start: u64,
    /// Length in pages.
    pub pages: u64,
    /// Its name, if the recording has it.
    pub name: Option<String>,
    /// Spaces that had a table for it, by program.
    pub spaces: BTreeMap<usize, u64>,
    /// Leaf tables that spaces made for it.
    pub tables: u64,
    /// The most at once.
    pub tables_peak: u64,
    /// Faults on it.
    pub faults: u64,
    /// The pages of it that spaces touched, by huge page.
    pub touched: HashMap<u64, RegionPages>,
    now: u64,
}

/// A part of a space that shows an object.
#[derive(Clone, Copy)]
struct Shown {
    start: u64,
    end: u64,
    /// The page of the object's start.
    base: u64,
    object: usize,
}

impl Shown {
    /// Returns the number of the huge page that has a page.
    fn huge(&self, page: u64) -> u64 {
        (page - self.base) / REGION
    }

    /// Returns the aligned 2 MiB in this part that stand for a huge page.
    fn place(&self, huge: u64) -> Option<u64> {
        let start = self.base.next_multiple_of(REGION).checked_add(huge * REGION)?;
        (start >= self.start && start + REGION <= self.end).then_some(start)
    }
}

/// The event that maps a huge page.
struct HugeMapping {
    object: usize,
    place: Option<u64>,
}

/// Pages of an object that an event without a fault touches.
struct TouchedPages {
    shown: Shown,
    start: u64,
    end: u64,
}

/// The objects of a recording.
pub struct SharedMappings<'f> {
    facts: &'f Facts,
    /// All objects.
    pub objects: Vec<SharedObject>,
    shown: HashMap<u32, Vec<Shown>>,
    /// Objects by the name or the place of their mapping.
    known: HashMap<(Made, Option<String>, u64, u64), usize>,
    /// Events that give the state of processes which ran before the recording.
    openings: HashSet<u32>,
    /// Spaces with the objects that they had a table for at any time.
    had: HashSet<(u32, usize)>,
    /// The aligned 2 MiB of each space that have a table for an object.
    regions: HashMap<u32, BTreeSet<(u64, usize)>>,
    /// The huge pages of each space that it would have, by the page of their start.
    huge: HashMap<u32, BTreeSet<u64>>,
    /// Faults that would map a huge page, and all other faults on objects.
    firsts: HashMap<u32, HugeMapping>,
    others: HashMap<u32, usize>,
    /// Events that touch pages of objects without a fault.
    found: HashMap<u32, Vec<TouchedPages>>,
}

impl<'f> SharedMappings<'f> {
    /// Begins to look at a recording of which the facts are known.
    pub fn new(facts: &'f Facts, trace: &Trace) -> Self {
        SharedMappings {
            facts,
            objects: Vec::new(),
            shown: HashMap::new(),
            known: HashMap::new(),
            openings: trace.opening_steps().into_keys().collect(),
            had: HashSet::new(),
            regions: HashMap::new(),
            huge: HashMap::new(),
            firsts: HashMap::new(),
            others: HashMap::new(),
            found: HashMap::new(),
        }
    }

    fn map(&mut self, seen: &SpaceOperation<'_>, start: u64, pages: u64, flags: MapFlags) {
        self.unmap(seen, start, pages);
        let has = |flag| flags.0 & flag != 0;
        if !has(MapFlags::SHARED) || has(MapFlags::HUGE_ONLY) || pages < LEAST {
            return;
        }
        let noted = self.facts.object(seen.program, start).filter(|noted| noted.start == start);
        let made = match (has(MapFlags::SEGMENT), has(MapFlags::ANON), noted) {
            (true, ..) => Made::Segment,
            (_, true, _) => Made::Anonymous,
            (_, _, Some(Mapping { object: Object::SharedMemory, .. })) => Made::Descriptor,
            (_, _, Some(Mapping { object: Object::File, name: Some(_), .. })) => Made::File,
            _ => return,
        };
        let name = noted.and_then(|noted| noted.name.clone());
        let key = match (made, &name) {
            (Made::Descriptor | Made::File, Some(name)) => Some((made, Some(name.clone()), 0, pages)),
            (Made::Descriptor | Made::Segment, None) => Some((made, None, start, pages)),
            (Made::Anonymous, _) if self.openings.contains(&seen.event) => Some((made, None, start, pages)),
            // Each call makes a new one.
            _ => None,
        };
        let object = key.as_ref().and_then(|key| self.known.get(key).copied()).unwrap_or_else(|| {
            self.objects.push(SharedObject {
                made,
                start,
                pages,
                name,
                spaces: BTreeMap::new(),
                tables: 0,
                tables_peak: 0,
                faults: 0,
                touched: HashMap::new(),
                now: 0,
            });
            self.objects.len() - 1
        });
        if let Some(key) = key {
            self.known.insert(key, object);
        }
        let shown = Shown { start, end: start + pages, base: start, object };
        self.shown.entry(seen.space).or_default().push(shown);
    }

    fn unmap(&mut self, seen: &SpaceOperation<'_>, start: u64, pages: u64) {
        let (end, Some(shown)) = (start.saturating_add(pages), self.shown.get_mut(&seen.space)) else {
            return;
        };
        let mut left = Vec::with_capacity(shown.len());
        for part in shown.drain(..) {
            let before = Shown { end: part.end.min(start), ..part };
            let after = Shown { start: part.start.max(end), ..part };
            left.extend([before, after].into_iter().filter(|part| part.start < part.end));
        }
        *shown = left;
        if let Some(huge) = self.huge.get_mut(&seen.space) {
            let gone: Vec<u64> = huge.range(start..end).copied().collect();
            gone.iter().for_each(|at| _ = huge.remove(at));
        }
        let Some(regions) = self.regions.get_mut(&seen.space) else { return };
        let within = (start / REGION, 0)..(end.div_ceil(REGION), 0);
        let stays = |(region, object): &(u64, usize)| {
            let (from, to) = (region * REGION, (region + 1) * REGION);
            shown.iter().any(|part| part.object == *object && part.start < to && part.end > from)
        };
        let gone: Vec<_> = regions.range(within).copied().filter(|region| !stays(region)).collect();
        for region in gone {
            regions.remove(&region);
            self.objects[region.1].now -= 1;
        }
    }

    fn object(&self, space: u32, page: u64) -> Option<Shown> {
        self.shown.get(&space)?.iter().copied().find(|part| (part.start..part.end).contains(&page))
    }

    fn fault(&mut self, seen: &SpaceOperation<'_>, page: u64) {
        let Some((shown, first)) = self.touch(seen, page) else { return };
        let object = shown.object;
        self.objects[object].faults += 1;
        if first {
            self.firsts.insert(seen.event, HugeMapping { object, place: shown.place(shown.huge(page)) });
        } else {
            self.others.insert(seen.event, object);
        }
    }

    /// Notes a page of an object that a space has. Returns the part that shows it, and whether it
    /// is the first of its huge page.
    fn touch(&mut self, seen: &SpaceOperation<'_>, page: u64) -> Option<(Shown, bool)> {
        let shown = self.object(seen.space, page)?;
        let huge = shown.huge(page);
        let pages = self.huge.entry(seen.space).or_default();
        let first = pages.insert(shown.base + huge * REGION);
        let regions = self.regions.entry(seen.space).or_default();
        let program = self.facts.program(seen.program);
        let is_new = first && self.had.insert((seen.space, shown.object));
        let object = &mut self.objects[shown.object];
        object.touched.entry(huge).or_default().add(page - shown.base);
        if regions.insert((page / REGION, shown.object)) {
            object.tables += 1;
            object.now += 1;
            object.tables_peak = object.tables_peak.max(object.now);
        }
        *object.spaces.entry(program).or_default() += u64::from(is_new);
        Some((shown, first))
    }

    /// Notes a run of pages that came without a fault.
    fn run(&mut self, seen: &SpaceOperation<'_>, start: u64, pages: u64) {
        let mut found: Vec<TouchedPages> = Vec::new();
        for page in start..start.saturating_add(pages) {
            let Some((shown, _)) = self.touch(seen, page) else { continue };
            match found.last_mut() {
                Some(last) if last.end == page && last.shown.object == shown.object => last.end = page + 1,
                _ => found.push(TouchedPages { shown, start: page, end: page + 1 }),
            }
        }
        if !found.is_empty() {
            self.found.insert(seen.event, found);
        }
    }
}

impl Finder for SharedMappings<'_> {
    fn see(&mut self, seen: &SpaceOperation<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, flags }, When::Before) if flags.0 & FaultFlags::REFUSED == 0 => {
                self.fault(seen, page);
            }
            (Happens::Call(Kind::Mmap { start, pages, flags, .. }), When::After) => {
                self.map(seen, start, pages, flags);
            }
            (Happens::Call(Kind::Touched { start, pages, .. }), When::After) => {
                self.run(seen, start, pages);
            }
            (Happens::Call(Kind::Munmap { start, pages }), When::After) => self.unmap(seen, start, pages),
            (Happens::Call(Kind::Mremap { from, old_pages, .. }), When::After) => {
                self.unmap(seen, from, old_pages);
            }
            (Happens::Fork { child }, When::Before) => {
                if let Some(shown) = self.shown.get(&seen.space).cloned() {
                    self.shown.insert(child, shown);
                }
            }
            (Happens::End, _) => {
                self.shown.remove(&seen.space);
                self.huge.remove(&seen.space);
                for (_, object) in self.regions.remove(&seen.space).unwrap_or_default() {
                    self.objects[object].now -= 1;
                }
            }
            _ => {}
        }
    }
}

impl SharedMappings<'_> {
    /// Returns the objects for which several spaces have several tables, as indices.
    pub fn found(&self) -> BTreeSet<usize> {
        let chosen = |object: &SharedObject| object.made != Made::File && object.is_of_several();
        (0..self.objects.len()).filter(|at| chosen(&self.objects[*at])).collect()
    }

    /// Returns the file for which several spaces have the most tables.
    pub fn file(&self) -> Option<&SharedObject> {
        let files = self.objects.iter().filter(|object| object.made == Made::File && object.is_of_several());
        files.max_by_key(|object| object.tables)
    }

    /// Returns the programs that fill tables for each of these objects.
    pub fn programs(&self) -> impl Iterator<Item = usize> {
        self.found().into_iter().flat_map(|at| self.objects[at].spaces.keys().copied())
    }

    /// Returns the recording with huge pages for some objects, and how many faults of it are calls
    /// there, or left out: the first ones of each huge page.
    pub fn rewrite(&self, trace: &Trace, chosen: &BTreeSet<usize>) -> (Trace, u64) {
        let mut edit = Edit::of(trace);
        let mut kept = 0;
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            let first = self.firsts.get(&event).filter(|first| chosen.contains(&first.object));
            let other = self.others.get(&event).is_some_and(|object| chosen.contains(object));
            match (step.what, self.found.get(&event)) {
                (PackedKind::Fault { .. }, _) if other => {}
                (PackedKind::Fault { .. }, _) if first.is_some() => {
                    kept += 1;
                    if let Some(start) = first.and_then(|first| first.place) {
                        edit.call(step, huge_page(start));
                    }
                }
                (PackedKind::Rare(_), Some(found)) => {
                    let Some(Kind::Touched { start, pages, flags }) = edit.kind(step) else { continue };
                    let mut touch = |start: u64, end: u64| {
                        if start < end {
                            edit.call(step, Kind::Touched { start, pages: end - start, flags });
                        }
                    };
                    let mut from = start;
                    let chosen = |found: &&TouchedPages| chosen.contains(&found.shown.object);
                    for run in found.iter().filter(chosen) {
                        touch(from, run.start);
                        from = run.end;
                    }
                    touch(from, start + pages);
                    for TouchedPages { shown, start, end } in found.iter().filter(chosen) {
                        let huge = shown.huge(*start)..=shown.huge(end - 1);
                        huge.filter_map(|huge| shown.place(huge))
                            .for_each(|at| edit.call(step, huge_page(at)));
                    }
                }
                _ => edit.keep(step),
            }
        }
        (edit.finish(), kept)
    }
}

/// The call that maps a huge page.
fn huge_page(start: u64) -> Kind {
    Kind::Touched { start, pages: REGION, flags: FaultFlags(FaultFlags::HUGE) }
}

impl SharedObject {
    /// Returns whether several spaces have several tables for it.
    fn is_of_several(&self) -> bool {
        self.spaces.values().sum::<u64>() > 1 && self.tables >= 8
    }

    /// Returns the pages that any space touched.
    pub fn touched(&self) -> u64 {
        self.touched.values().map(RegionPages::count).sum()
    }

    /// Returns how huge pages are asked for, given the programs that map it.
    pub fn switch(&self, programs: &[&str]) -> String {
        if programs.iter().any(|name| *name == "postgres" || *name == "postmaster") {
            return "postgresql.conf: huge_pages = on; reserve them before with vm.nr_hugepages (`postgres -C \
                    shared_memory_size_in_huge_pages` prints how many, from version 15 on)"
                .to_owned();
        }
        let memory = "Pages of hugetlb are reserved with vm.nr_hugepages.";
        match self.made {
            Made::Anonymous => format!(
                "mmap with MAP_HUGETLB beside MAP_SHARED | MAP_ANONYMOUS; or \
                 transparent_hugepage/shmem_enabled = advise, and madvise(MADV_HUGEPAGE). {memory}"
            ),
            Made::Segment => format!(
                "shmget with SHM_HUGETLB; or transparent_hugepage/shmem_enabled = advise, and \
                 madvise(MADV_HUGEPAGE). {memory}"
            ),
            Made::Descriptor => format!(
                "memfd_create with MFD_HUGETLB; for memfd_create without it \
                 transparent_hugepage/shmem_enabled = advise, for /dev/shm the mount option huge=advise, \
                 with madvise(MADV_HUGEPAGE). {memory}"
            ),
            Made::File => {
                "files have huge pages on tmpfs alone: fewer processes, or threads of one".to_owned()
            }
        }
    }

    /// Returns the range of addresses of its first mapping.
    pub fn range(&self) -> VirtRange {
        VirtRange::saturating_pages(self.start, self.pages, PAGE)
    }
}

/// Spaces that a set of objects has, by program.
pub fn spaces_by_program(objects: &[&SharedObject]) -> BTreeMap<usize, u64> {
    let mut sum = BTreeMap::new();
    let programs: HashSet<usize> = objects.iter().flat_map(|object| object.spaces.keys().copied()).collect();
    for program in programs {
        let most = objects.iter().filter_map(|object| object.spaces.get(&program)).max();
        sum.insert(program, most.copied().unwrap_or(0));
    }
    sum
}
