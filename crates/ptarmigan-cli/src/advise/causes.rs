//! Lists the causes of a recording's page-table work: faults, calls, forks and exits by program,
//! with counts, times, functions and mappings.
//!
//! # Why
//!
//! A finder without a find does not know the program. So where no advice was found, the
//! report names the largest causes, and something to try. Advice about a small cause is no
//! help either while a larger one has no advice: see `rank`.
//!
//! # Times
//!
//! Calls have recorded times. Faults have the rest of the CPU time in the kernel, shared out by
//! program, but at most [`Times::faults_at_most`]: other system calls are in the rest as well.
use super::facts::Facts;
use super::program::switches;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use ptarmigan_replay::account::{ProgramTimes, Times};
use ptarmigan_replay::model::page_prices::PagePrices;
use ptarmigan_replay::{PackedKind, Tasks, Trace};
use ptarmigan_term::words::several;
use ptarmigan_term::{Count, Time};
use ptarmigan_trace::{Call, Cause, CloneKind, FaultFlags, Kind, Locking, Object, Runtime};
use serde::Serialize;
use std::collections::BTreeMap;

/// Seconds from which on the longest call is told.
const LONG: f64 = 0.001;
/// The part of the CPU time below which nothing would help, and of all causes below which one is
/// not told.
const LITTLE: f64 = 0.01;
/// The part of the processes that must have a known CPU time for that.
const KNOWN: f64 = 0.9;
/// The causes that are told.
const TOLD: usize = 3;
/// Seconds by which a fault is ranked if no time is known.
pub const NOMINAL: f64 = 1e-6;
/// Pages that one region of the count of faults has.
const REGION: u64 = 512;
/// Starts of a program from which on they are its work.
const MANY_STARTS: u64 = 16;
/// The most faults of a child that hardly does anything.
const FEW: u64 = 512;

