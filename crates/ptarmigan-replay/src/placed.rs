//! Recordings replayed on a 32-bit machine with PAE, where leaf tables are placed as `userpte=`
//! says: times, and counts of tables and windows.
use super::high::UserPteReport;
use super::input::trace::Trace;
use super::instruments::peaks::Peaks;
use super::platform::{PlacedTables, Platform, ReachedTables, Walked};
use super::setup::{FreshHost, Setup, SoloTrace};
use super::workers::job::{Elapsed, Job};
use ptarmigan::format::{Format, X86Pae};
use ptarmigan::params::UserPte;
use ptarmigan::quicklist::{Layered, Policy, PolicyCounts};
use ptarmigan_hosted::{Delivery, HighConfig, HostConfig, Kmap, SlotKind};
use ptarmigan_term::words::several;
use ptarmigan_term::{Context, Failure};
use std::path::Path;
use std::time::Duration;

/// Slots of the pool through which the kernel maps data frames, as on Linux.
const POOL_SLOTS: usize = 1024;

/// The machine that it is replayed on.
#[derive(Clone, Copy, Debug)]
pub struct PlacedMachine {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of low memory, less than all.
    pub low: u64,
    /// Whether data frames have memory behind them, which is cleared and copied.
    pub touch_data: bool,
    /// Copies of the recording that run at once, with a worker each.
    pub copies: usize,
}

/// A recording, moved to 3 GiB.
pub struct PlacedTrace(SoloTrace);

type Machine = Walked<X86Pae, PlacedTables>;

/// The time of one replay, and the places of its tables.
#[derive(Clone, Copy, Debug)]
pub struct PlacedRun {
    /// Processor time of the workers: the library's calls, and the loop that makes them.
    pub calls: Duration,
    /// Tables and windows.
    pub tables: UserPteReport,
    /// Tables of all levels that were made and given back, whatever their memory.
    pub all_tables: u64,
}

/// How much memory tables took at most, and where they were.
#[derive(Clone, Copy, Debug)]
pub struct PlacedPeaks {
    /// Bytes of low memory in tables of all levels.
    pub low: u64,
    /// Bytes of high memory in leaf tables.
    pub high: u64,
    /// Tables and windows.
    pub tables: UserPteReport,
}

impl PlacedTrace {
    /// Reads a recording, `None` for the default one, moves it and plans its replay.
    ///
    /// # Errors
    /// If it is not a recording, or does not fit into 3 GiB.
    pub fn read(path: Option<&Path>) -> Result<Self, Failure> {
        Self::new(Trace::open_or_default(path)?)
    }

    /// Moves a recording and plans its replay.
    ///
    /// # Errors
    /// If it does not fit into 3 GiB.
    pub fn new(mut trace: Trace) -> Result<Self, Failure> {
        Machine::small(UserPte::NoHigh).room().map(|room| trace.relayout(room)).transpose()?;
        Ok(PlacedTrace(SoloTrace::new(trace)))
    }

    /// Returns its name, and how many processes, events and faults it has.
    pub fn describe(&self) -> String {
        let Trace { name, processes, events, faults, .. } = self.0.trace();
        let [processes, events, faults] = [(*processes, "process"), (*events, "event"), (*faults, "fault")]
            .map(|(n, thing)| several(n, thing));
        format!("{name}: {processes}, {events}, {faults}")
    }

    /// Replays it on the library's policy.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn run(&self, on: &PlacedMachine, userpte: UserPte) -> Result<PlacedRun, Failure> {
        let platform = Machine::small(userpte);
        let setup = self.setup(&platform, on);
        let fresh = setup.fresh()?;
        let (elapsed, counts) = execute(&setup, &fresh, &fresh.quicklists()?)?;
        let all_tables = counts.levels.iter().map(|level| level.allocs as u64).sum();
        let calls = elapsed.processor * setup.job.workers() as u32;
        Ok(PlacedRun { calls, tables: tables(&fresh, &counts)?, all_tables })
    }

    /// Replays it on the library's policy, and finds the peaks of low and high memory in tables. No
    /// time is measured.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn peaks(&self, on: &PlacedMachine, userpte: UserPte) -> Result<PlacedPeaks, Failure> {
        let platform = Machine::small(userpte);
        let setup = self.setup(&platform, on);
        let fresh = setup.fresh()?;
        let peaks = Peaks::new(fresh.host().frames(), X86Pae::LAYOUT);
        let layered = Layered::new(peaks, fresh.quicklists()?).context("layers")?;
        let (_, counts) = execute(&setup, &fresh, &layered)?;
        let [low, high] = layered.layer().most();
        Ok(PlacedPeaks { low, high, tables: tables(&fresh, &counts)? })
    }

    fn setup<'a>(&'a self, platform: &'a Machine, on: &PlacedMachine) -> Setup<'a, Machine> {
        let PlacedMachine { memory, low, touch_data, copies } = *on;
        let job = Job { copies, ..self.0.job() };
        let setup = Setup::new(platform, job, memory);
        let high = HighConfig { kmap: Kmap::Pool, slots: SlotKind::Store, pool_slots: POOL_SLOTS };
        Setup { host: HostConfig { low, touch_data, ..setup.host }, high: Some(high), ..setup }
    }
}

fn execute(
    setup: &Setup<'_, Machine>,
    fresh: &FreshHost<'_, Machine>,
    policy: &dyn Policy,
) -> Result<(Elapsed, PolicyCounts), Failure> {
    let machine = fresh.machine(policy, Machine::NO_MMU, Delivery::AtOnce)?;
    let ran = fresh.run(&machine, Vec::new(), None)?;
    setup.check_memory(&ran.outcome)?;
    Ok((ran.elapsed, policy.counts()))
}

fn tables(fresh: &FreshHost<'_, Machine>, counts: &PolicyCounts) -> Result<UserPteReport, Failure> {
    let placed = ReachedTables::<X86Pae>::placed(fresh.tables(), counts);
    placed.ok_or_else(|| Failure::new("tables were not placed"))
}
