//! `ptarmigan inspect`: shows what a trace contains.
mod events;

use crate::error::Failure;
use crate::json::Document;
use crate::nearest;
use crate::print;
use indicatif::ProgressBar;
use ptarmigan_trace::{CloneKind, FaultFlags, KIND_NAMES, Kind, ReadError, Sampled, TraceFile, Unseen};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what a trace contains.
#[derive(clap::Args, Debug)]
pub struct InspectArgs {
    /// The trace: a file, the name of a shipped recording (compile, configure, rustc, fixture), or -
    /// for standard input.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print the events, one a line: number, milliseconds, CPU, task, kind, fields. Addresses are
    /// page numbers.
    #[arg(long, conflicts_with = "json", help_heading = "Events")]
    events: bool,
    /// Only events of these tasks.
    #[arg(long, value_delimiter = ',', value_name = "N,...", requires = "events", help_heading = "Events")]
    task: Vec<u32>,
    /// Only events of these kinds, for example fault,mmap,truth.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "KIND,...",
        requires = "events",
        help_heading = "Events"
    )]
    kind: Vec<String>,
}

/// The contents of a trace, as numbers of events unless a field says otherwise.
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
    /// Number of events.
    pub events: u64,
    /// Events by kind.
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
    /// Faults by cause.
    pub faults: FaultStats,
    /// Whether the recording tells reads, writes, fetches and present pages apart. If not, all
    /// faults count as reads.
    pub access_seen: bool,
    /// `madvise` calls by advice, in Linux's numbering.
    pub advice: BTreeMap<u16, u64>,
    /// Address spaces with at least one fault.
    pub spaces: u64,
    /// Mean number of distinct regions with a fault, per address space.
    pub touched: TouchedRegions,
    /// Samples of `VmPTE`.
    pub samples: VmPteStats,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Bytes of the file per event.
    pub bytes_per_event: f64,
    /// Bytes per event before compression.
    pub row_bytes_per_event: f64,
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
    /// the two differ.
    pub equal_to_regions: u64,
}

/// The regions of an address space that had a fault, by level.
#[derive(Default)]
struct Regions([HashSet<u64>; 4]);

impl Regions {
    fn touch(&mut self, page: u64) {
        // Most faults hit a page near the previous one: then one lookup is enough.
        if !self.0[0].insert(page) {
            return;
        }
        for level in 1..4 {
            if !self.0[level].insert(page >> (9 * level)) {
                return;
            }
        }
    }

    fn tables(&self) -> usize {
        self.0[1..].iter().map(HashSet::len).sum()
    }
}

/// Prints what a trace contains.
///
/// # Errors
/// If the file cannot be read or is not a complete trace.
pub fn run(args: &InspectArgs) -> Result<ExitCode, Failure> {
    if args.events {
        return print_events(args).map(|()| ExitCode::SUCCESS);
    }
    let report = report(&args.file).map_err(|e| Failure::new(format!("{}: {e}", args.file.display())))?;
    if args.json {
        print::stdout(&Document::new(&report).pretty()?)?;
    } else {
        print::report(&table(&report))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the events that the options choose.
fn print_events(args: &InspectArgs) -> Result<(), Failure> {
    let problem = |e: ReadError| Failure::new(format!("{}: {e}", args.file.display()));
    if let Some(unknown) = args.kind.iter().find(|kind| !events::NAMES.contains(&kind.as_str())) {
        let (hint, known) = (nearest::hint(unknown, &events::NAMES), events::NAMES.join(", "));
        return Err(Failure::new(format!("{unknown}: no kind of event{hint}; known are {known}")));
    }
    let file = crate::input::open(&args.file).map_err(problem)?;
    let mut reader = file.events().map_err(problem)?;
    let mut text = String::new();
    let mut number = 0;
    while let Some(event) = reader.next() {
        let event = event.map_err(problem)?;
        let wanted = (args.task.is_empty() || args.task.contains(&event.task))
            && (args.kind.is_empty() || args.kind.iter().any(|kind| kind == events::kind_name(&event.kind)));
        if wanted {
            let time = (reader.header().version() > 1).then(|| reader.time());
            // A `String` takes everything.
            let _ = writeln!(text, "{}", events::Line { number, time, event });
        }
        if text.len() >= 1 << 16 {
            print::stdout(&text)?;
            text.clear();
        }
        number += 1;
    }
    print::stdout(&text)
}

/// Reads a trace and counts its events.
///
/// # Errors
/// If the file cannot be read or is not a complete trace.
pub fn report(path: &Path) -> Result<Inspection, ReadError> {
    let file = crate::input::open(path)?;
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
        by_kind: KIND_NAMES.iter().zip(summary.by_kind).map(|(name, n)| (*name, n)).collect(),
        lost: summary.lost,
        tasks: summary.tasks,
        processes: 1,
        bytes,
        ..Inspection::default()
    };
    let progress = crate::bar::bar(summary.events, "reading");
    count(file, &mut r, &progress)?;
    progress.finish_and_clear();
    let per_event = |n: u64| n as f64 / summary.events.max(1) as f64;
    r.bytes_per_event = per_event(bytes);
    r.row_bytes_per_event = per_event(summary.row_bytes);
    Ok(r)
}

/// Counts the events. Follows which task uses which address space as far as the counts need it.
fn count(file: TraceFile, r: &mut Inspection, progress: &ProgressBar) -> Result<(), ReadError> {
    let mut space_of: HashMap<u32, u64> = HashMap::from([(0, 0)]);
    let mut users: HashMap<u64, u32> = HashMap::from([(0, 1)]);
    let mut regions: HashMap<u64, Regions> = HashMap::new();
    let mut sums = [0u64; 4];
    let mut sampled = 0u64;
    let mut next = 1;
    let mut close = |r: &mut Inspection, regions: Option<Regions>| {
        if let Some(done) = regions {
            r.spaces += 1;
            for (sum, set) in sums.iter_mut().zip(&done.0) {
                *sum += set.len() as u64;
            }
        }
    };
    for (n, e) in file.events()?.enumerate() {
        let e = e?;
        if n % (1 << 16) == 0 {
            progress.set_position(n as u64);
        }
        let space = space_of.get(&e.task).copied().unwrap_or(0);
        match e.kind {
            Kind::Fault { page, flags } => {
                regions.entry(space).or_default().touch(page);
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
                    close(r, regions.remove(&space));
                }
                if matches!(e.kind, Kind::Exec { .. }) {
                    r.execs += 1;
                    space_of.insert(e.task, next);
                    users.insert(next, 1);
                    next += 1;
                } else {
                    space_of.remove(&e.task);
                }
            }
            Kind::Madvise { advice, .. } => *r.advice.entry(advice).or_default() += 1,
            Kind::Truth { tables, at } => {
                match at {
                    Sampled::Exit => r.samples.exit += 1,
                    Sampled::Exec => r.samples.exec += 1,
                }
                sampled += u64::from(tables);
                r.samples.max = r.samples.max.max(tables);
                let equal = regions.get(&space).map_or(0, Regions::tables) == tables as usize;
                r.samples.equal_to_regions += u64::from(equal);
            }
            _ => {}
        }
    }
    for (_, rest) in regions.drain() {
        close(r, Some(rest));
    }
    let mean = |sum: u64| sum as f64 / r.spaces.max(1) as f64;
    r.touched = TouchedRegions {
        pages: mean(sums[0]),
        pte_regions: mean(sums[1]),
        pmd_regions: mean(sums[2]),
        pud_regions: mean(sums[3]),
    };
    r.samples.mean = sampled as f64 / (r.samples.exit + r.samples.exec).max(1) as f64;
    Ok(())
}

