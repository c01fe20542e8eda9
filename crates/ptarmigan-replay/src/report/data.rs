//! The data of a report. Serialised, it is the JSON document.
use crate::args::ReplayArgs;
use crate::baseline::{self, Figure};
use crate::flushes::{Flushes, LibraryFlushes, LinuxFlushes};
use crate::high::{KmapReport, UserPteReport};
use crate::input::relayout::Relayout;
use crate::input::trace::Trace;
use crate::instruments::counters::Counters;
use crate::instruments::levels::Levels;
use crate::instruments::measured::LevelTimes;
use crate::instruments::speed::{CopySpeedup, WorkerSpeedup};
use crate::instruments::zero::ZeroReport;
use crate::workers::outcome::{Outcome, Sample};
use ptarmigan::quicklist::LevelCounts;
use ptarmigan_bench::stats::median;
use ptarmigan_ptsan::HashUse;
use ptarmigan_term::{Context, Failure};
use ptarmigan_trace::{Sampled, Unseen};
use serde::Serialize;
use std::collections::BTreeMap;

/// One trace on all policies.
#[derive(Serialize)]
pub struct ReplayReport {
    /// The options of the command, as given.
    pub(super) options: BTreeMap<String, String>,
    pub(super) trace: TraceReport,
    /// How the recorded addresses were moved, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) relayout: Option<Relayout>,
    /// Bytes of the pages that areas were rounded to, if these are larger than recorded ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rounded_to: Option<u64>,
    pub runs: Vec<PolicyReport>,
    #[serde(skip)]
    pub(super) memory: u64,
    #[serde(skip)]
    pub(super) clock_ns: f64,
}

#[derive(Serialize)]
pub(super) struct TraceReport {
    pub(super) name: String,
    pub(super) processes: u64,
    pub(super) events: u64,
    pub(super) faults: u64,
    pub(super) lost: u64,
    /// Parts that the recording lacks and that may change a number of tables.
    pub(super) not_recorded: Vec<&'static str>,
    /// Flushes by Linux during the recording, if they were recorded.
    pub(super) flushes: Option<LinuxFlushes>,
}

/// Parts that a recording may lack without a difference to any number of tables.
const UNCOUNTED: u16 = Unseen::TLB_FLUSHES | Unseen::IDLE | Unseen::TRUTH;

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
    /// The same by cause, with one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flushes_by_cause: Option<LibraryFlushes>,
    /// The use of the hash table, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashReport>,
    /// Counts of mapped frames, if the machine has high memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kmap: Option<KmapReport>,
    /// Where leaf tables were, if they may be in high memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userpte: Option<UserPteReport>,
    /// Requests for zeroed frames, if data frames have memory or frames are zeroed in idle time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero: Option<ZeroReport>,
    /// Findings of the sanitizer, if requested.
    pub sanitizer: SanitizerReport,
    /// Comparison with Linux's counts of tables.
    pub truth: TruthReport,
    /// Large pages that faults mapped, if they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_pages: Option<u64>,
    /// Blocks of several pages that faults mapped, by size in KiB, where the recorded machine
    /// mapped any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<u64, u64>,
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
#[derive(Serialize, Clone, Copy)]
pub struct LevelReport {
    /// Pages allocated.
    pub allocs: u64,
    /// Pages from the CPU's own lists.
    pub hits: u64,
    /// Allocations with an exchange of magazines at the depot.
    pub refills: u64,
    /// Pages that came from the frame allocator.
    pub misses: u64,
    /// Time of this level's own calls back to back, with its frees and trimming.
    pub total_ns: f64,
    /// Minimum of single calls, or `mean_ns` if that is less: some call took no longer. 0 means
    /// less than the clock can measure.
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

impl LevelReport {
    /// Reports on the calls of one level. The times of the stream are added later.
    pub fn new(count: &LevelCounts, times: &LevelTimes) -> Self {
        let quantile = |q| times.histogram.value_at_quantile(q) as f64;
        LevelReport {
            allocs: count.allocs as u64,
            hits: count.allocs.saturating_sub(count.refills + count.misses) as u64,
            refills: count.refills as u64,
            misses: count.misses as u64,
            total_ns: 0.0,
            min_ns: if times.min.is_finite() { times.min } else { 0.0 },
            mean_ns: 0.0,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            max_ns: times.histogram.max() as f64,
        }
    }

