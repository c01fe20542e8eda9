//! Replays recordings with one worker, for the tables that they make: counts and times by class of
//! operation.
use super::input::schedule::{CpuMap, Op, Program, Schedule};
use super::input::trace::Trace;
use super::instruments::classes::{ByClass, ClassCount, OpClass, TableCounts};
use super::workers::job::Job;
use super::workers::machine::EitherMachine;
use super::workers::outcome::Outcome;
use super::workers::watch::Watch;
use crate::error::{Context, Failure};
use crate::measure::clock::Clock;
use ptarmigan::format::X86_64;
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Layered, ListsConfig, Policy};
use ptarmigan::tlb::{CostModel, FlushCounts, TlbConfig};
use ptarmigan_hosted::{Delivery, Host, HostConfig, HostMachine, NoTlb};

/// The machine that a recording is replayed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedMachine {
    /// Bytes of memory.
    pub memory: u64,
    /// Pages in a magazine; 0 turns caching off.
    pub magazine: usize,
    /// Pages that are cached at the most; `None`: a sixteenth of the memory.
    pub budget: Option<u32>,
    /// How TLBs are flushed.
    pub costs: CostModel,
}

impl CountedMachine {
    /// Returns a machine as the library sets it up by itself.
    pub fn usual(memory: u64) -> Self {
        let magazine = ListsConfig::new(1).magazine;
        CountedMachine { memory, magazine, budget: None, costs: CostModel::LINUX }
    }
}

/// Counts of one replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountedRun {
    /// By the number of the class.
    pub classes: [ClassCount; OpClass::ALL.len()],
    /// Processor time of the worker, in nanoseconds.
    pub processor_ns: f64,
    /// Tables made, roots included: those of the classes, and the root of the first space.
    pub made: u64,
    /// The most tables at once, roots included.
    pub peak: u64,
    /// Tables that spaces had when an exit or an `execve` ended them.
    pub at_end: u64,
    /// Pages that came from the frame allocator.
    pub misses: u64,
    /// Magazines that the depot moved to a CPU.
    pub refills: u64,
    /// The most pages that were cached at once.
    pub cached: u64,
    /// Flushes.
    pub flushes: FlushCounts,
    /// Samples of Linux's count of tables that were compared, and those that were equal.
    pub samples: (u64, u64),
}

/// A recording, ready to be replayed by one worker.
pub(crate) struct CountedTrace {
    trace: Trace,
    schedule: Schedule,
}

impl CountedTrace {
    /// Plans the replay of a recording.
    pub fn new(trace: Trace) -> Self {
        let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, trace.cpus), true);
        CountedTrace { trace, schedule }
    }

    /// Returns the recording.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the only worker's program.
    pub fn program(&self) -> &Program {
        &self.schedule.programs[0]
    }

    fn job(&self) -> Job<'_> {
        Job { trace: &self.trace, schedule: &self.schedule, copies: 1, keep_going: false, idle_zero: 0 }
    }

    /// Replays the recording, and counts.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn run(&self, on: &CountedMachine, clock: Clock) -> Result<CountedRun, Failure> {
        let host = self.host(on)?;
        let lists = host.quicklists_with(Self::lists(on, host.config().cpus)).context("lists")?;
        let layered = Layered::new(TableCounts::new(host.frames()), lists).context("layers")?;
        let policy: &dyn Policy = &layered;
        let tlb = TlbConfig { costs: on.costs, ..TlbConfig::new(host.config().cpus) };
        let machine =
            HostMachine::with_tlb(&host, policy, NoTlb, tlb, Delivery::AtOnce).context("machine")?;
        let tables = layered.layer();
        let ops: &[Op] = &self.program().ops;
        let watch = || ByClass::new(tables, &self.trace, ops, clock);
        let (outcome, elapsed, watches) = self.job().run(&EitherMachine::low(&machine), &watch, &|_| {})?;
        self.lasted(&outcome, on)?;
        let counts = layered.counts();
        let sum =
            |of: fn(&ptarmigan::quicklist::LevelCounts) -> usize| counts.levels.iter().map(of).sum::<usize>();
        let (classes, at_end) = watches.first().map(|watch| (watch.counts, watch.at_end)).unwrap_or_default();
        Ok(CountedRun {
            classes,
            processor_ns: elapsed.processor.as_nanos() as f64,
            at_end,
            made: tables.made(),
            peak: tables.peak(),
            misses: sum(|level| level.misses) as u64,
            refills: sum(|level| level.refills) as u64,
            cached: tables.peak_cached(),
            flushes: machine.tlb().counts(),
            samples: (outcome.checked, outcome.equal),
        })
    }

    /// Replays the recording under an observer.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn observe<'w, W: Watch + Send + 'w>(
        &'w self,
        on: &CountedMachine,
        watch: impl Fn() -> W + Sync,
    ) -> Result<W, Failure> {
        let host = self.host(on)?;
        let lists = host.quicklists().context("lists")?;
        let policy: &dyn Policy = &lists;
        let machine = HostMachine::new(&host, policy, NoTlb).context("machine")?;
        let (outcome, _, watches) = self.job().run(&EitherMachine::low(&machine), &watch, &|_| {})?;
        self.lasted(&outcome, on)?;
        watches.into_iter().next().ok_or_else(|| Failure::new("no worker ran"))
    }

    fn host(&self, on: &CountedMachine) -> Result<Host<X86_64>, Failure> {
        let config = HostConfig { cpus: self.schedule.cpus, bytes: on.memory, ..HostConfig::default() };
        Host::new(config).context("the machine cannot be set up")
    }

    fn lists(on: &CountedMachine, cpus: usize) -> ListsConfig {
        ListsConfig { magazine: on.magazine, fixed_budget: on.budget, ..ListsConfig::new(cpus) }
    }

    fn lasted(&self, outcome: &Outcome, on: &CountedMachine) -> Result<(), Failure> {
        let Some((event, task, reason)) = outcome.first_out_of_memory else { return Ok(()) };
        Err(Failure::new(format!(
            "{}: process {task} got no memory at event {event} ({reason}); give --memory more than {} MiB",
            self.trace.name,
            on.memory >> 20
        )))
    }
}
