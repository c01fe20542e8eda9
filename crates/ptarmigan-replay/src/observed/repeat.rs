//! The calls of an observed pass, made again on a policy.
use super::{Observation, ObservedTrace};
use crate::instruments::levels::Levels;
use crate::instruments::measured::{LevelTimes, Measured};
use crate::instruments::stream::Stream;
use crate::platform::RecordedX86;
use crate::policy::{Choice, with_policy};
use crate::report::LevelReport;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Layered, Policy};
use ptarmigan_bench::stats::median;
use ptarmigan_hosted::Delivery;
use ptarmigan_term::{Context, Failure};

/// Rounds whose median is the mean time of an allocation.
const ROUNDS: usize = 3;

/// One policy.
pub struct PolicyRun {
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
        let fresh = self.setup().fresh()?;
        let host = fresh.host();
        let slots = host.slots();
        with_policy!(fresh, choice, |made| {
            let machine = fresh.machine(made, RecordedX86::NO_MMU, Delivery::AtOnce)?;
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

    /// Returns the processor times of all calls back to back, without that of the loop that makes
    /// them, in nanoseconds.
    fn rounds(&self, stream: &Stream, choice: Choice) -> Result<Vec<f64>, Failure> {
        let round = |_| self.setup().stream(choice, stream).map(|(policy, nothing)| policy - nothing);
        (0..ROUNDS).map(round).collect()
    }
}

const WHAT: &str = "repeating the allocator's calls";
