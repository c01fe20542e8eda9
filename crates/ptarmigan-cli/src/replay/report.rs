//! The report of a replay, as JSON and as text.
use super::input::trace::Trace;
use super::instruments::counters::Counters;
use super::instruments::levels::Levels;
use super::instruments::speed::{CopySpeedup, WorkerSpeedup};
use super::instruments::zero::ZeroReport;
use super::workers::outcome::{Outcome, Sample};
use ptarmigan::tlb::FlushCounts;
use ptarmigan_trace::Sampled;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One trace on all policies.
#[derive(Serialize)]
pub struct ReplayReport {
    trace: TraceReport,
    runs: Vec<PolicyReport>,
    #[serde(skip)]
    memory: u64,
    #[serde(skip)]
    clock_ns: f64,
}

#[derive(Serialize)]
struct TraceReport {
    name: String,
    processes: u64,
    events: u64,
    faults: u64,
    lost: u64,
    /// Flushes by Linux during the recording.
    linux_flushes: Flushes,
}

/// One policy.
#[derive(Serialize)]
pub struct PolicyReport {
    /// Name of the policy.
    pub policy: &'static str,
    /// Number of lists, for a historic policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub historic_lists: Option<u8>,
    /// Number of logical CPUs.
    pub cpus: usize,
    /// Number of NUMA nodes.
    pub nodes: usize,
    /// Results by level, lowest first.
    pub levels: Levels<LevelReport>,
    /// Mean time of an allocation in the back-to-back stream, with its share of frees and trimming.
    pub mean_alloc_ns: f64,
    /// Time of the stream itself per allocation, already subtracted.
    pub stream_own_ns: f64,
    /// Speed of a pass without instruments, all workers and copies together.
    pub events_per_s: f64,
    /// Several workers against one, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerSpeedup>,
    /// Several copies against one, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopySpeedup>,
    /// The most tables allocated at once, roots included.
    pub peak_live_tables: u64,
    /// The most bytes in tables at once.
    pub peak_table_bytes: u64,
    /// The most bytes cached by the policy.
    pub peak_cached_bytes: u64,
    /// Flushes issued by the library.
    pub flushes: Flushes,
    /// Requests for zeroed frames, if data frames have memory or frames are zeroed in idle time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero: Option<ZeroReport>,
    /// Findings of the sanitizer, if requested.
    pub sanitizer: SanitizerReport,
    /// Comparison with Linux's counts of tables.
    pub truth: TruthReport,
    /// Faults outside all areas, or not allowed by their area.
    pub faults_outside: u64,
    /// Calls that the address space refused.
    pub odd_calls: u64,
    /// The first refused call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_odd_call: Option<String>,
    /// Events skipped because memory had run out for the space of their task.
    pub skipped_events: u64,
    /// How often memory ran out.
    pub out_of_memory: u64,
    /// All counters, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
}

/// One level.
#[derive(Serialize)]
pub struct LevelReport {
    /// Pages allocated.
    pub allocs: u64,
    /// Pages from the CPU's own lists.
    pub hits: u64,
    /// Allocations with an exchange of magazines at the depot.
    pub refills: u64,
    /// Pages that came from the frame allocator.
    pub misses: u64,
    /// This level's share of the back-to-back stream.
    pub total_ns: f64,
    /// Minimum of single calls; 0 means less than the clock can measure.
    pub min_ns: f64,
    /// `total_ns` divided by `allocs`.
    pub mean_ns: f64,
    /// Median of single calls; 1 means less than the clock can measure.
    pub p50_ns: f64,
    /// 99th percentile of single calls.
    pub p99_ns: f64,
    /// Maximum of single calls.
    pub max_ns: f64,
}

/// Flushes by size.
#[derive(Serialize, Clone, Copy, Default)]
pub struct Flushes {
    /// Flushes of one page.
    pub page: u64,
    /// Flushes of several pages.
    pub range: u64,
    /// Flushes of a whole space.
    pub full: u64,
}

impl From<FlushCounts> for Flushes {
    fn from(c: FlushCounts) -> Self {
        Flushes { page: c.page as u64, range: c.range as u64, full: c.full as u64 }
    }
}

/// The findings of the sanitizer.
#[derive(Serialize, Default, Clone)]
pub struct SanitizerReport {
    /// Whether it ran.
    pub ran: bool,
    /// Number of passes, each with its own seed.
    pub passes: u64,
    /// Number of findings.
    pub findings: u64,
    /// Number of findings by kind.
    pub kinds: BTreeMap<String, u64>,
}

