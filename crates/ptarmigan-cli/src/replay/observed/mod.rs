//! Replays one recording once and writes down the lives of its tables: the data of a report.
//!
//! # Passes
//!
//! 1. [`ObservedTrace::observe`] replays the recording on the library's policy with one worker. It
//!    writes down the life of each table, counts flushes and logs the calls of the policy.
//! 2. [`ObservedTrace::repeat`] makes the same calls again on any policy, without the replay. All
//!    policies get the same calls: the tables of a trace do not depend on where their pages come
//!    from. So counts are those of a whole replay on that policy.
mod axis;
mod causes;
mod programs;
mod repeat;

pub(crate) use axis::Axis;
pub(crate) use causes::Cause;
pub(crate) use programs::{Programs, RecordedProgram};
pub(crate) use repeat::PolicyRun;

use super::input::schedule::{CpuMap, Op, Schedule};
use super::input::trace::Trace;
use super::instruments::lives::{FlushSample, Life, LifeWatch, Lives};
use super::instruments::measured::Measured;
use super::instruments::stream::Stream;
use super::report::{Flushes, TruthReport};
use super::workers::job::Job;
use super::workers::machine::EitherMachine;
use super::workers::outcome::Outcome;
use crate::bar;
use crate::error::{Context, Failure};
use crate::measure::clock::Clock;
use crate::shipped::COMPILE;
use ptarmigan::addr::VirtRange;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Layered, ListsConfig, Policy};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine, NoTlb};
use std::path::Path;

/// A recording that is ready to be observed.
pub(crate) struct ObservedTrace {
    trace: Trace,
    schedule: Schedule,
    memory: u64,
    clock: Clock,
}

/// Observations of the pass.
pub(crate) struct Observation {
    /// The lives of all tables, in order of birth.
    pub lives: Vec<Life>,
    /// For each call of the policy, the operation that it belongs to.
    pub calls: Vec<u32>,
    /// The ends of the parts that the axis was cut into, as numbers of operations.
    pub bounds: Vec<u32>,
    /// Flushes up to each of them, as far as they differ.
    pub samples: Vec<FlushSample>,
    /// All flushes.
    pub flushes: Flushes,
    /// Of these, flushes that come from pages found at stops.
    pub found_flushes: u64,
    /// The most tables at once, and the most bytes in tables.
    pub peak: (u64, u64),
    /// Comparison with Linux's counts of tables.
    pub truth: TruthReport,
    /// Faults outside all areas, calls that a space refused.
    pub odd: (u64, u64),
    stream: Stream,
    /// The calls of each level by themselves.
    levels: Vec<Stream>,
}