    /// Adds the times of the level's own stream, one for each round, in nanoseconds.
    pub fn time(&mut self, rounds: impl IntoIterator<Item = f64>) {
        self.total_ns = median(rounds).max(0.0);
        self.mean_ns = self.total_ns / (self.allocs as f64).max(1.0);
        self.min_ns = self.min_ns.min(self.mean_ns);
    }
}

impl Levels<LevelReport> {
    /// Returns the number of allocations of all levels.
    pub fn allocs(&self) -> u64 {
        self.0.iter().map(|(_, level)| level.allocs).sum()
    }
}

/// The use of the hash table in the counting pass.
#[derive(Serialize, Clone, Copy)]
pub struct HashReport {
    /// All entries.
    pub entries: u64,
    /// Accesses after a fault that found their page.
    pub found: u64,
    /// Those that missed it, and whose page was put in.
    pub refills: u64,
    /// Pages that were put in over another one.
    pub evictions: u64,
    /// Stale pages of flushes that had been put in.
    pub hashed_at_flushes: u64,
    /// Pages that were taken out one by one, or looked for.
    pub removals: u64,
    /// Of these, pages that were not there.
    pub missing: u64,
    /// Flushes that looked at every entry.
    pub full: u64,
    /// Pages that TLBs were told to forget.
    pub tlbies: u64,
    /// Valid entries when all programs have ended.
    pub left: u64,
}

impl HashReport {
    /// Summarises the use of a table, with the `hashed` pages of all flushes.
    pub fn new(usage: &HashUse, hashed: usize) -> Self {
        HashReport {
            entries: usage.entries as u64,
            found: usage.found as u64,
            refills: usage.refills as u64,
            evictions: usage.table.evicted as u64,
            hashed_at_flushes: hashed as u64,
            removals: usage.table.removed as u64,
            missing: usage.table.missing as u64,
            full: usage.full as u64,
            tlbies: usage.tlbies as u64,
            left: usage.valid as u64,
        }
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
    /// Number of findings that were raised as a table came back, by the table's level: all levels
    /// of the format, of which the last is the root's.
    pub by_level: BTreeMap<&'static str, u64>,
}

impl SanitizerReport {
    /// Adds the findings of other passes.
    pub fn merge(&mut self, other: Self) {
        self.ran |= other.ran;
        self.passes += other.passes;
        self.add(other.kinds);
        self.add_levels(other.by_level);
    }

    /// Adds numbers of findings by the level of tables that came back.
    pub fn add_levels(&mut self, levels: impl IntoIterator<Item = (&'static str, u64)>) {
        for (level, n) in levels {
            *self.by_level.entry(level).or_default() += n;
        }
    }

    /// Adds numbers of findings.
    pub fn add(&mut self, kinds: impl IntoIterator<Item = (String, u64)>) {
        for (kind, n) in kinds.into_iter().filter(|(_, n)| *n > 0) {
            self.findings += n;
            *self.kinds.entry(kind).or_default() += n;
        }
    }
}

/// The library's counts of tables against Linux's.
#[derive(Serialize, Default)]
pub struct TruthReport {
    /// Number of samples compared.
    pub checked: u64,
    /// Number of samples that were equal.
    pub equal: u64,
    /// For each difference, the library's count minus Linux's: how often it occurred at exit and
    /// before `execve`.
    pub differences: BTreeMap<i64, [u64; 2]>,
    /// Tables, of all samples, that the recording knows from the pages present at stops only: the
    /// comparison does not cover these.
    pub tables_from_stops: u64,
    /// Calls that made pages of a file present because the memory is locked. No event tells where
    /// the file ends, so the replay may have tables beyond its end that Linux did not make.
    pub ends_unknown: u64,
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
        let &Outcome { checked, equal, found: tables_from_stops, ends_unknown, .. } = outcome;
        TruthReport { checked, equal, differences, tables_from_stops, ends_unknown, first_differing_tasks }
    }
}

impl ReplayReport {
    /// Creates a report.
    pub fn new(
        trace: &Trace,
        flushes: Option<LinuxFlushes>,
        relayout: Option<Relayout>,
        rounded_to: Option<u64>,
        args: &ReplayArgs,
        clock_ns: f64,
        runs: Vec<PolicyReport>,
    ) -> Self {
        let trace = TraceReport {
            name: trace.name.clone(),
            processes: trace.processes,
            events: trace.events,
            faults: trace.faults,
            lost: trace.lost,
            not_recorded: Unseen(trace.header.unseen.0 & !UNCOUNTED).names(),
            flushes,
        };
        let (options, memory) = (args.baseline.options.clone(), args.memory);
        ReplayReport { options, trace, relayout, rounded_to, runs, memory, clock_ns }
    }

    /// Returns the figures for a baseline. A trace of the same name as one of `others` gets a
    /// number.
    ///
    /// # Errors
    /// If JSON cannot represent the report.
    pub fn figures<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Result<Vec<Figure>, Failure> {
        let name = &self.trace.name;
        let name = match others.filter(|other| other.trace.name == *name).count() {
            0 => name.clone(),
            n => format!("{name}[{}]", n + 1),
        };
        let document = serde_json::to_value(self).context("report")?;
        Ok(baseline::of_replay(&name, &document))
    }
}

#[cfg(test)]
mod level_tests {
    use super::*;

    /// A level of 362 single calls of 100 ns, of which one was preempted for 40 ms.
    fn preempted() -> LevelReport {
        let mut times = LevelTimes::default();
        (0..361).for_each(|_| times.record(100.0));
        times.record(40e6);
        LevelReport::new(&LevelCounts { allocs: 362, ..LevelCounts::default() }, &times)
    }

    #[test]
    fn a_preempted_call_moves_neither_total_nor_mean() {
        let mut level = preempted();
        // Nor does a preempted round.
        level.time([36_200.0, 40e6, 36_200.0]);
        assert_eq!((level.total_ns, level.mean_ns, level.min_ns), (36_200.0, 100.0, 100.0));
        assert!(level.max_ns > 39e6);
    }

    #[test]
    fn the_minimum_is_never_above_the_mean() {
        let mut level = preempted();
        level.time([3620.0; 3]);
        assert_eq!((level.mean_ns, level.min_ns), (10.0, 10.0), "back to back they take less than singly");
        level.time([-5.0; 3]);
        assert_eq!((level.total_ns, level.mean_ns, level.min_ns), (0.0, 0.0, 0.0));
    }
}