/// A cause of page-table work.
#[derive(Clone, Debug, Serialize)]
pub struct WorkCause {
    /// `fault`, or the name of the call.
    pub kind: &'static str,
    /// The program.
    pub program: String,
    /// How often.
    pub count: u64,
    /// Seconds of CPU time, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The mapping with most of the faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<String>,
    /// The function with most of it, and its part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Seconds of the longest call by the clock, if it took a millisecond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_clock_seconds: Option<f64>,
    /// Pages that faults copied, of [`count`](Self::count).
    #[serde(skip_serializing_if = "is_zero")]
    pub copies: u64,
    /// Forks whose child starts no program and has few faults.
    #[serde(skip_serializing_if = "is_zero")]
    pub only_end: u64,
    /// Pages that a call changed, on average.
    #[serde(skip_serializing_if = "is_zero")]
    pub pages_each: u64,
    /// Something to try.
    pub attempt: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl WorkCause {
    /// Returns it as a sentence.
    pub fn sentence(&self) -> String {
        let noun = match self.kind {
            "clone" => several(self.count, "thread"),
            noun @ ("fault" | "fork" | "exit" | "execve") => several(self.count, noun),
            call => format!("{} {call}", Count(self.count)),
        };
        let mut text = format!("{noun} of {}", self.program);
        if let Some(seconds) = self.seconds {
            let about = if self.kind == "fault" { "about " } else { "" };
            text += &format!(", {about}{}", Time::from_secs(seconds));
        }
        let mut more = Vec::new();
        if self.copies > 0 {
            more.push(format!("{} copy a page", Count(self.copies)));
        }
        if self.only_end > 0 {
            more.push(format!("the children of {} start no program", Count(self.only_end)));
        }
        if self.pages_each > 1 {
            more.push(format!("{} each", several(self.pages_each, "page")));
        }
        if let Some(longest) = self.longest_clock_seconds {
            more.push(format!("the longest by the clock {}", Time::from_secs(longest)));
        }
        if let Some(mapping) = &self.mapping {
            more.push(format!("most in {mapping}"));
        }
        if let Some(function) = &self.function {
            more.push(format!("by {function}"));
        }
        if !more.is_empty() {
            text += &format!(" ({})", more.join("; "));
        }
        format!("{text}. Try: {}.", self.attempt)
    }

    /// Returns the seconds by which it is ranked.
    fn weight(&self) -> f64 {
        let unknown = if self.kind == "fault" { self.count as f64 * NOMINAL } else { 0.0 };
        self.seconds.unwrap_or(unknown)
    }
}

/// The causes of a recording.
#[derive(Default)]
pub struct Causes {
    /// All of them, the largest first.
    pub all: Vec<WorkCause>,
    /// Page tables take less than a hundredth of the CPU time, which is known of nearly all
    /// processes.
    pub hardly_any: bool,
    /// Seconds of all faults, if they are known.
    pub fault_seconds: Option<f64>,
    /// Whether calls were timed.
    pub timed: bool,
}

/// The counts of one program.
#[derive(Default)]
struct Counts {
    faults: u64,
    copies: u64,
    calls: BTreeMap<Call, u64>,
    /// Pages that calls of `mprotect` change.
    protected: u64,
    /// `mlockall` fills each later mapping at once.
    fills: bool,
    /// Children that start no program and have few faults.
    only_end: u64,
    /// Faults by number of the program and region.
    regions: HashMap<(u32, u64), u64>,
}

/// Counts by program, as an index of [`Facts::programs`].
fn counts(trace: &Trace, facts: &Facts) -> Vec<Counts> {
    let mut counts: Vec<Counts> = facts.programs.iter().map(|_| Counts::default()).collect();
    let mut tasks = Tasks::new(trace);
    let mut last = vec![0_u32; trace.tasks as usize];
    // Children of forks that have not started a program: the program of their parent, and faults.
    let mut waiting: HashMap<u32, (usize, u64)> = HashMap::new();
    // Tasks that made a process or a thread.
    let mut makers: HashSet<u32> = HashSet::new();
    for step in &trace.steps {
        let number = tasks.step(trace, step).unwrap_or(last[step.task as usize]);
        last[step.task as usize] = number;
        let program = facts.program(number);
        let of = &mut counts[program];
        match step.what {
            PackedKind::Fault { page, flags } => {
                let copy = FaultFlags::WRITE | FaultFlags::PRESENT;
                of.faults += 1;
                of.copies += u64::from(flags.0 & (copy | FaultFlags::REFUSED) == copy);
                *of.regions.entry((number, page / REGION)).or_default() += 1;
                if let Some((_, faults)) = waiting.get_mut(&step.task) {
                    *faults += 1;
                }
            }
            PackedKind::Rare(rare) => {
                let kind = trace.rare[rare as usize];
                match kind {
                    Kind::Clone { child, kind } => {
                        last[child as usize] = number;
                        makers.insert(step.task);
                        if kind == CloneKind::Fork {
                            waiting.insert(child, (program, 0));
                        }
                    }
                    Kind::Exec { .. } => drop(waiting.remove(&step.task)),
                    Kind::Mprotect { pages, .. } => of.protected += pages,
                    Kind::LockAll { how } => {
                        of.fills |= how.0 & (Locking::FUTURE | Locking::ON_FAULT) == Locking::FUTURE;
                    }
                    _ => {}
                }
                // The time of a vfork is its child's, up to the execve.
                if let Some(call) = kind.call().filter(|call| *call != Call::Vfork) {
                    *of.calls.entry(call).or_default() += 1;
                }
                if let Kind::Exit { .. } = kind
                    && !makers.contains(&step.task)
                    && let Some((parent, ..=FEW)) = waiting.remove(&step.task)
                {
                    counts[parent].only_end += 1;
                }
            }
            PackedKind::Idle => {}
        }
    }
    counts
}

impl Causes {
    /// Lists the causes of a recording. `prices` of this host stand for faults without a time.
    pub fn of(trace: &Trace, facts: &Facts, prices: Option<&PagePrices>) -> Self {
        let total = trace.account.total();
        let of_faults = |times: &Times| times.faults_at_most().map(|micros| micros as f64 / 1e6);
        let by_price = |faults: u64| prices.map(|prices| faults as f64 * prices.middle.small.fresh / 1e9);
        let measured = of_faults(&total).filter(|_| total.is_measured());
        let mut all = Vec::new();
        for (index, counts) in counts(trace, facts).iter().enumerate() {
            let name = &facts.programs[index].name;
            let named = |program: &&ProgramTimes| program.name.as_ref().unwrap_or(&trace.name) == name;
            let times = trace.account.programs().find(named).map(|program| &program.times);
            if counts.faults > 0 {
                let own = times.filter(|times| times.is_measured()).and_then(of_faults);
                let shared = measured.map(|all| all * counts.faults as f64 / total.faults.max(1) as f64);
                let seconds = own.or(shared).or_else(|| by_price(counts.faults));
                all.push(cause_of_faults(trace, facts, index, counts, seconds));
            }
            let mallocs = switches::owner(&facts.programs[index].runtimes, false) == Some(Runtime::Glibc);
            for (&call, &count) in &counts.calls {
                let time = times.map(|times| times.call(call)).filter(|time| time.calls > 0);
                let longest = time.map(|time| time.longest_by_clock as f64 / 1e9).filter(|s| *s >= LONG);
                let pages = if call == Call::Mprotect { counts.protected / count.max(1) } else { 0 };
                let only_end = if call == Call::Fork { counts.only_end } else { 0 };
                all.push(WorkCause {
                    kind: call.name(),
                    program: name.clone(),
                    count,
                    seconds: time.map(|time| time.seconds()),
                    mapping: None,
                    function: function(trace, facts, index, Cause::Call(call)),
                    longest_clock_seconds: longest.filter(|_| call != Call::Exit),
                    copies: 0,
                    // Few of them do not tell the work of the program.
                    only_end: if only_end * 2 >= count { only_end } else { 0 },
                    pages_each: pages,
                    attempt: match call {
                        Call::Mmap | Call::Munmap | Call::Mprotect | Call::Brk if counts.fills => LOCKED,
                        _ => attempt(call, only_end * 2 >= count, pages, mallocs),
                    }
                    .to_owned(),
                });
            }
        }
        all.sort_by(|a, b| b.weight().total_cmp(&a.weight()).then_with(|| b.count.cmp(&a.count)));
        let fault_seconds = measured.or_else(|| by_price(total.faults));
        Causes { all, hardly_any: hardly_any(&total), fault_seconds, timed: facts.timed }
    }

