//! Counts the contents of a trace.
use super::machine::{UnreadPrograms, as_map};
use foldhash::{HashMap, HashMapExt, HashSet};
use ptarmigan_replay::account::{Account, Programs, TimesReport};
use ptarmigan_replay::flushes::{FlushSurvey, LinuxFlushes};
use ptarmigan_replay::{Work, WorkSurvey, files};
use ptarmigan_term::bar::ProgressBar;
use ptarmigan_trace::{
    CloneKind, FaultFlags, Kind, Note, Opening, Openings, ReadError, Sampled, Settings, TraceFile, Unseen,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The contents of a trace, as numbers of events unless a field says otherwise. Events that give
/// the state of processes which ran before the recording ([`Openings`]) are in `events`, `tasks`,
/// `processes`, `threads` and `running` only.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// Name of the workload.
    pub name: String,
    /// Recording method.
    pub method: &'static str,
    /// Kinds of events that the method does not record.
    pub unseen: Vec<&'static str>,
    /// Architecture of the recorded machine.
    pub arch: &'static str,
    /// Bytes per page.
    pub page_bytes: u64,
    /// CPUs of the recorded machine.
    pub cpus: u16,
    /// Settings of that machine.
    #[serde(serialize_with = "as_map")]
    pub settings: Settings,
    /// Number of events.
    pub events: u64,
    /// Events by kind, with the names that `--kind` takes.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// Events that the kernel dropped for lack of buffer space.
    pub lost: u64,
    /// Number of tasks, the first included.
    pub tasks: u32,
    /// Number of tasks that are processes, not threads.
    pub processes: u64,
    /// Number of forks: children with a copy of the address space.
    pub forks: u64,
    /// Number of vforks: children that borrow the address space.
    pub vforks: u64,
    /// Number of threads: children that share the address space.
    pub threads: u64,
    /// Number of programs started.
    pub execs: u64,
    /// Processes that ran before the recording.
    pub running: Running,
    /// How many of the programs that ran are in the recording.
    pub programs: Programs,
    /// The others, as far as the recording names them.
    pub unread: Vec<UnreadPrograms>,
    /// Faults by cause.
    pub faults: FaultStats,
    /// Whether the recording tells reads, writes, fetches and present pages apart. If not, all
    /// faults count as reads.
    pub access_seen: bool,
    /// `madvise` calls by advice, in Linux's numbering.
    pub advice: BTreeMap<u16, u64>,
    /// Pages found at stops.
    pub at_stops: PagesAtStops,
    /// Address spaces with at least one fault.
    pub spaces: u64,
    /// Mean number of distinct regions with a fault, per address space. `None` if the trace has
    /// faults on too many pages to remember them.
    pub touched: Option<TouchedRegions>,
    /// Samples of `VmPTE`.
    pub samples: VmPteStats,
    /// Times of calls and processes. `None` if the recording has none.
    pub times: Option<TimesReport>,
    /// Linux's flushes and requests between CPUs. `None` if they were not recorded.
    pub flushes: Option<LinuxFlushes>,
    /// The work by mapping and by function.
    #[serde(flatten)]
    pub work: Work,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Bytes of the file per event.
    pub bytes_per_event: f64,
    /// Bytes per event before compression.
    pub row_bytes_per_event: f64,
}

/// Processes that ran before the recording.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Running {
    /// Processes.
    pub processes: u64,
    /// Further threads of theirs.
    pub threads: u64,
    /// Programs that they started, which were read later than they began.
    pub read_later: u64,
    /// Samples of `VmPTE` that belong to their state.
    pub samples: u64,
    /// All events that give the state of these processes and programs.
    pub events: u64,
}

/// Faults by cause.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FaultStats {
    /// From user mode.
    pub user: u64,
    /// From the kernel, on a user address.
    pub kernel: u64,
    /// Data reads.
    pub read: u64,
    /// Data writes.
    pub write: u64,
    /// Instruction fetches.
    pub exec: u64,
    /// On present pages: protection faults, mostly copy-on-write.
    pub present: u64,
}

/// Pages that were found present at stops: no event says how they came.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct PagesAtStops {
    /// Runs of such pages.
    pub runs: u64,
    /// Pages.
    pub pages: u64,
}

