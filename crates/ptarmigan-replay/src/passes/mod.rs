//! The passes over a trace, and their results.
mod common;
#[cfg(feature = "formats")]
mod formats;
mod machine;
mod speed;

use super::arch::MachineName;
use super::args::ReplayArgs;
use super::high::KmapReport;
use super::input::trace::Trace;
use super::instruments::levels::Levels;
use super::instruments::measured::CallLog;
use super::instruments::speed::SpeedRounds;
use super::instruments::stream::Stream;
use super::instruments::zero::{IdleRound, IdleTimes};
use super::platform::{Hashed, Walked};
use super::policy::Choice;
use super::report::{LevelReport, PolicyReport, ReplayReport, SanitizerReport, TruthReport};
use super::workers::outcome::Outcome;
use crate::flushes::FlushSurvey;
use common::Common;
use machine::{CountedPass, PassMachine};
use ptarmigan::format::X86Pae;
use ptarmigan_bench::stats::median;
use ptarmigan_term::bar;
use ptarmigan_term::print;
use ptarmigan_term::{Bytes, Failure};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

/// Rounds of whole replays, which give the speed, and of streams, which give the means. Reports
/// contain the medians.
const SPEED_ROUNDS: usize = 3;
const COMPARED_ROUNDS: usize = 11;
const STREAM_ROUNDS: usize = 7;

/// The passes over one trace.
struct Passes<'a> {
    machine: &'a dyn PassMachine,
    common: Common<'a>,
}

/// The results of one policy.
struct Counted {
    policy: Choice,
    run: PolicyReport,
    stream: Stream,
    /// The calls of each level by themselves.
    levels: Vec<Stream>,
    /// For each round: the time of the stream over the policy, and over `Nothing`.
    stream_ns: Vec<(f64, f64)>,
    /// The same by level.
    level_ns: Vec<Vec<(f64, f64)>>,
    rounds: SpeedRounds,
    /// For each round: the times with and without zeroing in idle time.
    ahead: Vec<IdleRound>,
}

