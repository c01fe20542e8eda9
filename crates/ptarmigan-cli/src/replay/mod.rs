//! `ptarmigan replay`: a recorded program on the library, policy against policy.
//!
//! For each policy there are up to four kinds of pass, on a fresh machine each: one that counts and times single
//! calls, one under the sanitizer if asked for, and, in turns with the other policies so that a machine whose speed
//! drifts treats all alike, untimed whole replays for the speed and back-to-back streams of the allocator calls for
//! the means. After each, every frame must be back.
mod clock;
mod engine;
mod events;
mod measure;
mod report;
mod sanitize;
mod stream;

use crate::{Context, Failure, print, progress};
use clock::{Clock, thread_time};
use engine::{Engine, Outcome, Unwatched, Watch};
pub use events::Loaded;
use measure::Measured;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::hosted::{CpuSlot, Host, HostConfig, HostMachine, NoTlb};
use ptarmigan::quicklist::{Layout, Policy};
use ptarmigan::tlb::Mmu;
use ptsan::{Arch, Config, Sanitizer};
use report::{LevelReport, Report, Run, SanitizerReport, TruthReport};
use sanitize::{Followed, SoftMmu};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use stream::Stream;

/// Replay recorded programs on the library.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// Traces; without any, the shipped compile.
    traces: Vec<PathBuf>,
    /// Policies: plain, v5, ptarmigan.
    #[arg(long, value_delimiter = ',', value_name = "POLICY,...", default_values = ["plain", "v5", "ptarmigan"])]
    policy: Vec<PolicyName>,
    /// NUMA nodes; recorded CPU c is on node c * nodes / cpus.
    #[arg(long, default_value_t = 1, value_name = "N")]
    nodes: usize,
    /// Memory of the machine: bytes, or with K, M, G or T behind the number.
    #[arg(long, default_value = "4G", value_parser = parse_size, value_name = "SIZE")]
    memory: u64,
    /// Run under the sanitizer, too; a finding fails the run, except for historic policies.
    #[arg(long)]
    sanitize: bool,
    /// Give data frames memory: clear and copy them for real.
    #[arg(long)]
    touch_data: bool,
    /// Go on when memory runs out, leaving out what could not be done.
    #[arg(long)]
    keep_going: bool,
    /// Lists of the v5 policy, 1 to 3.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    v5_lists: u8,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PolicyName {
    /// No caching.
    Plain,
    /// The Linux patch of 2007.
    V5,
    /// This library's quicklists.
    Ptarmigan,
}

impl PolicyName {
    fn name(self) -> &'static str {
        match self {
            PolicyName::Plain => "plain",
            PolicyName::V5 => "v5",
            PolicyName::Ptarmigan => "ptarmigan",
        }
    }

    /// Whether it breaks the rules by design: then its findings are counted, not failed.
    fn is_historic(self) -> bool {
        self == PolicyName::V5
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim().to_ascii_uppercase() {
        t if t.ends_with('K') => (t, 10),
        t if t.ends_with('M') => (t, 20),
        t if t.ends_with('G') => (t, 30),
        t if t.ends_with('T') => (t, 40),
        t => (t, 0),
    };
    let number = digits.trim_end_matches(['K', 'M', 'G', 'T']);
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| "a number of bytes, such as 4194304, 512M or 4G, is expected".to_owned())
}

/// The shipped compile.
const COMPILE: &[u8] = include_bytes!("../../../../traces/compile.ptrace");

/// What is done without a command: the shipped compile on all policies, under the sanitizer too.
///
/// # Errors
/// As [`run`].
pub fn default_run() -> Result<ExitCode, Failure> {
    let policy = vec![PolicyName::Plain, PolicyName::V5, PolicyName::Ptarmigan];
    run(&Args { policy, nodes: 1, memory: 4 << 30, sanitize: true, v5_lists: 2, ..Args::default() })
}

/// Replays.
///
/// # Errors
/// If a trace cannot be read, a number is out of range, memory ran out, the sanitizer found something in a policy
/// that is not historic, or a frame was lost.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut reports = Vec::new();
    let mut failures = Vec::new();
    let mut load = |trace: Result<Loaded, Failure>| -> Result<(), Failure> {
        let report = replay(&trace?, args, &mut failures)?;
        if !args.json {
            print::stdout(&report.text())?;
        }
        reports.push(report);
        Ok(())
    };
    if args.traces.is_empty() {
        load(Loaded::from_bytes(COMPILE, "the shipped compile"))?;
    }
    for path in &args.traces {
        load(Loaded::open(path))?;
    }
    if args.json {
        let text = match reports.as_slice() {
            [one] => serde_json::to_string_pretty(one),
            all => serde_json::to_string_pretty(all),
        };
        print::stdout(&(text.context("report")? + "\n"))?;
    }
    match failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Times that whole replays are repeated for the speed, and streams for the means; the medians are reported.
const SPEED_ROUNDS: usize = 3;
const STREAM_ROUNDS: usize = 7;

