//! The passes over a trace, and their results.
mod sanitize;
mod speed;

use super::args::{MachineName, ReplayArgs};
use super::high::{High, KmapReport};
use super::input::schedule::{CpuMap, Schedule};
use super::input::trace::Trace;
use super::instruments::counters::{Snapshot, TableShape};
use super::instruments::levels::Levels;
use super::instruments::measured::Measured;
use super::instruments::speed::{MaybeTimed, SpeedRounds};
use super::instruments::stream::Stream;
use super::instruments::zero::{IdleRound, IdleTimes, ZeroReport};
use super::platform::{Hashed, Platform, Recorded, Small};
use super::policy::{Choice, PolicyName, with_policy};
use super::report::{HashReport, LevelReport, PolicyReport, ReplayReport, SanitizerReport, TruthReport};
use super::workers::job::{Elapsed, Job};
use super::workers::machine::EitherMachine;
use super::workers::outcome::Outcome;
use super::workers::watch::Watch;
use crate::bar;
use crate::error::{Context, Failure};
use crate::measure::clock::Clock;
use crate::measure::stats::median;
use ptarmigan::cpu::MAX_CPUS;
use ptarmigan::format::{Format, I386, X86Pae};
use ptarmigan::machine::Machine;
use ptarmigan::page::Layout;
use ptarmigan::quicklist::{Layered, Policy, Rules, Source};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{FlushCounts, Mmu, TlbConfig};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{
    Delivery, HighMachine, HighSlots, Host, HostConfig, HostMachine, SlotKind, TableReach,
};

/// Rounds of whole replays, which give the speed, and of streams, which give the means. Reports
/// contain the medians.
const SPEED_ROUNDS: usize = 3;
const COMPARED_ROUNDS: usize = 11;
const STREAM_ROUNDS: usize = 7;

struct Replay<'a, P> {
    platform: &'a P,
    trace: &'a Trace,
    args: &'a ReplayArgs,
    clock: Clock,
    schedule: Schedule,
    high: Option<High>,
    /// The same CPUs with one worker, if `schedule` has several.
    alone: Option<Schedule>,
}