/// Formats the report as text, at most 80 columns wide.
fn table(r: &Inspection) -> String {
    let mut t = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(t, "{key:<12} {value}");
    };
    line("name", r.name.clone());
    line(
        "recorded",
        format!("with {} on {}, {} CPUs, pages of {} bytes", r.method, r.arch, r.cpus, r.page_bytes),
    );
    for (i, what) in r.unseen.iter().enumerate() {
        line(if i == 0 { "not seen" } else { "" }, (*what).to_owned());
    }
    line("tasks", format!("{} ({} processes, {} threads)", r.tasks, r.processes, r.threads));
    line("", format!("{} forks, {} vforks, {} execs", r.forks, r.vforks, r.execs));
    let f = &r.faults;
    line("faults", format!("{} ({} user, {} kernel)", f.user + f.kernel, f.user, f.kernel));
    if r.access_seen {
        line(
            "",
            format!("{} read, {} write, {} fetch; {} on present pages", f.read, f.write, f.exec, f.present),
        );
    }
    line("touched", format!("in each of {} address spaces, mean:", r.spaces));
    let s = &r.touched;
    line(
        "",
        format!(
            "{:.1} pages, {:.2} x 2 MiB, {:.2} x 1 GiB, {:.2} x 512 GiB",
            s.pages, s.pte_regions, s.pmd_regions, s.pud_regions
        ),
    );
    let s = &r.samples;
    line("VmPTE", format!("{} samples at exit, {} before exec", s.exit, s.exec));
    line("", format!("mean {:.2} tables, max {}", s.mean, s.max));
    line("", format!("{} equal to the number of regions touched", s.equal_to_regions));
    line("events", format!("{}, lost {}", r.events, r.lost));
    let kinds: Vec<_> = r.by_kind.iter().filter(|(_, n)| **n > 0).collect();
    for row in kinds.chunks(3) {
        let cells: Vec<String> = row.iter().map(|(name, n)| format!("{name:<9} {n}")).collect();
        line("", cells.iter().map(|c| format!("{c:<21}")).collect::<String>().trim_end().to_owned());
    }
    if !r.advice.is_empty() {
        let advice: Vec<String> = r.advice.iter().map(|(a, n)| format!("{} {n}", advice_name(*a))).collect();
        line("madvise", advice.join(", "));
    }
    line(
        "file",
        format!(
            "{} bytes, {:.3} per event ({:.2} before compression)",
            r.bytes, r.bytes_per_event, r.row_bytes_per_event
        ),
    );
    t
}

fn advice_name(advice: u16) -> String {
    let names = [
        (0, "normal"),
        (1, "random"),
        (2, "sequential"),
        (3, "willneed"),
        (4, "dontneed"),
        (8, "free"),
        (14, "hugepage"),
        (15, "nohugepage"),
        (16, "dontdump"),
        (18, "wipeonfork"),
        (20, "cold"),
        (21, "pageout"),
        (22, "populate"),
        (23, "populate-write"),
        (25, "collapse"),
    ];
    names
        .iter()
        .find(|(a, _)| *a == advice)
        .map_or_else(|| format!("advice-{advice}"), |(_, n)| (*n).to_owned())
}