impl ObservedTrace {
    /// Reads a trace, `None` for the shipped recording of a compile. `memory` is that of the
    /// machine that it is replayed on, in bytes.
    ///
    /// # Errors
    /// If the file is not a recording.
    pub fn read(path: Option<&Path>, memory: u64) -> Result<Self, Failure> {
        let trace = match path {
            Some(path) => Trace::open(path)?,
            None => Trace::from_bytes(COMPILE, "the shipped compile")?,
        };
        let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, trace.cpus), true);
        Ok(ObservedTrace { trace, schedule, memory, clock: Clock::new() })
    }

    /// Returns the trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns its axis.
    pub fn axis(&self) -> Axis<'_> {
        Axis::of(&self.trace)
    }

    /// Returns its programs.
    pub fn programs(&self) -> Programs {
        Programs::of(&self.trace, &self.schedule)
    }

    /// Returns the resolution of the clock, in nanoseconds.
    pub fn resolution(&self) -> f64 {
        self.clock.resolution()
    }

    /// Returns the names of the levels, lowest first.
    pub fn levels() -> &'static [&'static str] {
        X86_64::LEVEL_NAMES
    }

    fn ops(&self) -> &[Op] {
        self.schedule.programs.first().map_or(&[], |program| &program.ops)
    }

    fn origins(&self) -> &[u32] {
        self.schedule.programs.first().map_or(&[], |program| &program.origins)
    }

    /// Returns the cause that an operation is.
    pub fn cause(&self, op: u32) -> Cause {
        Cause::of(&self.trace, self.ops(), op)
    }

    /// Returns the space for which an operation makes tables.
    pub fn space(&self, op: u32) -> u32 {
        causes::space_of(self.ops(), op)
    }

    /// Returns where an operation is on the axis.
    pub fn at(&self, op: u32) -> u64 {
        match self.origins().get(op as usize) {
            Some(step) => self.axis().at(*step),
            None if op == super::instruments::lives::START => 0,
            None => self.axis().end(),
        }
    }

    fn host(&self) -> Result<Host<X86_64>, Failure> {
        let config = HostConfig { cpus: self.schedule.cpus, bytes: self.memory, ..HostConfig::default() };
        Host::new(config).context("the machine cannot be set up")
    }

    /// Replays the recording and looks. The axis is cut into at most `parts` parts.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn observe(&self, parts: usize) -> Result<Observation, Failure> {
        let job =
            Job { trace: &self.trace, schedule: &self.schedule, copies: 1, keep_going: false, idle_zero: 0 };
        let cpus = job.cpus();
        let host = self.host()?;
        let lists = host.quicklists_of(ListsConfig::new(cpus), host.source()).context("lists")?;
        let measured = Measured::new(host.frames(), X86_64::LAYOUT, self.clock);
        let layered =
            Layered::new(Lives::new(host.frames()), Layered::new(measured, lists).context("layers")?)
                .context("layers")?;
        let (lives, policy): (_, &dyn Policy) = (layered.layer(), &layered);
        let tlb = TlbConfig { asids: 0, park: 0, ..TlbConfig::new(cpus) };
        let machine =
            HostMachine::with_tlb(&host, policy, NoTlb, tlb, Delivery::AtOnce).context("machine")?;
        let bounds = self.axis().cut(self.origins(), parts);
        let mut samples_at = bounds.clone();
        samples_at.dedup();
        samples_at.retain(|&ops| ops > 0);
        let bar = bar::bar(self.ops().len() as u64, "replaying");
        let watch = || {
            lives.begin();
            LifeWatch {
                lives,
                trace: &self.trace,
                samples_at: &samples_at,
                flushes: Box::new(|| machine.tlb().counts()),
                samples: Vec::new(),
                ops: self.ops(),
                found: 0,
                before: 0,
            }
        };
        let either = EitherMachine::low(&machine);
        let look = |on: ptarmigan::machine::On<'_, _>, space: &_| {
            lives.look::<X86_64, _>(on, space, VirtRange { start: 0, end: u64::MAX });
        };
        let (outcome, _, watches) = job.run_and_look(&either, &watch, &|done| bar.inc(done), &look)?;
        bar.finish_and_clear();
        self.check_memory(&outcome)?;
        let mut found_flushes = 0;
        let samples = watches.into_iter().flat_map(|watch| {
            found_flushes += watch.found;
            watch.samples
        });
        let samples = samples.collect();
        let flushes = machine.tlb().counts().into();
        let log = std::mem::take(&mut *lives.log());
        let calls = layered.inner().layer().log();
        Ok(Observation {
            lives: log.lives,
            calls: log.calls,
            bounds,
            samples,
            flushes,
            found_flushes,
            peak: (calls.peak_live, calls.peak_bytes),
            truth: TruthReport::of(&outcome),
            odd: (outcome.outside, outcome.odd),
            stream: Stream::new(&calls.calls, calls.slots_used),
            levels: Stream::by_level(&calls.calls, calls.slots_used, X86_64::LEVEL_NAMES.len()),
        })
    }

    fn check_memory(&self, outcome: &Outcome) -> Result<(), Failure> {
        match outcome.first_out_of_memory {
            None => Ok(()),
            Some((event, task, reason)) => Err(Failure::new(format!(
                "{}: process {task} got no memory at event {event} ({reason}); give --memory more than {} MiB",
                self.trace.name,
                self.memory >> 20
            ))),
        }
    }
}
