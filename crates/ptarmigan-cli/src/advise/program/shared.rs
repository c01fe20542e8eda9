//! Shared memory that many processes map: each of them fills leaf tables of its own for it.
//!
//! An *object* is memory that one `mmap` has made shared. Children of a fork map the same object.
//! Other mappings show the same object if they have the same name in the recording, or, without
//! names, the same place and length. Files are left out: they have no huge pages, except on tmpfs.
//!
//! With huge pages of hugetlb or shmem an entry of an upper level maps 2 MiB. Linux keeps no leaf
//! table in reserve there. The first fault of each region in each space stays.
use super::edit::Edit;
use super::seen::{Finder, Happens, PAGE, REGION, RegionPages, Seen};
use crate::advise::facts::{Facts, Mapping};
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::{PackedKind, Trace, When};
use ptarmigan_trace::{FaultFlags, Kind, MapFlags, Object};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The fewest pages of an object that may have huge pages.
const LEAST: u64 = 2 * REGION;

/// How an object was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Made {
    /// Shared anonymous memory.
    Anonymous,
    /// A System V segment.
    Segment,
    /// Memory with a descriptor: `memfd_create`, `/dev/shm`.
    Descriptor,
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
    /// The pages of it that spaces touched, by region.
    pub touched: HashMap<u64, RegionPages>,
    now: u64,
}

/// A part of a space that shows an object.
#[derive(Clone, Copy)]
struct Shown {
    start: u64,
    end: u64,
    object: usize,
}

/// The objects of a recording.
pub struct SharedMappings<'f> {
    facts: &'f Facts,
    /// All objects.
    pub objects: Vec<SharedObject>,
    shown: HashMap<u32, Vec<Shown>>,
    /// Objects by the name or the place of their mapping.
    known: HashMap<(Option<String>, u64, u64), usize>,
    /// The regions of each space that have a table for an object.
    regions: HashMap<u32, BTreeMap<u64, usize>>,
    /// Events that make a table for an object, and all other faults on objects.
    firsts: HashMap<u32, usize>,
    others: HashMap<u32, usize>,
    /// Events that touch pages of objects without a fault.
    found: HashMap<u32, usize>,
}

impl<'f> SharedMappings<'f> {
    /// Begins.
    pub fn new(facts: &'f Facts) -> Self {
        SharedMappings {
            facts,
            objects: Vec::new(),
            shown: HashMap::new(),
            known: HashMap::new(),
            regions: HashMap::new(),
            firsts: HashMap::new(),
            others: HashMap::new(),
            found: HashMap::new(),
        }
    }

    fn map(&mut self, seen: &Seen<'_>, start: u64, pages: u64, flags: MapFlags) {
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
            _ => return,
        };
        let name = noted.and_then(|noted| noted.name.clone());
        let key = match (made, &name) {
            (Made::Descriptor, Some(name)) => Some((Some(name.clone()), 0, pages)),
            (Made::Descriptor | Made::Segment, None) => Some((None, start, pages)),
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
        self.shown.entry(seen.space).or_default().push(Shown { start, end: start + pages, object });
    }

    fn unmap(&mut self, seen: &Seen<'_>, start: u64, pages: u64) {
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
        let gone = self.regions.get_mut(&seen.space).map(|regions| {
            let within = regions.range(start.div_ceil(REGION)..(end / REGION).max(start.div_ceil(REGION)));
            let gone: Vec<u64> = within.map(|(region, _)| *region).collect();
            gone.into_iter().filter_map(|region| regions.remove(&region)).collect::<Vec<_>>()
        });
        for object in gone.unwrap_or_default() {
            self.objects[object].now -= 1;
        }
    }

    fn object(&self, space: u32, page: u64) -> Option<Shown> {
        self.shown.get(&space)?.iter().copied().find(|part| (part.start..part.end).contains(&page))
    }

