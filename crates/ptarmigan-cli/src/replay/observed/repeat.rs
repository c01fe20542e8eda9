//! The calls of an observed pass, made again on a policy.
use super::{Observation, ObservedTrace};
use crate::error::{Context, Failure};
use crate::measure::stats::median;
use crate::replay::instruments::levels::Levels;
use crate::replay::instruments::measured::{LevelTimes, Measured};
use crate::replay::instruments::stream::{Nothing, Stream};
use crate::replay::policy::{Choice, PolicyName, with_policy};
use crate::replay::report::LevelReport;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Layered, ListsConfig, Policy, Rules};
use ptarmigan_hosted::{HostMachine, NoTlb};

/// Rounds whose median is the mean time of an allocation.
const ROUNDS: usize = 3;

/// One policy.
pub(crate) struct PolicyRun {
    /// The policy.
    pub choice: Choice,
    /// Counts and times by level.
    pub levels: Levels<LevelReport>,
    /// The times of single calls, by level.
    pub times: Vec<LevelTimes>,
    /// Mean time of an allocation, called back to back, with its share of frees and trimming, in
    /// nanoseconds.
    pub mean_alloc_ns: f64,
    /// The most bytes cached.
    pub peak_cached_bytes: u64,
    /// Bytes cached from some call on, each time that they had changed.
    pub cached: Vec<(u32, u64)>,
}

impl ObservedTrace {
    /// Makes the calls of an observation again.
    ///
    /// # Errors
    /// If the machine cannot be set up, memory runs out, or frames are lost.
    pub fn repeat(&self, seen: &Observation, choice: Choice) -> Result<PolicyRun, Failure> {
        let mut run = self.count(seen, choice)?;
        let all = self.rounds(&seen.stream, choice)?;
        run.mean_alloc_ns = median(all).max(0.0) / (run.levels.allocs() as f64).max(1.0);
        for ((_, level), stream) in run.levels.0.iter_mut().zip(&seen.levels) {
            level.time(self.rounds(stream, choice)?);
        }
        Ok(run)
    }

    /// Counts, and times single calls.
    fn count(&self, seen: &Observation, choice: Choice) -> Result<PolicyRun, Failure> {
        let host = self.host()?;
        let slots = host.slots();
        with_policy!(host, host.source(), choice, ListsConfig::new(self.schedule.cpus), |made| {
            let machine = HostMachine::new(&host, made, NoTlb).context("machine")?;
            let policy = machine.policy();
            let measured = Measured::new(host.frames(), X86_64::LAYOUT, self.clock);
            let layered = Layered::new(measured, policy).context("layers")?;
            seen.stream.run(&layered, &slots).context(WHAT)?;
            let counts = policy.counts();
            machine.drain(&slots);
            host.audit().context(WHAT)?;
            let mut log = layered.layer().log();
            let names = X86_64::LEVEL_NAMES.iter().zip(&counts.levels).zip(&log.times);
            let levels = names.map(|((name, count), times)| (*name, LevelReport::new(count, times)));
            let levels = Levels(levels.collect::<Vec<_>>());
            let mut times = std::mem::take(&mut log.times);
            times.truncate(levels.0.len());
            Ok(PolicyRun {
                choice,
                levels,
                times,
                mean_alloc_ns: 0.0,
                peak_cached_bytes: log.peak_cached,
                cached: std::mem::take(&mut log.cached),
            })
        })
    }

    fn rounds(&self, stream: &Stream, choice: Choice) -> Result<Vec<f64>, Failure> {
        (0..ROUNDS).map(|_| self.time(stream, choice)).collect()
    }

    /// Returns the processor time of all calls back to back, without that of the loop that makes
    /// them, in nanoseconds.
    fn time(&self, stream: &Stream, choice: Choice) -> Result<f64, Failure> {
        let host = self.host()?;
        let slots = host.slots();
        with_policy!(host, host.source(), choice, ListsConfig::new(self.schedule.cpus), |made| {
            let machine = HostMachine::new(&host, made, NoTlb).context("machine")?;
            let nothing = stream.run(&Nothing(host.machine()), &slots).context(WHAT)?;
            let time = stream.run(machine.policy(), &slots).context(WHAT)?;
            machine.drain(&slots);
            host.audit().context(WHAT)?;
            Ok(time.as_nanos() as f64 - nothing.as_nanos() as f64)
        })
    }
}

const WHAT: &str = "repeating the allocator's calls";
