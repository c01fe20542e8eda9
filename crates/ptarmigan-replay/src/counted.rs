//! Replays recordings for the tables that they make: counts and times by class of operation.
use super::instruments::classes::{ByClass, ClassCount, OpClass, TableCounts};
use super::linux::{Blocks, RECORDED_EMPTY_TABLES};
use super::platform::RecordedX86;
use super::setup::{Setup, SoloTrace};
use super::workers::job::Job;
use super::workers::watch::{Watch, watches};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Layered, ListsConfig, Policy};
use ptarmigan::space::EmptyTables;
use ptarmigan::tlb::{CostModel, FlushCounts, TlbConfig};
use ptarmigan_bench::clock::Clock;
use ptarmigan_hosted::Delivery;
use ptarmigan_term::{Context, Failure};

/// The machine that a recording is replayed on.
#[derive(Clone, Copy, Debug)]
pub struct CountedMachine {
    /// Bytes of memory.
    pub memory: u64,
    /// Pages in a magazine; 0 turns caching off.
    pub magazine: usize,
    /// Pages that are cached at the most; `None`: a sixteenth of the memory.
    pub budget: Option<u32>,
    /// How TLBs are flushed.
    pub costs: CostModel,
    /// Whether spaces have large pages where the recorded ones had.
    pub large_pages: bool,
    /// The empty tables that spaces give back.
    pub empty_tables: EmptyTables,
    /// The blocks of pages that a fault on anonymous memory maps; `None`: those of the recorded
    /// machine.
    pub blocks: Option<Blocks>,
}

impl CountedMachine {
    /// Returns a machine as the library sets it up by itself.
    pub fn usual(memory: u64) -> Self {
        let magazine = ListsConfig::new(1).magazine;
        CountedMachine {
            memory,
            magazine,
            budget: None,
            costs: CostModel::LINUX,
            large_pages: false,
            empty_tables: RECORDED_EMPTY_TABLES,
            blocks: None,
        }
    }
}

/// Large pages of one replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargeCounts {
    /// Faults that mapped one.
    pub mapped: u64,
    /// Large pages that were split.
    pub splits: u64,
    /// The most tables at once, roots included, with those that were reserved for splits.
    pub peak_with_reserve: u64,
}

/// Counts of one replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountedRun {
    /// By the number of the class.
    pub classes: [ClassCount; OpClass::ALL.len()],
    /// Processor time of the worker, in nanoseconds.
    pub processor_ns: f64,
    /// Tables made, roots included: those of the classes, and the root of the first space.
    pub made: u64,
    /// The leaf tables of these.
    pub leaves_made: u64,
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
    /// Faults that found their page mapped, with the permissions that they asked for.
    pub found_mapped: u64,
    /// Large pages.
    pub large: LargeCounts,
    /// Samples of Linux's count of tables that were compared, and those that were equal.
    pub samples: (u64, u64),
}

impl CountedRun {
    /// Returns the tables that calls took away before their space ended.
    #[must_use]
    pub fn freed_by_calls(&self) -> u64 {
        self.classes.iter().map(|class| class.freed).sum::<u64>().saturating_sub(self.at_end)
    }
}

impl SoloTrace {
    /// Replays the recording, and counts.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn count(&self, on: &CountedMachine, clock: Clock) -> Result<CountedRun, Failure> {
        let setup = self.on(on.memory);
        let lists = ListsConfig { magazine: on.magazine, fixed_budget: on.budget, ..setup.lists };
        let tlb = TlbConfig { costs: on.costs, ..setup.tlb };
        let CountedMachine { large_pages, empty_tables, .. } = *on;
        let blocks = on.blocks.unwrap_or(setup.job.blocks);
        let job = Job { large_pages, empty_tables, blocks, ..setup.job };
        let setup = Setup { job, lists, tlb, ..setup };
        let fresh = setup.fresh()?;
        let tables = TableCounts::new(fresh.host().frames(), on.large_pages);
        let layered = Layered::new(tables, fresh.quicklists()?).context("layers")?;
        let (tables, policy): (_, &dyn Policy) = (layered.layer(), &layered);
        let machine = fresh.machine(policy, RecordedX86::NO_MMU, Delivery::AtOnce)?;
        let mut by_class = [ByClass::new(tables, self.trace(), &self.program().ops, clock)];
        let ran = fresh.run(&machine, watches(&mut by_class), None)?;
        setup.check_memory(&ran.outcome)?;
        let counts = layered.counts();
        let sum =
            |of: fn(&ptarmigan::quicklist::LevelCounts) -> usize| counts.levels.iter().map(of).sum::<usize>();
        let [ByClass { counts: classes, at_end, .. }] = by_class;
        Ok(CountedRun {
            classes,
            processor_ns: ran.elapsed.processor.as_nanos() as f64,
            at_end,
            made: tables.made(),
            leaves_made: counts.levels.first().map_or(0, |leaves| leaves.allocs) as u64,
            peak: tables.peak(),
            misses: sum(|level| level.misses) as u64,
            refills: sum(|level| level.refills) as u64,
            cached: tables.peak_cached(),
            flushes: machine.tlb().counts(),
            found_mapped: ran.outcome.found_mapped,
            large: LargeCounts {
                mapped: ran.outcome.large_pages,
                splits: ran.outcome.large_splits,
                peak_with_reserve: tables.peak_with_reserve(),
            },
            samples: (ran.outcome.checked, ran.outcome.equal),
        })
    }

    /// Replays the recording under the eyes of `watch`.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn watch(&self, on: &CountedMachine, watch: &mut (dyn Watch + Send)) -> Result<(), Failure> {
        let setup = self.on(on.memory);
        let fresh = setup.fresh()?;
        let lists = fresh.quicklists()?;
        let machine = fresh.machine(&lists as &dyn Policy, RecordedX86::NO_MMU, Delivery::AtOnce)?;
        let ran = fresh.run(&machine, vec![watch], None)?;
        setup.check_memory(&ran.outcome)
    }
}