/// Replays one trace on all policies. Calls `measured` with the report as soon as only the
/// sanitizer's findings are missing, which take as long as all the rest.
///
/// # Errors
/// As [`run`](super::run). Errors that still allow a report go to `failures`.
pub fn replay(
    mut trace: Trace,
    args: &ReplayArgs,
    failures: &mut Vec<Failure>,
    measured: &mut dyn FnMut(&ReplayReport) -> Result<(), Failure>,
) -> Result<ReplayReport, Failure> {
    let userpte = args.params.and_then(|params| params.userpte).unwrap_or_default();
    let memory = args.memory;
    let machine: &dyn PassMachine = match args.arch {
        MachineName::X86_64 => &Walked::RECORDED,
        MachineName::I386Pae => &Walked::<X86Pae, _>::small_with(userpte, memory, 64 << 30)?,
        MachineName::Ppc32 => &Hashed::new(args)?,
        #[cfg(feature = "formats")]
        name => &*formats::machine(name, userpte, memory)?,
        #[cfg(not(feature = "formats"))]
        name => return Err(name.not_in_this_build()),
    };
    // Both may change the steps.
    let flushes = FlushSurvey::of(&trace);
    let relayout = machine.room_for_areas().map(|room| trace.relayout(room)).transpose()?;
    #[cfg(feature = "formats")]
    let rounded = formats::round(&mut trace, machine, args)?;
    #[cfg(not(feature = "formats"))]
    let rounded = None;
    let trace = &trace;
    let passes = Passes { machine, common: Common::new(trace, args)? };
    let mut counted = Vec::new();
    for policy in args.policies() {
        let (one, outcome) = passes.count(policy)?;
        if let Some((event, task, reason)) = outcome.first_out_of_memory {
            let failure = Failure::new(format!(
                "{}: policy {}: process {task} got no memory at event {event} ({reason}); {} time(s) in all; \
                 give --memory more than {} MiB{}",
                trace.name,
                policy.name(),
                outcome.out_of_memory,
                Bytes(args.memory).mib(),
                if args.spread.copies > 1 { ", which all copies share" } else { "" },
            ));
            if !args.keep_going {
                return Err(failure);
            }
            failures.push(failure);
        }
        if let Some(left) = one.run.hash.as_ref().map(|hash| hash.left).filter(|left| *left > 0) {
            failures.push(Failure::new(format!(
                "{}: policy {}: {left} entries are left in the hash table when all programs have ended",
                trace.name,
                policy.name(),
            )));
        }
        counted.push(one);
    }
    let rounds = passes.speed_rounds();
    let bar = bar::bar(((rounds + STREAM_ROUNDS) * counted.len()) as u64, "measuring");
    for _ in 0..rounds {
        for one in &mut counted {
            passes.speed(one)?;
            bar.inc(1);
        }
    }
    for _ in 0..STREAM_ROUNDS {
        for one in &mut counted {
            one.stream_ns.push(machine.stream(&passes.common, one.policy, &one.stream)?);
            for (stream, rounds) in one.levels.iter().zip(&mut one.level_ns) {
                rounds.push(machine.stream(&passes.common, one.policy, stream)?);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let runs = counted.into_iter().map(|one| one.finish(&passes)).collect();
    let mut report =
        ReplayReport::new(trace, flushes, relayout, rounded, args, passes.common.clock.resolution(), runs);
    measured(&report)?;
    if args.sanitize {
        passes.sanitize(&mut report, failures)?;
    }
    Ok(report)
}

impl Counted {
    /// Computes the medians.
    fn finish(mut self, passes: &Passes<'_>) -> PolicyReport {
        let own = |rounds: &[(f64, f64)]| -> Vec<f64> {
            rounds.iter().map(|(policy, nothing)| policy - nothing).collect()
        };
        let total = median(own(&self.stream_ns)).max(0.0);
        let nothing = median(self.stream_ns.iter().map(|(_, nothing)| *nothing));
        let allocs = (self.run.levels.allocs() as f64).max(1.0);
        self.run.mean_alloc_ns = total / allocs;
        self.run.stream_own_ns = nothing / allocs;
        for ((_, level), rounds) in self.run.levels.0.iter_mut().zip(&self.level_ns) {
            level.time(own(rounds));
        }
        let job = passes.common.job();
        self.run.events_per_s = self.rounds.events_per_s(job.workers());
        self.run.workers =
            self.rounds.workers(&passes.common.schedule, passes.common.alone.as_ref(), passes.common.clock);
        self.run.copies = self.rounds.copies(job.copies);
        if let Some(zero) = &mut self.run.zero {
            zero.times = IdleTimes::of(&self.ahead);
        }
        self.run
    }
}

impl Passes<'_> {
    /// Runs the counting pass, which also times single calls and logs the allocator's calls.
    fn count(&self, policy: Choice) -> Result<(Counted, Outcome), Failure> {
        let mut counted = None;
        self.machine
            .count(&self.common, policy, &mut |pass, log| counted = Some(self.counted(policy, pass, log)))?;
        counted.ok_or_else(|| Failure::new("the counting pass was not counted"))
    }

    fn counted(&self, policy: Choice, pass: CountedPass, log: &mut CallLog) -> (Counted, Outcome) {
        let CountedPass { counts, outcome, flushes, .. } = pass;
        let levels = pass.levels.iter().zip(&counts.levels).zip(&log.times);
        let levels = levels.map(|((name, counts), times)| (*name, LevelReport::new(counts, times)));
        let run = PolicyReport {
            policy: policy.name(),
            historic_lists: policy.lists,
            cpus: self.common.job().cpus(),
            nodes: self.common.args.nodes,
            levels: Levels(levels.collect()),
            mean_alloc_ns: 0.0,
            stream_own_ns: 0.0,
            events_per_s: 0.0,
            peak_live_tables: log.peak_live,
            peak_table_bytes: log.peak_bytes,
            peak_cached_bytes: log.peak_cached,
            flushes: flushes.into(),
            flushes_by_cause: pass.flushes_by_cause,
            hash: pass.hash,
            kmap: self.common.high.and_then(|high| Some(KmapReport::new(&high.config, &outcome.kmap?))),
            userpte: pass.userpte,
            zero: pass.zero,
            sanitizer: SanitizerReport::default(),
            truth: TruthReport::of(&outcome),
            large_pages: self.common.args.large_pages.then_some(outcome.large_pages),
            blocks: (0..).map(|n| 8 << n).zip(outcome.blocks).filter(|(_, count)| *count > 0).collect(),
            faults_outside: outcome.outside,
            odd_calls: outcome.odd,
            first_odd_call: outcome
                .first_odd
                .as_ref()
                .map(|(event, task, why)| format!("event {event}, task {task}: {why}")),
            skipped_events: outcome.skipped,
            out_of_memory: outcome.out_of_memory,
            counters: pass.counters,
            workers: None,
            copies: None,
        };
        let calls = std::mem::take(&mut log.calls);
        let levels = Stream::by_level(&calls, log.slots_used, pass.levels.len());
        let counted = Counted {
            policy,
            run,
            stream: Stream::new(&calls, log.slots_used),
            level_ns: vec![Vec::new(); levels.len()],
            levels,
            stream_ns: Vec::new(),
            rounds: SpeedRounds::default(),
            ahead: Vec::new(),
        };
        (counted, outcome)
    }

    /// Runs the passes under the sanitizer, one for each policy and seed: as many at once as there
    /// are processors, unless each replays with several workers already.
    ///
    /// # Errors
    /// If a pass fails. Findings in a policy that is not historic go to `failures`.
    fn sanitize(&self, report: &mut ReplayReport, failures: &mut Vec<Failure>) -> Result<(), Failure> {
        let args = self.common.args;
        let seeds = args.seeds as usize;
        let policies = args.policies();
        let total = policies.len() * seeds;
        let processors = available_parallelism().map_or(1, usize::from);
        let threads = if self.common.job().workers() > 1 { 1 } else { processors.min(total) };
        let next = AtomicUsize::new(0);
        let work = || {
            let mut results = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= total {
                    return results;
                }
                let seed = args.seed.map(|first| first.wrapping_add((n % seeds) as u64));
                let result = self.machine.sanitize(&self.common, policies[n / seeds], seed);
                let failed = result.is_err();
                results.push((n, result));
                if failed {
                    return results;
                }
            }
        };
        let mut results = thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = others
                .into_iter()
                .flat_map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            own.into_iter().chain(others).collect::<Vec<_>>()
        });
        results.sort_by_key(|(n, ..)| *n);
        for (n, result) in results {
            let (found, first) = result?;
            report.runs[n / seeds].sanitizer.merge(found);
            if let Some(first) = first {
                print::error(&first);
            }
        }
        for (run, policy) in report.runs.iter().zip(&policies) {
            let findings = run.sanitizer.findings;
            if findings > 0 && !policy.is_historic() {
                let (trace, name) = (&self.common.trace.name, policy.name());
                failures.push(Failure::new(format!(
                    "{trace}: the sanitizer found {findings} violation(s) in policy {name}"
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of rounds. Comparisons need more than a single speed does.
    fn speed_rounds(&self) -> usize {
        let compared = self.common.job().workers() > 1 || self.common.args.idle_zero > 0;
        if compared { COMPARED_ROUNDS } else { SPEED_ROUNDS }
    }
}
