//! The figures of a report, one trace at a time.
mod advice;
mod flushes;
mod large;
mod live;
mod placed;
mod policies;
mod tables;
mod warnings;

pub(super) use advice::AdviceFigures;
pub(super) use flushes::FlushFigures;
pub(super) use large::LargePageReplay;
pub(super) use live::{Live, LivePoint};
pub(super) use placed::PlacedFigures;
pub(super) use policies::PolicyFigures;
pub(super) use tables::{CauseRow, TableFigures};

use ptarmigan_replay::account::{Programs, TimesReport};
use ptarmigan_replay::{Axis, Choice, Observation, ObservedTrace, TruthReport, Work};
use ptarmigan_term::Failure;
use serde::Serialize;

/// Parts that the axis of a trace is cut into.
const PARTS: usize = 320;

/// The most rows of work by mapping, and by function: a page has a bound to its size.
const ROWS: usize = 200;

/// All figures of one trace.
#[derive(Serialize)]
pub(super) struct TraceFigures {
    pub facts: RecordingFacts,
    /// The times of calls and processes, if the recording has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<TimesReport>,
    /// Facts that a reader must know before trusting a figure.
    pub warnings: Vec<String>,
    /// The work by mapping and by function.
    pub work: Work,
    pub live: Live,
    pub tables: TableFigures,
    pub flushes: FlushFigures,
    pub policies: Vec<PolicyFigures>,
    /// A replay with large pages, if the recorded Linux had huge ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large: Option<LargePageReplay>,
    /// Advice for the author of the program, if it was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<AdviceFigures>,
    /// Low memory under each `userpte=`, if requested.
    pub userpte: Vec<PlacedFigures>,
}

/// The recording, and the settings of its replay.
#[derive(Serialize)]
pub(super) struct RecordingFacts {
    pub name: String,
    pub method: &'static str,
    pub arch: &'static str,
    pub page_bytes: u64,
    pub cpus: usize,
    pub processes: u64,
    /// Those of them that ran before the recording.
    pub running: u64,
    pub events: u64,
    pub faults: u64,
    pub lost: u64,
    /// How many of the programs that ran are in the recording.
    pub programs: Programs,
    /// Parts that the recording lacks.
    pub unseen: Vec<&'static str>,
    /// The unit of the axes: `us` or `events`.
    pub axis: &'static str,
    /// The end of the axes.
    pub axis_end: u64,
    /// Memory of the machine, in bytes.
    pub memory: u64,
    /// The resolution of the clock, in nanoseconds.
    pub clock_ns: f64,
    /// The levels of the page table, lowest first.
    pub levels: &'static [&'static str],
    pub peak_live_tables: u64,
    pub peak_table_bytes: u64,
    /// Comparison with Linux's counts of tables.
    pub truth: TruthReport,
    pub faults_outside: u64,
    pub odd_calls: u64,
}

impl RecordingFacts {
    /// Whether the axes are times.
    pub fn is_time(&self) -> bool {
        self.axis == "us"
    }
}

impl TraceFigures {
    /// Replays a trace once and derives all figures but those of `userpte=`. Where the recorded
    /// Linux had huge pages, a second replay counts large ones.
    ///
    /// # Errors
    /// If the replay fails, or memory runs out.
    pub fn of(observed: &ObservedTrace, policies: &[Choice], memory: u64) -> Result<Self, Failure> {
        let mut seen = observed.observe(PARTS)?;
        let (trace, axis) = (observed.trace(), observed.axis());
        let parts = Parts { axis, bounds: &seen.bounds };
        let policies = policies
            .iter()
            .map(|choice| Ok(PolicyFigures::new(&observed.repeat(&seen, *choice)?, &seen, &parts)))
            .collect::<Result<Vec<_>, Failure>>()?;
        let live = Live::new(observed, &seen, &parts);
        let tables = TableFigures::new(observed, &seen);
        let flushes = FlushFigures::new(trace, &seen, &parts);
        let header = &trace.header;
        let truth = std::mem::take(&mut seen.truth);
        let facts = RecordingFacts {
            name: trace.name.clone(),
            method: header.method.name(),
            arch: header.arch.name(),
            page_bytes: 1 << header.page_shift,
            cpus: trace.cpus,
            processes: trace.processes,
            running: trace.account.running(),
            events: trace.events,
            faults: trace.faults,
            lost: trace.lost,
            programs: trace.coverage(),
            unseen: header.unseen.names(),
            axis: if axis.is_time() { "us" } else { "events" },
            axis_end: axis.end(),
            memory,
            clock_ns: observed.resolution(),
            levels: ObservedTrace::levels(),
            peak_live_tables: seen.peak.0,
            peak_table_bytes: seen.peak.1,
            truth,
            faults_outside: seen.odd.0,
            odd_calls: seen.odd.1,
        };
        let warnings = warnings::of(&facts, flushes.linux.as_ref());
        let large = observed.count_large()?.map(|run| LargePageReplay::new(&run));
        let times = trace.account.report();
        let mut work = observed.work(&seen);
        work.shorten(ROWS);
        Ok(TraceFigures {
            facts,
            times,
            warnings,
            work,
            live,
            tables,
            flushes,
            policies,
            large,
            advice: None,
            userpte: Vec::new(),
        })
    }
}

/// The parts that the axis of a trace is cut into.
struct Parts<'a> {
    axis: Axis<'a>,
    /// The end of each part, as an index of an operation.
    bounds: &'a [u32],
}

impl Parts<'_> {
    fn len(&self) -> usize {
        self.bounds.len()
    }

    /// Returns the part that an operation is in: the last part for those after the last operation.
    fn of_op(&self, op: u32) -> usize {
        let part = self.bounds.partition_point(|&bound| bound <= op);
        part.min(self.len().saturating_sub(1))
    }

    /// Returns the part that a place on the axis is in.
    fn of_place(&self, at: u64) -> usize {
        let part = u128::from(at) * self.len() as u128 / u128::from(self.axis.end());
        (part as usize).min(self.len().saturating_sub(1))
    }

    /// Returns where a part begins on the axis.
    fn start(&self, part: usize) -> u64 {
        (u128::from(self.axis.end()) * part as u128 / self.len().max(1) as u128) as u64
    }
}

/// Returns the part of a call of the policy. Tables that were there before the first operation are
/// in the first part.
fn part_of_call(seen: &Observation, parts: &Parts<'_>, call: u32) -> usize {
    let op = seen.calls.get(call as usize).copied().unwrap_or(u32::MAX - 1);
    if op == u32::MAX { 0 } else { parts.of_op(op) }
}