/// Counts of a machine in a pass.
struct Passed {
    outcome: Outcome,
    flushes: FlushCounts,
    zero: Option<ZeroReport>,
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

/// Replays one trace on all policies.
///
/// # Errors
/// As [`run`](super::run). Errors that still allow a report go to `failures`.
pub fn replay(trace: Trace, args: &ReplayArgs, failures: &mut Vec<Failure>) -> Result<ReplayReport, Failure> {
    match args.arch {
        MachineName::X86_64 => replay_on(&Recorded, trace, args, failures),
        MachineName::I386 => replay_on(&Small::<I386>::new(args, 4 << 30)?, trace, args, failures),
        MachineName::I386Pae => replay_on(&Small::<X86Pae>::new(args, 64 << 30)?, trace, args, failures),
        MachineName::Ppc32 => replay_on(&Hashed::new(args)?, trace, args, failures),
    }
}

fn replay_on(
    platform: &impl Platform,
    mut trace: Trace,
    args: &ReplayArgs,
    failures: &mut Vec<Failure>,
) -> Result<ReplayReport, Failure> {
    let relayout = platform.room().map(|room| trace.relayout(room)).transpose()?;
    let trace = &trace;
    let replay = Replay::new(platform, trace, args)?;
    let mut counted = Vec::new();
    for policy in args.policies() {
        let (one, outcome) = replay.count(policy)?;
        if let Some((event, task, reason)) = outcome.first_out_of_memory {
            let failure = Failure::new(format!(
                "{}: policy {}: process {task} got no memory at event {event} ({reason}); {} time(s) in all; \
                 give --memory more than {} MiB{}",
                trace.name,
                policy.name(),
                outcome.out_of_memory,
                args.memory >> 20,
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
    if args.sanitize {
        for one in &mut counted {
            one.run.sanitizer = replay.sanitize(one.policy)?;
            let findings = one.run.sanitizer.findings;
            if findings > 0 && !one.policy.is_historic() {
                let name = one.policy.name();
                failures.push(Failure::new(format!(
                    "{}: the sanitizer found {findings} violation(s) in policy {name}",
                    trace.name
                )));
            }
        }
    }
    let rounds = replay.speed_rounds();
    let bar = bar::bar(((rounds + STREAM_ROUNDS) * counted.len()) as u64, "measuring");
    for _ in 0..rounds {
        for one in &mut counted {
            replay.speed(one)?;
            bar.inc(1);
        }
    }
    for _ in 0..STREAM_ROUNDS {
        for one in &mut counted {
            one.stream_ns.push(replay.stream(one.policy, &one.stream)?);
            for (stream, rounds) in one.levels.iter().zip(&mut one.level_ns) {
                rounds.push(replay.stream(one.policy, stream)?);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let runs = counted.into_iter().map(|one| one.finish(&replay)).collect();
    Ok(ReplayReport::new(trace, relayout, args.memory, replay.clock.resolution(), runs))
}

impl Counted {
    /// Computes the medians.
    fn finish(mut self, replay: &Replay<'_, impl Platform>) -> PolicyReport {
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
        let job = replay.job();
        self.run.events_per_s = self.rounds.events_per_s(job.workers());
        self.run.workers = self.rounds.workers(&replay.schedule, replay.alone.as_ref(), replay.clock);
        self.run.copies = self.rounds.copies(job.copies);
        if let Some(zero) = &mut self.run.zero {
            zero.times = IdleTimes::of(&self.ahead);
        }
        self.run
    }
}

impl<'a, P: Platform> Replay<'a, P> {
    fn new(platform: &'a P, trace: &'a Trace, args: &'a ReplayArgs) -> Result<Self, Failure> {
        let logical = args.spread.cpus.map_or(trace.cpus, usize::from);
        let copies = usize::from(args.spread.copies);
        if logical * copies > MAX_CPUS {
            return Err(Failure::new(format!(
                "{logical} CPUs in each of {copies} copies: at most {MAX_CPUS} CPUs in all"
            )));
        }
        let cpus = CpuMap::new(trace.cpus, logical);
        let alone = args.spread.cpus.is_none();
        let schedule = Schedule::new(trace, cpus, alone);
        let alone = (schedule.programs.len() > 1).then(|| Schedule::new(trace, cpus, true));
        let high = args.high.high(args.memory, args.nodes, args.idle_zero, args.usual_low())?;
        Ok(Replay { platform, trace, args, clock: Clock::new(), schedule, high, alone })
    }

    /// Returns the requested job: all copies and workers.
    fn job(&self) -> Job<'_> {
        self.job_of(&self.schedule, usize::from(self.args.spread.copies))
    }

    fn job_of<'s>(&'s self, schedule: &'s Schedule, copies: usize) -> Job<'s> {
        let ReplayArgs { keep_going, idle_zero, .. } = *self.args;
        Job { trace: self.trace, schedule, copies, keep_going, idle_zero }
    }

    /// Returns the shape of TLBs for `cpus` CPUs.
    fn tlb(&self, cpus: usize) -> TlbConfig {
        self.platform.tlb(self.args.tlb(cpus))
    }

    fn host(&self, job: &Job<'_>) -> Result<Host<P::Format>, Failure> {
        let config = HostConfig {
            cpus: job.cpus(),
            nodes: self.args.nodes,
            bytes: self.args.memory,
            touch_data: self.args.touch_data,
            use_lines: usize::from(self.args.use_lines),
            low: self.high.map_or(u64::MAX, |high| high.low),
            high_file: self.high.is_some_and(|high| high.config.slots == SlotKind::Real),
            ..HostConfig::default()
        };
        Host::new(config).context("the machine cannot be set up")
    }

    /// Returns the source of table pages on a host.
    fn source<'h>(
        &self,
        host: &'h Host<P::Format>,
        tables: &'h P::Tables,
    ) -> Source<'h, P::Reach<'h>, &'h KernelMap<P::Format, DirectMap>> {
        // SAFETY: 1. the callers have just made them for it.
        unsafe { P::source(tables, host) }
    }

    /// Puts a machine together.
    fn machine<'h, Q: Policy, S: Mmu>(
        &self,
        host: &'h Host<P::Format>,
        tables: &'h P::Tables,
        policy: Q,
        mmu: S,
        tlb: TlbConfig,
        delivery: Delivery,
    ) -> Result<HostMachine<'h, P::Format, Q, S, P::Reach<'h>>, Failure> {
        let reach = P::reach(tables, host);
        // SAFETY: 1. the callers have just made `tables` for the host, and the policy draws on
        // memory that it reaches.
        let machine = unsafe { HostMachine::with_window(host, policy, mmu, tlb, delivery, reach) };
        machine.context("machine")
    }

    /// Runs a job on a machine, with the high memory that was asked for.
    fn execute<Q: Policy, S: Mmu, R: TableReach, W: Watch + Send>(
        &self,
        job: &Job<'_>,
        machine: &HostMachine<'_, P::Format, Q, S, R>,
        watch: &(dyn Fn() -> W + Sync),
        tick: &(dyn Fn(u64) + Sync),
    ) -> Result<(Outcome, Elapsed, Vec<W>), Failure> {
        let machine = match &self.high {
            None => EitherMachine::low(machine),
            Some(High { config, .. }) => {
                let slots = HighSlots::new(machine.host(), config).context("high memory")?;
                let high = HighMachine::new(machine, slots, config).context("high memory")?;
                EitherMachine::high(high)
            }
        };
        job.run(&machine, watch, tick)
    }

    /// Runs one pass over the trace with a progress bar.
    fn pass<Q: Policy, S: Mmu, R: TableReach, W: Watch + Send>(
        &self,
        machine: &HostMachine<'_, P::Format, Q, S, R>,
        watch: &(dyn Fn() -> W + Sync),
        name: &str,
    ) -> Result<Outcome, Failure> {
        let job = self.job();
        let things: usize = job.schedule.programs.iter().map(|program| program.ops.len()).sum();
        let bar = bar::bar((things * job.copies) as u64, name);
        let (outcome, _, _) = self.execute(&job, machine, watch, &|done| bar.inc(done))?;
        bar.finish_and_clear();
        Ok(outcome)
    }

    /// Runs the counting pass, which also times single calls and logs the allocator's calls.
    fn count(&self, policy: Choice) -> Result<(Counted, Outcome), Failure> {
        let host = self.host(&self.job())?;
        let mmus = self.platform.mmus(self.job().cpus())?;
        let tables = self.platform.tables(&host)?;
        with_policy!(host, self.source(&host, &tables), policy, self.args.lists(host.config().cpus), |made| {
            let snapshot = Snapshot::new(host.frames(), self.job().cpus(), TableShape::of::<P::Format>());
            let measured = Measured::new(host.frames(), P::Format::LAYOUT, self.clock);
            let layered =
                Layered::new(measured, Layered::new(snapshot, made).context("layers")?).context("layers")?;
            let Passed { outcome, flushes, zero } = self.counting(&host, &tables, &mmus, &layered)?;
            let counts = layered.counts();
            let mut log = layered.layer().log();
            let layout: Layout = P::Format::LAYOUT;
            let levels = (0..usize::from(layout.levels)).map(|level| {
                let report = LevelReport::new(&counts.levels[level], &log.times[level]);
                (P::Format::LEVEL_NAMES[level], report)
            });
            let run = PolicyReport {
                policy: policy.name(),
                historic_lists: policy.lists,
                cpus: self.job().cpus(),
                nodes: self.args.nodes,
                levels: Levels(levels.collect()),
                mean_alloc_ns: 0.0,
                stream_own_ns: 0.0,
                events_per_s: 0.0,
                peak_live_tables: log.peak_live,
                peak_table_bytes: log.peak_bytes,
                peak_cached_bytes: log.peak_cached,
                flushes: flushes.into(),
                hash: P::hash_use(&mmus).map(|usage| HashReport::new(&usage, flushes.hashed)),
                kmap: self.high.and_then(|high| Some(KmapReport::new(&high.config, &outcome.kmap?))),
                userpte: self.platform.placed(&tables, &counts),
                zero,
                sanitizer: SanitizerReport::default(),
                truth: TruthReport::of(&outcome),
                faults_outside: outcome.outside,
                odd_calls: outcome.odd,
                first_odd_call: outcome
                    .first_odd
                    .as_ref()
                    .map(|(event, task, why)| format!("event {event}, task {task}: {why}")),
                skipped_events: outcome.skipped,
                out_of_memory: outcome.out_of_memory,
                counters: self.args.counters.then(|| {
                    let snapshot = layered.inner();
                    snapshot.layer().counters(snapshot.inner())
                }),
                workers: None,
                copies: None,
            };
            let levels = usize::from(layout.levels);
            let calls = std::mem::take(&mut log.calls);
            let counted = Counted {
                policy,
                run,
                stream: Stream::new(&calls, log.slots_used),
                levels: Stream::by_level(&calls, log.slots_used, levels),
                stream_ns: Vec::new(),
                level_ns: vec![Vec::new(); levels],
                rounds: SpeedRounds::default(),
                ahead: Vec::new(),
            };
            drop(log);
            Ok((counted, outcome))
        })
    }

    /// Runs the counting pass on a policy. Which one it is, is not known while compiling: the
    /// policy's own instruments do not see the calls through a pointer.
    fn counting(
        &self,
        host: &Host<P::Format>,
        tables: &P::Tables,
        mmus: &P::Mmus,
        policy: &dyn Policy,
    ) -> Result<Passed, Failure> {
        let tlb = self.tlb(self.job().cpus());
        let machine = self.machine(host, tables, policy, P::mmu(mmus), tlb, Delivery::AtOnce)?;
        let outcome = self.pass(&machine, &|| P::watch(mmus, MaybeTimed::None), "counting")?;
        let ReplayArgs { touch_data, idle_zero, .. } = *self.args;
        let zero = (touch_data || idle_zero > 0).then(|| ZeroReport {
            idle_zero,
            faults: machine.data().zero_counts().into(),
            zones: host.frames().zero_counts().into(),
            times: None,
        });
        Ok(Passed { outcome, flushes: machine.tlb().counts(), zero })
    }

    /// Returns the number of rounds. Comparisons need more than a single speed does.
    fn speed_rounds(&self) -> usize {
        let compared = self.job().workers() > 1 || self.args.idle_zero > 0;
        if compared { COMPARED_ROUNDS } else { SPEED_ROUNDS }
    }
}