    fn fault(&mut self, seen: &Seen<'_>, page: u64) {
        let Some((shown, first)) = self.touch(seen, page) else { return };
        self.objects[shown].faults += 1;
        if first { &mut self.firsts } else { &mut self.others }.insert(seen.event, shown);
    }

    /// Notes a page of an object that a space has. Returns the object, and whether the space has
    /// made a table for it.
    fn touch(&mut self, seen: &Seen<'_>, page: u64) -> Option<(usize, bool)> {
        let shown = self.object(seen.space, page)?;
        let region = page / REGION;
        // A huge page needs all of its 2 MiB.
        if region * REGION < shown.start || (region + 1) * REGION > shown.end {
            return None;
        }
        let regions = self.regions.entry(seen.space).or_default();
        let first = regions.insert(region, shown.object).is_none();
        let program = self.facts.program(seen.program);
        let new = regions.values().filter(|object| **object == shown.object).take(2).count() == 1 && first;
        let object = &mut self.objects[shown.object];
        object.touched.entry(region).or_default().add(page);
        if first {
            object.tables += 1;
            object.now += 1;
            object.tables_peak = object.tables_peak.max(object.now);
            *object.spaces.entry(program).or_default() += u64::from(new);
        }
        Some((shown.object, first))
    }
}

impl Finder for SharedMappings<'_> {
    fn see(&mut self, seen: &Seen<'_>) {
        match (seen.what, seen.when) {
            (Happens::Fault { page, flags }, When::Before) if flags.0 & FaultFlags::REFUSED == 0 => {
                self.fault(seen, page);
            }
            (Happens::Call(Kind::Mmap { start, pages, flags, .. }), When::After) => {
                self.map(seen, start, pages, flags);
            }
            (Happens::Call(Kind::Touched { start, pages, .. }), When::After) => {
                for page in start..start + pages {
                    if let Some((object, _)) = self.touch(seen, page) {
                        self.found.insert(seen.event, object);
                    }
                }
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
                for object in self.regions.remove(&seen.space).unwrap_or_default().into_values() {
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
        let several = |object: &SharedObject| object.spaces.values().sum::<u64>() > 1 && object.tables >= 8;
        (0..self.objects.len()).filter(|at| several(&self.objects[*at])).collect()
    }

    /// Returns the recording with huge pages for some objects, and how many faults of it are calls
    /// there: the first ones of each region.
    pub fn rewrite(&self, trace: &Trace, chosen: &BTreeSet<usize>) -> (Trace, u64) {
        let is = |events: &HashMap<u32, usize>, event: u32| {
            events.get(&event).is_some_and(|object| chosen.contains(object))
        };
        let mut edit = Edit::of(trace);
        let mut kept = 0;
        for (step, event) in trace.steps.iter().zip(0_u32..) {
            match step.what {
                PackedKind::Fault { .. } if is(&self.others, event) => {}
                PackedKind::Fault { page, .. } if is(&self.firsts, event) => {
                    kept += 1;
                    let (start, flags) = (page / REGION * REGION, FaultFlags(FaultFlags::HUGE));
                    edit.call(step, Kind::Touched { start, pages: REGION, flags });
                }
                PackedKind::Rare(_) if is(&self.found, event) => {
                    if let Some(Kind::Touched { start, pages, .. }) = edit.kind(step) {
                        let (first, end) = (start / REGION, (start + pages).div_ceil(REGION));
                        let (start, pages) = (first * REGION, (end - first) * REGION);
                        edit.call(step, Kind::Touched { start, pages, flags: FaultFlags(FaultFlags::HUGE) });
                    }
                }
                _ => edit.keep(step),
            }
        }
        (edit.finish(), kept)
    }
}

impl SharedObject {
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
        }
    }

    /// Returns the range of addresses of its first mapping.
    pub fn range(&self) -> VirtRange {
        VirtRange { start: self.start << PAGE, end: (self.start + self.pages) << PAGE }
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