    /// Returns the seconds of all causes of these kinds; 0 if they are not known.
    pub fn seconds(&self, kinds: &[&str]) -> f64 {
        let of = self.all.iter().filter(|cause| kinds.contains(&cause.kind));
        of.filter_map(|cause| cause.seconds).sum()
    }

    /// Returns the kind with most time beside these, all programs together, with its count and
    /// seconds. `None` if times are not known.
    pub fn largest_but(&self, kinds: &[&str]) -> Option<(&'static str, u64, f64)> {
        if !self.timed || self.fault_seconds.is_none() {
            return None;
        }
        let mut others: BTreeMap<&'static str, (u64, f64)> = BTreeMap::new();
        for cause in self.all.iter().filter(|cause| !kinds.contains(&cause.kind)) {
            let sum = others.entry(cause.kind).or_default();
            *sum = (sum.0 + cause.count, sum.1 + cause.seconds.unwrap_or(0.0));
        }
        let (kind, (count, seconds)) = others.into_iter().max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
        Some((kind, count, seconds))
    }

    /// Returns the causes that are told: the largest, and the one with the longest call by the
    /// clock.
    pub fn told(mut self) -> Vec<WorkCause> {
        let whole: f64 = self.all.iter().map(WorkCause::weight).sum();
        // Small causes are no help beside large ones.
        self.all.retain(|one| {
            let small = one.seconds.is_some_and(|seconds| seconds < whole * LITTLE);
            !small || one.longest_clock_seconds.is_some()
        });
        let rest = self.all.split_off(self.all.len().min(TOLD));
        let clock = |cause: &WorkCause| cause.longest_clock_seconds.unwrap_or(0.0);
        let longest = rest.into_iter().max_by(|a, b| clock(a).total_cmp(&clock(b)));
        let most = self.all.iter().map(clock).fold(0.0, f64::max);
        self.all.extend(longest.filter(|cause| clock(cause) > most));
        self.all
    }
}

/// Returns whether page tables take less than a hundredth of the CPU time of a recording, of which
/// nearly all is known.
fn hardly_any(total: &Times) -> bool {
    let known = total.ended as f64 >= total.processes as f64 * KNOWN && total.cpu() > 0;
    known && total.page_tables_at_most() as f64 <= total.cpu() as f64 * LITTLE
}

/// Returns the function with most of a program's work, with its part.
fn function(trace: &Trace, facts: &Facts, program: usize, cause: Cause) -> Option<String> {
    let (function, part) = facts.caller(program, cause, &trace.symbols)?;
    Some(format!("{function}, {}", super::figures::percent(part)))
}

fn cause_of_faults(
    trace: &Trace,
    facts: &Facts,
    program: usize,
    counts: &Counts,
    seconds: Option<f64>,
) -> WorkCause {
    let facts_of = &facts.programs[program];
    let mut mappings: BTreeMap<String, u64> = BTreeMap::new();
    for (&(number, region), n) in &counts.regions {
        let ends = [region * REGION, region * REGION + REGION - 1];
        let known = ends.iter().find_map(|page| facts.mapping(number, *page));
        *mappings.entry(known.unwrap_or_else(|| "anonymous memory".to_owned())).or_default() += n;
    }
    let mapping = mappings.into_iter().max_by_key(|(_, n)| *n).map(|(name, _)| name);
    let copying = counts.copies * 2 >= counts.faults;
    let python = facts_of.runtimes.contains(&Runtime::Python) || facts_of.name.starts_with("python");
    let in_a = |object: Object| mapping.as_deref().is_some_and(|name| name.starts_with(object.name()));
    let attempt = match (copying, python) {
        _ if counts.fills => LOCKED.to_owned(),
        (true, true) => {
            "gc.freeze() before the fork, so that the collector does not write to each object".to_owned()
        }
        (true, false) => {
            "write less to memory that a fork shares: after a fork the first write to a page copies it"
                .to_owned()
        }
        (false, _) if facts_of.starts >= MANY_STARTS => format!(
            "start it less often: each of {} makes {}; one process that does several jobs, or that loads \
             everything and forks for each",
            several(facts_of.starts, "start"),
            several(counts.faults / facts_of.starts, "fault")
        ),
        (false, _) if in_a(Object::File) => {
            "pread() and pwrite() instead of a mapping, or MAP_POPULATE: one call for many pages".to_owned()
        }
        (false, _) if in_a(Object::Program) || in_a(Object::Library) => {
            "write to fewer pages of its data: relocations write each pointer in constants (link with \
             -no-pie, or keep indices)"
                .to_owned()
        }
        (false, _) => {
            "keep memory and use it again instead of giving it back, touch less of it, or ask for huge \
                       pages where whole 2 MiB are used"
                .to_owned()
        }
    };
    WorkCause {
        kind: "fault",
        program: facts_of.name.clone(),
        count: counts.faults,
        seconds,
        mapping,
        function: function(trace, facts, program, Cause::Fault),
        longest_clock_seconds: None,
        copies: counts.copies,
        only_end: 0,
        pages_each: 0,
        attempt,
    }
}

/// Something to try where each mapping is filled.
const LOCKED: &str = "mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT), and smaller stacks and mappings: without \
                      MCL_ONFAULT each new mapping is filled whole";

/// Returns something to try about calls. `end`: most children start no program. `pages` are
/// the pages that a call changes on average. `mallocs`: glibc's `malloc` may map the memory.
fn attempt(call: Call, end: bool, pages: u64, mallocs: bool) -> &'static str {
    match call {
        Call::Fork if end => {
            "let one child do more, or do its work in the parent (in a shell: a builtin without $( ) or a \
             pipe, such as printf -v)"
        }
        Call::Fork => {
            "start programs by posix_spawn, fork from a smaller process, or keep children for more work"
        }
        Call::Clone => {
            "keep threads for more work (a pool); glibc keeps stacks: glibc.pthread.stack_cache_size"
        }
        Call::Exec => "start fewer programs, or let one process do the work of many",
        Call::Exit => "end fewer processes, and with less memory: an exit takes its pages one by one",
        Call::Mprotect if pages > 1 => "change only the pages that are written, or map the memory twice",
        Call::Mprotect => "change the permissions of more pages with one call, or less often",
        Call::Brk => {
            "GLIBC_TUNABLES=glibc.malloc.trim_threshold and top_pad, so that the heap changes rarely"
        }
        Call::Madvise => "give memory back later and in larger pieces: a longer decay of the allocator",
        Call::Lock => "lock memory once",
        _ if mallocs => "keep mappings and use them again: a pool, a larger glibc.malloc.mmap_threshold",
        _ => "keep mappings and use them again: a pool",
    }
}