struct Replay<'a> {
    trace: &'a Loaded,
    args: &'a Args,
    clock: Clock,
}

/// What the counting pass brought.
struct Counted {
    policy: PolicyName,
    run: Run,
    stream: Stream,
    /// Sum of the single calls' times, by level.
    single: Vec<f64>,
    /// Round by round: the stream over the policy, and over nothing.
    stream_ns: Vec<(f64, f64)>,
    speed: Vec<f64>,
}

fn replay(trace: &Loaded, args: &Args, failures: &mut Vec<Failure>) -> Result<Report, Failure> {
    let replay = Replay { trace, args, clock: Clock::new() };
    let mut policies: Vec<PolicyName> = Vec::new();
    for policy in &args.policy {
        if !policies.contains(policy) {
            policies.push(*policy);
        }
    }
    let mut counted = Vec::new();
    for policy in policies {
        let (one, outcome) = replay.count(policy)?;
        if let Some((task, event, reason)) = outcome.first_out_of_memory {
            let failure = Failure::new(format!(
                "{}: policy {}: process {task} got no memory at event {event} ({reason}); {} time(s) in all; \
                 give --memory more than {} MiB",
                trace.name,
                policy.name(),
                outcome.out_of_memory,
                args.memory >> 20,
            ));
            if !args.keep_going {
                return Err(failure);
            }
            failures.push(failure);
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
    let bar = progress::bar(((SPEED_ROUNDS + STREAM_ROUNDS) * counted.len()) as u64, "measuring");
    for _ in 0..SPEED_ROUNDS {
        for one in &mut counted {
            one.speed.push(replay.speed(one.policy)?);
            bar.inc(1);
        }
    }
    for _ in 0..STREAM_ROUNDS {
        for one in &mut counted {
            one.stream_ns.push(replay.stream(one)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let runs = counted.into_iter().map(Counted::finish).collect();
    Ok(Report::new(trace, args.memory, replay.clock.resolution(), runs))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Counted {
    /// Puts the medians in. The stream's total is shared out among the levels as the single calls' times are.
    fn finish(mut self) -> Run {
        let mut own: Vec<f64> = self.stream_ns.iter().map(|(policy, nothing)| policy - nothing).collect();
        let mut nothing: Vec<f64> = self.stream_ns.iter().map(|(_, nothing)| *nothing).collect();
        let total = median(&mut own).max(0.0);
        let singles: f64 = self.single.iter().sum();
        let mut allocs = 0;
        for (level, single) in self.run.levels.0.iter_mut().zip(&self.single) {
            let share = if singles > 0.0 { single / singles } else { 0.0 };
            level.1.total_ns = total * share;
            level.1.mean_ns = level.1.total_ns / (level.1.allocs as f64).max(1.0);
            allocs += level.1.allocs;
        }
        self.run.mean_alloc_ns = total / (allocs as f64).max(1.0);
        self.run.stream_own_ns = median(&mut nothing) / (allocs as f64).max(1.0);
        self.run.events_per_s = median(&mut self.speed);
        self.run
    }
}

type TheFormat = X86_64;

/// Runs `$body` with `$made` the policy `$name` made for `$host`.
macro_rules! with_policy {
    ($host:expr, $args:expr, $name:expr, |$made:ident| $body:expr) => {
        match $name {
            PolicyName::Plain => {
                let $made = $host.plain().context("policy plain")?;
                $body
            }
            PolicyName::V5 => {
                let $made = $host.v5(usize::from($args.v5_lists)).context("policy v5")?;
                $body
            }
            PolicyName::Ptarmigan => {
                let $made = $host.quicklists().context("policy ptarmigan")?;
                $body
            }
        }
    };
}

impl Replay<'_> {
    fn host(&self) -> Result<Host<TheFormat>, Failure> {
        let config = HostConfig {
            cpus: self.trace.cpus,
            nodes: self.args.nodes,
            bytes: self.args.memory,
            touch_data: self.args.touch_data,
            ..HostConfig::default()
        };
        Host::new(config).context("cannot set the machine up")
    }

    /// One pass over the trace; afterwards every frame must be back.
    fn pass<P: Policy, S: Mmu, W: Watch>(
        &self,
        machine: &HostMachine<'_, TheFormat, P, S>,
        slots: &[CpuSlot],
        watch: W,
        what: (&'static str, bool),
    ) -> Result<(Outcome, f64), Failure> {
        let (name, visible) = what;
        let bar = if visible {
            progress::bar(self.trace.steps.len() as u64, name)
        } else {
            indicatif::ProgressBar::hidden()
        };
        let engine = Engine::<TheFormat, _, _>::new(machine, slots, self.trace, self.args.keep_going, watch)
            .context("cannot begin")?;
        let start = thread_time();
        let (outcome, _, _) = engine.run(self.trace, |done| bar.set_position(done));
        let seconds = (thread_time() - start).as_secs_f64();
        bar.finish_and_clear();
        machine.drain(slots);
        machine.host().audit().context("after the replay")?;
        Ok((outcome, seconds))
    }

    /// The pass that counts, times single calls and writes the allocator's calls down.
    fn count(&self, policy: PolicyName) -> Result<(Counted, Outcome), Failure> {
        let host = self.host()?;
        let slots = host.slots();
        with_policy!(host, self.args, policy, |made| {
            let measured = Measured::new(made, host.frames(), TheFormat::LAYOUT, self.clock);
            let machine = HostMachine::new(&host, measured, NoTlb).context("machine")?;
            // Caches are looked at before they are drained: `counts` of the policy as the replay left it.
            let (outcome, _) = self.pass(&machine, &slots, Unwatched, ("counting", true))?;
            let flushes = ptarmigan::table::Machine::tlb(&machine).counts();
            let counts = ptarmigan::table::Machine::policy(&machine).counts();
            let mut log = ptarmigan::table::Machine::policy(&machine).log();
            let layout: Layout = TheFormat::LAYOUT;
            let levels = (0..usize::from(layout.levels)).map(|level| {
                let (count, times) = (counts.levels[level], &log.times[level]);
                let quantile = |q| times.histogram.value_at_quantile(q) as f64;
                let report = LevelReport {
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
                };
                (TheFormat::LEVEL_NAMES[level], report)
            });
            let run = Run {
                policy: policy.name(),
                cpus: self.trace.cpus,
                nodes: self.args.nodes,
                levels: report::Levels(levels.collect()),
                mean_alloc_ns: 0.0,
                stream_own_ns: 0.0,
                events_per_s: 0.0,
                peak_live_tables: log.peak_live,
                peak_table_bytes: log.peak_bytes,
                peak_cached_bytes: log.peak_cached,
                flushes: flushes.into(),
                sanitizer: SanitizerReport::default(),
                truth: TruthReport::of(&outcome),
                faults_outside: outcome.outside,
                odd_calls: outcome.odd,
                first_odd_call: outcome.first_odd.clone(),
                skipped_events: outcome.skipped,
                out_of_memory: outcome.out_of_memory,
            };
            let single = log.times[..usize::from(layout.levels)].iter().map(|t| t.total).collect();
            let counted = Counted {
                policy,
                run,
                stream: Stream::new(&std::mem::take(&mut log.calls), log.slots_used),
                single,
                stream_ns: Vec::new(),
                speed: Vec::new(),
            };
            drop(log);
            Ok((counted, outcome))
        })
    }

    /// A pass under the sanitizer.
    fn sanitize(&self, policy: PolicyName) -> Result<SanitizerReport, Failure> {
        let host = self.host()?;
        let slots = host.slots();
        let config = Config { cpus: self.trace.cpus, eager_walkers: true, ..Config::new(Arch::x86_64()) };
        let mmu = SoftMmu::new(&host, Sanitizer::new(config));
        with_policy!(host, self.args, policy, |made| {
            let machine = HostMachine::new(&host, Followed::new(made, &mmu), &mmu).context("machine")?;
            self.pass(&machine, &slots, &mmu, ("sanitizing", true))?;
        });
        let mut sanitizer = mmu.sanitizer();
        sanitizer.finish();
        if !policy.is_historic()
            && let Some(finding) = sanitizer.findings().first()
        {
            print::error(&format!("policy {}: {finding}", policy.name()));
        }
        let mut kinds: BTreeMap<String, u64> =
            ptsan::Kind::ALL.iter().map(|kind| (kind.to_string(), sanitizer.count(*kind))).collect();
        kinds.insert("unserved-fault".to_owned(), mmu.unserved());
        kinds.retain(|_, n| *n > 0);
        Ok(SanitizerReport { ran: true, findings: kinds.values().sum(), kinds })
    }

    /// A pass that does nothing but replay; events per second.
    fn speed(&self, policy: PolicyName) -> Result<f64, Failure> {
        let host = self.host()?;
        let slots = host.slots();
        with_policy!(host, self.args, policy, |made| {
            let machine = HostMachine::new(&host, made, NoTlb).context("machine")?;
            let (_, seconds) = self.pass(&machine, &slots, Unwatched, ("", false))?;
            Ok(self.trace.steps.len() as f64 / seconds)
        })
    }

    /// The allocator's calls back to back, and the same over nothing; nanoseconds in all.
    fn stream(&self, counted: &Counted) -> Result<(f64, f64), Failure> {
        let host = self.host()?;
        let slots = host.slots();
        with_policy!(host, self.args, counted.policy, |made| {
            let machine = HostMachine::new(&host, made, NoTlb).context("machine")?;
            let policy = ptarmigan::table::Machine::policy(&machine);
            let what = "replaying the allocator's calls";
            let nothing = counted.stream.run(&stream::Nothing, &slots).context(what)?;
            let time = counted.stream.run(policy, &slots).context(what)?;
            machine.drain(&slots);
            host.audit().context("after the allocator's calls")?;
            Ok((time.as_nanos() as f64, nothing.as_nanos() as f64))
        })
    }
}