impl SanitizerReport {
    /// Adds numbers of findings.
    pub fn add(&mut self, kinds: impl IntoIterator<Item = (String, u64)>) {
        for (kind, n) in kinds.into_iter().filter(|(_, n)| *n > 0) {
            self.findings += n;
            *self.kinds.entry(kind).or_default() += n;
        }
    }
}

/// The library's counts of tables against Linux's.
#[derive(Serialize)]
pub struct TruthReport {
    /// Number of samples compared.
    pub checked: u64,
    /// Number of samples that were equal.
    pub equal: u64,
    /// For each difference, the library's count minus Linux's: how often it occurred at exit and
    /// before `execve`.
    pub differences: BTreeMap<i64, [u64; 2]>,
    /// The tasks of the first ten samples that differed.
    pub first_differing_tasks: Vec<u32>,
}

impl TruthReport {
    /// Summarises the samples.
    pub fn of(outcome: &Outcome) -> Self {
        let mut differences: BTreeMap<i64, [u64; 2]> = BTreeMap::new();
        for Sample { own, linux, at, .. } in &outcome.differing {
            let when = usize::from(*at == Sampled::Exec);
            differences.entry(i64::from(*own) - i64::from(*linux)).or_default()[when] += 1;
        }
        let first_differing_tasks = outcome.differing.iter().take(10).map(|s| s.task).collect();
        TruthReport { checked: outcome.checked, equal: outcome.equal, differences, first_differing_tasks }
    }
}

impl ReplayReport {
    /// Creates a report.
    pub fn new(trace: &Trace, memory: u64, clock_ns: f64, runs: Vec<PolicyReport>) -> Self {
        let [page, range, full] = trace.linux_flushes;
        let trace = TraceReport {
            name: trace.name.clone(),
            processes: trace.processes,
            events: trace.events,
            faults: trace.faults,
            lost: trace.lost,
            linux_flushes: Flushes { page, range, full },
        };
        ReplayReport { trace, runs, memory, clock_ns }
    }

    /// Returns the report as text, at most 80 columns wide.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let t = &self.trace;
        writeln!(
            out,
            "{}: {} processes, {} events, {} faults, {} lost; {} MiB of memory",
            t.name,
            t.processes,
            t.events,
            t.faults,
            t.lost,
            self.memory >> 20
        )?;
        for run in &self.runs {
            run.write(out, self.clock_ns)?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "{:<10} {:>10} {:>9} {:>10} {:>10} {:>9} {:>8}",
            "", "ns/alloc", "misses", "peak live", "cached", "Mevent/s", "findings"
        )?;
        for run in &self.runs {
            let findings =
                if run.sanitizer.ran { run.sanitizer.findings.to_string() } else { "-".to_owned() };
            let misses: u64 = run.levels.0.iter().map(|l| l.1.misses).sum();
            writeln!(
                out,
                "{:<10} {:>10.1} {:>9} {:>10} {:>10} {:>9.2} {:>8}",
                run.label(),
                run.mean_alloc_ns,
                misses,
                run.peak_live_tables,
                bytes(run.peak_cached_bytes),
                run.events_per_s / 1e6,
                findings
            )?;
        }
        writeln!(
            out,
            "\nLinux while recording: flushes of one page {}, of a range {}, full {}",
            t.linux_flushes.page, t.linux_flushes.range, t.linux_flushes.full
        )?;
        let own = self.runs.first().map_or(0.0, |run| run.stream_own_ns);
        writeln!(out, "ns/alloc and mean: back-to-back allocations with their frees and trimming.")?;
        writeln!(out, "p50, p99 and max: single calls. Subtracted: {own:.1} ns per allocation for the")?;
        writeln!(out, "stream itself, {:.0} ns per single call for the clock.", self.clock_ns)?;
        if self.runs.iter().any(|run| run.historic_lists.is_some()) {
            writeln!(out, "In brackets: the number of lists of a historic policy.")?;
        }
        Ok(())
    }
}