/// Means per address space.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct TouchedRegions {
    /// Pages.
    pub pages: f64,
    /// Regions of one last-level table (2 MiB with 4 KiB pages).
    pub pte_regions: f64,
    /// Regions of one table of the next level (1 GiB).
    pub pmd_regions: f64,
    /// Regions of one table of the level above (512 GiB).
    pub pud_regions: f64,
}

/// Samples of `VmPTE`, Linux's count of page-table pages without the root.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct VmPteStats {
    /// Samples taken at exits.
    pub exit: u64,
    /// Samples taken before execs.
    pub exec: u64,
    /// Mean count.
    pub mean: f64,
    /// Highest count.
    pub max: u32,
    /// Samples equal to the number of regions (of all three sizes) with a fault in that address
    /// space. This checks a recording without a replay. Unmapping, and tables copied by fork, make
    /// the two differ. `None` where `touched` is.
    pub equal_to_regions: Option<u64>,
}

/// The name of the events that make tasks.
const CLONE: &str = "clone";

/// The most regions that are remembered: at most 2 GiB of memory.
const MOST_REGIONS: u64 = 1 << 26;

/// The regions of an address space that had a fault, by level.
#[derive(Default)]
struct Regions([HashSet<u64>; 4]);

impl Regions {
    /// Adds a page. Returns how many regions had no fault before.
    fn touch(&mut self, page: u64) -> u64 {
        // Most faults hit a page near the previous one: then one lookup is enough.
        (0..4).take_while(|&level| self.0[level].insert(page >> (9 * level))).count() as u64
    }

    fn tables(&self) -> usize {
        self.0[1..].iter().map(HashSet::len).sum()
    }
}

/// Reads a trace and counts its events.
///
/// # Errors
/// If the file cannot be read or is not a complete trace.
pub fn report(path: &Path) -> Result<Inspection, ReadError> {
    let file = files::open(path)?;
    let (header, summary, bytes) = (file.header().clone(), *file.summary(), file.bytes());
    let mut r = Inspection {
        name: header.name().to_owned(),
        method: header.method.name(),
        unseen: header.unseen.names(),
        access_seen: !header.unseen.has(Unseen::FAULT_ACCESS),
        arch: header.arch.name(),
        page_bytes: 1 << header.page_shift,
        cpus: header.cpus,
        events: summary.events,
        by_kind: Kind::names().map(|name| (name, 0)).collect(),
        lost: summary.lost,
        tasks: summary.tasks,
        processes: 1,
        bytes,
        ..Inspection::default()
    };
    let progress = ptarmigan_term::bar::bar(summary.events, "reading");
    count(file, &mut r, &progress)?;
    progress.finish_and_clear();
    let per_event = |n: u64| n as f64 / summary.events.max(1) as f64;
    r.bytes_per_event = per_event(bytes);
    r.row_bytes_per_event = per_event(summary.row_bytes);
    Ok(r)
}

