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
mod mappings;
mod programs;
mod repeat;
mod work;

pub use axis::Axis;
pub use mappings::{Mapping, MappingKind, MappingTracker, PageAt, SpaceMap};
pub use programs::{Programs, RecordedProgram};
pub use repeat::PolicyRun;
pub use work::{FunctionWork, MappingWork, Work, WorkSurvey};

use super::causes::{self, Cause};
use super::counted::{CountedMachine, CountedRun};
use super::flushes::{Flushes, FlushesByCause, LibraryFlushes};
use super::input::schedule::Op;
use super::input::trace::Trace;
use super::instruments::lives::{FlushSample, Life, LifeWatch, Lives};
use super::instruments::measured::Measured;
use super::instruments::stream::Stream;
use super::linux::HugeFaults;
use super::platform::RecordedX86;
use super::report::TruthReport;
use super::setup::{Setup, SoloTrace};
use super::workers::look::SpaceLook;
use ptarmigan::addr::VirtRange;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::machine::{Machine, On};
use ptarmigan::quicklist::{Layered, Policy};
use ptarmigan::space::Space;
use ptarmigan_bench::clock::Clock;
use ptarmigan_hosted::Delivery;
use ptarmigan_term::{Context, Failure};

/// A recording that is ready to be observed.
pub struct ObservedTrace {
    solo: SoloTrace,
    memory: u64,
    clock: Clock,
}

/// Observations of the pass.
pub struct Observation {
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
    /// The same by cause.
    pub flushes_by_cause: LibraryFlushes,
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
    /// Plans the replay of a trace on a machine of `memory` bytes.
    pub fn new(trace: Trace, memory: u64) -> Self {
        ObservedTrace { solo: SoloTrace::new(trace), memory, clock: Clock::calibrate() }
    }

    /// Returns the trace.
    pub fn trace(&self) -> &Trace {
        self.solo.trace()
    }

    /// Returns the recording with the plan of its replay.
    pub fn solo(&self) -> &SoloTrace {
        &self.solo
    }

    /// Returns its axis.
    pub fn axis(&self) -> Axis<'_> {
        Axis::of(self.trace())
    }

    /// Returns its programs.
    pub fn programs(&self) -> Programs {
        Programs::of(self.trace(), self.solo.schedule())
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
        &self.solo.program().ops
    }

    fn origins(&self) -> &[u32] {
        &self.solo.program().origins
    }

    /// Returns the cause that an operation is.
    pub fn cause(&self, op: u32) -> Cause {
        Cause::of(self.trace(), self.ops(), op)
    }

    /// Returns the work by mapping and by function. The replay `seen` tells which faults have made
    /// leaf tables.
    pub fn work(&self, seen: &Observation) -> Work {
        let leaves = seen.lives.iter().filter(|life| life.level == 0);
        let made_by = leaves.filter_map(|life| {
            let op = seen.calls.get(life.made as usize).copied()?;
            let step = self.origins().get(op as usize).copied()?;
            (self.cause(op) == Cause::Fault).then_some(step)
        });
        let mut tables: Vec<u32> = made_by.collect();
        tables.sort_unstable();
        WorkSurvey::of(self.trace(), &tables)
    }

    /// Returns the space for which an operation makes tables.
    pub fn space(&self, op: u32) -> u32 {
        causes::space_of(self.ops(), op)
    }

    /// Returns the step of the trace that an operation carries out. `None` for one before the first
    /// step or after the last.
    pub fn step(&self, op: u32) -> Option<u32> {
        self.origins().get(op as usize).copied()
    }

    /// Returns where an operation is on the axis.
    pub fn at(&self, op: u32) -> u64 {
        match self.origins().get(op as usize) {
            Some(step) => self.axis().at(*step),
            None if op == causes::START => 0,
            None => self.axis().end(),
        }
    }

    fn setup(&self) -> Setup<'_, RecordedX86> {
        self.solo.on(self.memory)
    }

    /// Replays the recording once more, with large pages where the recorded Linux had huge ones.
    /// `None` if it had none.
    ///
    /// # Errors
    /// As for [`observe`](Self::observe).
    pub fn count_large(&self) -> Result<Option<CountedRun>, Failure> {
        if self.trace().huge == HugeFaults::Never {
            return Ok(None);
        }
        let on = CountedMachine { large_pages: true, ..CountedMachine::usual(self.memory) };
        self.solo.count(&on, self.clock).map(Some)
    }

    /// Replays the recording and looks. The axis is cut into at most `parts` parts.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn observe(&self, parts: usize) -> Result<Observation, Failure> {
        let setup = self.setup();
        let fresh = setup.fresh()?;
        let frames = fresh.host().frames();
        let measured = Measured::new(frames, X86_64::LAYOUT, self.clock);
        let layered = Layered::new(measured, fresh.quicklists()?).context("layers")?;
        let layered = Layered::new(Lives::new(frames), layered).context("layers")?;
        let (lives, policy): (_, &dyn Policy) = (layered.layer(), &layered);
        let machine = fresh.machine(policy, RecordedX86::NO_MMU, Delivery::AtOnce)?;
        let bounds = self.axis().cut(self.origins(), parts);
        let mut samples_at = bounds.clone();
        samples_at.dedup();
        samples_at.retain(|&ops| ops > 0);
        let mut watch = LifeWatch {
            lives,
            trace: self.trace(),
            samples_at: &samples_at,
            flushes: FlushesByCause::new(self.trace(), self.ops(), || machine.tlb().counts()),
            samples: Vec::new(),
        };
        let look = |on: On<'_, _>, space: &Space<X86_64>| {
            lives.look(&SpaceLook { space, on }, VirtRange::up_to(u64::MAX));
        };
        let ran = fresh.run_and_look(&machine, vec![&mut watch], Some("replaying"), &look)?;
        setup.check_memory(&ran.outcome)?;
        let LifeWatch { samples, flushes: by_cause, .. } = watch;
        let flushes = machine.tlb().counts().into();
        let log = std::mem::take(&mut *lives.log());
        let calls = layered.inner().layer().log();
        Ok(Observation {
            lives: log.lives,
            calls: log.calls,
            bounds,
            samples,
            flushes,
            flushes_by_cause: by_cause.finish(),
            peak: (calls.peak_live, calls.peak_bytes),
            truth: TruthReport::of(&ran.outcome),
            odd: (ran.outcome.outside, ran.outcome.odd),
            stream: Stream::new(&calls.calls, calls.slots_used),
            levels: Stream::by_level(&calls.calls, calls.slots_used, X86_64::LEVEL_NAMES.len()),
        })
    }
}