impl PolicyReport {
    fn write(&self, out: &mut String, clock_ns: f64) -> std::fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        writeln!(
            out,
            "\npolicy {}{}, {} CPU{}, {} node{}",
            self.policy,
            self.historic_lists.map_or(String::new(), |n| format!(", {n} list{}", plural(n.into()))),
            self.cpus,
            plural(self.cpus),
            self.nodes,
            plural(self.nodes)
        )?;
        writeln!(
            out,
            "{:<4} {:>8} {:>8} {:>5} {:>6} {:>6} {:>6} {:>7} {:>8} {:>6} {:>6}",
            "", "count", "total", "min", "mean", "p50", "p99", "max", "hits", "refill", "miss"
        )?;
        // Values below the clock's resolution print as `<` and the resolution.
        let single = |ns: f64| if ns <= 1.0 { format!("<{:.0}", clock_ns.max(1.0)) } else { time(ns) };
        for (name, l) in &self.levels.0 {
            writeln!(
                out,
                "{:<4} {:>8} {:>8} {:>5} {:>6} {:>6} {:>6} {:>7} {:>8} {:>6} {:>6}",
                name,
                l.allocs,
                time(l.total_ns),
                single(l.min_ns),
                time(l.mean_ns),
                single(l.p50_ns),
                single(l.p99_ns),
                single(l.max_ns),
                l.hits,
                l.refills,
                l.misses
            )?;
        }
        let Flushes { page, range, full } = self.flushes;
        writeln!(
            out,
            "memory   at most {} in tables, {} cached",
            bytes(self.peak_table_bytes),
            bytes(self.peak_cached_bytes)
        )?;
        writeln!(out, "flushes  of one page {page}, of a range {range}, full {full}")?;
        if let Some(zero) = &self.zero {
            zero.write(out)?;
        }
        if self.sanitizer.ran {
            write!(out, "sanitizer  {} finding(s)", self.sanitizer.findings)?;
            if self.sanitizer.passes > 1 {
                write!(out, " in {} passes", self.sanitizer.passes)?;
            }
            for (kind, n) in &self.sanitizer.kinds {
                write!(out, ", {kind} {n}")?;
            }
            writeln!(out)?;
        }
        let TruthReport { checked, equal, .. } = self.truth;
        if checked > 0 {
            writeln!(
                out,
                "VmPTE    equal to Linux's own count in {equal} of {checked} samples ({:.2} %)",
                equal as f64 * 100.0 / checked as f64
            )?;
        }
        self.write_speed(out)?;
        if self.faults_outside + self.odd_calls > 0 {
            writeln!(
                out,
                "outside  {} faults outside all areas, {} calls refused",
                self.faults_outside, self.odd_calls
            )?;
        }
        if self.out_of_memory > 0 {
            writeln!(
                out,
                "memory ran out {} times; {} events were skipped",
                self.out_of_memory, self.skipped_events
            )?;
        }
        self.counters.as_ref().map_or(Ok(()), |counters| counters.write(out))
    }
}

impl PolicyReport {
    /// Returns the policy's name and lists in at most nine characters.
    fn label(&self) -> String {
        self.historic_lists.map_or(self.policy.to_owned(), |n| format!("{} ({n})", self.policy))
    }

    fn write_speed(&self, out: &mut String) -> std::fmt::Result {
        if let Some(w) = &self.workers {
            let turns = if w.workers > w.processors { ", which they share" } else { "" };
            let (speed, share) = (w.events_per_s / 1e6, w.share * 100.0);
            writeln!(
                out,
                "workers  {} on {} processor(s){turns}: {speed:.2} Mevent/s",
                w.workers, w.processors
            )?;
            writeln!(
                out,
                "         {:.2} x one worker; the order allows {:.2} x; {share:.0} % of that",
                w.speed_up, w.ceiling
            )?;
        }
        if let Some(c) = &self.copies {
            writeln!(
                out,
                "copies   {}: {:.2} Mevent/s, {:.2} x one copy ({:.2} x by processor time)",
                c.copies,
                c.events_per_s / 1e6,
                c.ratio,
                c.ratio_by_processor_time
            )?;
        }
        Ok(())
    }
}

/// Formats nanoseconds in at most six characters.
fn time(ns: f64) -> String {
    match ns {
        n if n < 9.95 => format!("{n:.1}ns"),
        n if n < 9_999.5 => format!("{n:.0}ns"),
        n if n < 9_999_500.0 => format!("{:.0}us", n / 1e3),
        n => format!("{:.0}ms", n / 1e6),
    }
}

fn bytes(n: u64) -> String {
    if n < 10 << 20 { format!("{} KiB", n >> 10) } else { format!("{} MiB", n >> 20) }
}