/// Counts the events. Follows which task uses which address space as far as the counts need it.
fn count(file: TraceFile, r: &mut Inspection, progress: &ProgressBar) -> Result<(), ReadError> {
    let mut space_of: HashMap<u32, u64> = HashMap::from_iter([(0, 0)]);
    let mut users: HashMap<u64, u32> = HashMap::from_iter([(0, 1)]);
    let mut regions: HashMap<u64, Regions> = HashMap::new();
    let mut sums = [0u64; 4];
    let mut sampled = 0u64;
    let (mut remembered, mut too_many, mut equal) = (0, false, 0);
    let mut next = 1;
    // Returns how many regions are forgotten.
    let mut close = |r: &mut Inspection, regions: Option<Regions>| {
        let Some(done) = regions else { return 0 };
        r.spaces += 1;
        for (sum, set) in sums.iter_mut().zip(&done.0) {
            *sum += set.len() as u64;
        }
        done.0.iter().map(HashSet::len).sum::<usize>() as u64
    };
    let (mut account, mut survey) = (Account::new(), WorkSurvey::default());
    let flushes_seen = !file.header().unseen.has(Unseen::TLB_FLUSHES);
    let mut flushes = flushes_seen.then(FlushSurvey::default);
    let mut openings = Openings::default();
    let (unseen, unrecorded) = (file.header().unseen, file.summary().unrecorded);
    let mut unread = BTreeMap::new();
    let mut events = file.events()?;
    let mut n = 0u64;
    while let Some(e) = events.next() {
        let e = e?;
        account.add(&e, events.time());
        survey.see(&e);
        if let Some(flushes) = &mut flushes {
            flushes.see(&e);
        }
        n += 1;
        if n.is_multiple_of(1 << 16) {
            progress.set_position(n);
        }
        let opening = openings.see(&e);
        if let Some(Opening::Process { maker: Some(_) }) = opening {
            // The event before this one made the process, and did not happen.
            r.vforks -= 1;
            *r.by_kind.entry(CLONE).or_default() -= 1;
        }
        if opening.is_none() {
            *r.by_kind.entry(e.kind.name()).or_default() += 1;
        }
        let happened = u64::from(opening.is_none());
        let space = space_of.get(&e.task).copied().unwrap_or(0);
        match e.kind {
            Kind::Fault { page, flags } => {
                if remembered < MOST_REGIONS {
                    remembered += regions.entry(space).or_default().touch(page);
                } else {
                    too_many = true;
                }
                let has = |bit| u64::from(flags.0 & bit != 0);
                r.faults.user += has(FaultFlags::USER);
                r.faults.kernel += 1 - has(FaultFlags::USER);
                r.faults.present += has(FaultFlags::PRESENT);
                r.faults.write += has(FaultFlags::WRITE);
                r.faults.exec += has(FaultFlags::EXEC);
                r.faults.read += u64::from(flags.0 & (FaultFlags::WRITE | FaultFlags::EXEC) == 0);
            }
            Kind::Clone { child, kind } => {
                let of = match kind {
                    CloneKind::Fork => {
                        r.forks += 1;
                        next += 1;
                        next - 1
                    }
                    CloneKind::Vfork => {
                        r.vforks += 1;
                        space
                    }
                    CloneKind::Share => {
                        r.threads += 1;
                        space
                    }
                };
                r.processes += u64::from(kind != CloneKind::Share);
                space_of.insert(child, of);
                *users.entry(of).or_default() += 1;
            }
            Kind::Exec { .. } | Kind::Exit { .. } => {
                let left = users.get_mut(&space).map_or(0, |n| {
                    *n = n.saturating_sub(1);
                    *n
                });
                if left == 0 {
                    users.remove(&space);
                    remembered -= close(r, regions.remove(&space));
                }
                if matches!(e.kind, Kind::Exec { .. }) {
                    r.execs += happened;
                    space_of.insert(e.task, next);
                    users.insert(next, 1);
                    next += 1;
                } else {
                    space_of.remove(&e.task);
                }
            }
            Kind::Madvise { advice, .. } if opening.is_none() => *r.advice.entry(advice).or_default() += 1,
            Kind::Truth { tables, at } => {
                match at {
                    Sampled::Exit => r.samples.exit += happened,
                    Sampled::Exec => r.samples.exec += happened,
                }
                sampled += u64::from(tables);
                r.samples.max = r.samples.max.max(tables);
                let known = regions.get(&space).map_or(0, Regions::tables);
                equal += u64::from(known == tables as usize);
            }
            Kind::Note(Note::Unread { name, why }) => {
                let name = name.map(|name| events.symbols().text(name).to_owned());
                *unread.entry((name, why)).or_default() += 1;
            }
            Kind::Touched { pages, flags, .. } if opening.is_none() && flags.0 & FaultFlags::USER == 0 => {
                r.at_stops.runs += 1;
                r.at_stops.pages = r.at_stops.pages.saturating_add(pages);
            }
            _ => {}
        }
    }
    r.times = account.report();
    r.flushes = flushes.map(FlushSurvey::finish);
    r.programs = account.coverage(unseen, unrecorded);
    r.unread = UnreadPrograms::most_first(unread);
    r.settings = events.settings().clone();
    for (_, rest) in regions.drain() {
        close(r, Some(rest));
    }
    r.work = survey.finish(events.symbols());
    let mean = |sum: u64| sum as f64 / r.spaces.max(1) as f64;
    let touched = TouchedRegions {
        pages: mean(sums[0]),
        pte_regions: mean(sums[1]),
        pmd_regions: mean(sums[2]),
        pud_regions: mean(sums[3]),
    };
    (r.touched, r.samples.equal_to_regions) = ((!too_many).then_some(touched), (!too_many).then_some(equal));
    let of = openings.counts();
    r.running = Running {
        processes: of.processes,
        threads: of.threads,
        read_later: of.programs,
        samples: of.samples,
        events: of.events,
    };
    r.samples.mean = sampled as f64 / (r.samples.exit + r.samples.exec + of.samples).max(1) as f64;
    Ok(())
}
