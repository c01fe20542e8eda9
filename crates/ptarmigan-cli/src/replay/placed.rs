//! Recordings replayed on a 32-bit machine with PAE, where leaf tables are placed as `userpte=`
//! says: times, and counts of tables and windows.
use super::high::UserPteReport;
use super::input::schedule::{CpuMap, Schedule};
use super::input::trace::Trace;
use super::instruments::peaks::Peaks;
use super::platform::room;
use super::workers::job::{Elapsed, Job};
use super::workers::machine::EitherMachine;
use super::workers::watch::Unwatched;
use crate::error::{Context, Failure};
use crate::shipped::COMPILE;
use ptarmigan::format::{Format, X86Pae};
use ptarmigan::machine::Machine;
use ptarmigan::params::UserPte;
use ptarmigan::quicklist::{Layered, ListsConfig, Policy, PolicyCounts};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{
    Delivery, HighConfig, HighMachine, HighSlots, Host, HostConfig, HostMachine, HostTables, Kmap, NoTlb,
    SlotKind,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Slots of the pool through which the kernel maps data frames, as on Linux.
const POOL_SLOTS: usize = 1024;

/// Where a recording is read from.
#[derive(Clone, Debug, Default)]
pub(crate) enum Recording {
    /// The compile that comes with the command.
    #[default]
    Shipped,
    /// A file.
    File(PathBuf),
}

/// The machine that it is replayed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedMachine {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of low memory, less than all.
    pub low: u64,
    /// Whether data frames have memory behind them, which is cleared and copied.
    pub touch_data: bool,
    /// Copies of the recording that run at once, with a worker each.
    pub copies: usize,
}

/// A recording, moved to 3 GiB and ready to be replayed by one worker.
pub(crate) struct PlacedTrace {
    trace: Trace,
    schedule: Schedule,
}

/// The time of one replay, and the places of its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedRun {
    /// Processor time of the workers: the library's calls, and the loop that makes them.
    pub calls: Duration,
    /// Tables and windows.
    pub tables: UserPteReport,
    /// Tables of all levels that were made and given back, whatever their memory.
    pub all_tables: u64,
}

/// How much memory tables took at most, and where they were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedPeaks {
    /// Bytes of low memory in tables of all levels.
    pub low: u64,
    /// Bytes of high memory in leaf tables.
    pub high: u64,
    /// Tables and windows.
    pub tables: UserPteReport,
}

impl PlacedTrace {
    /// Reads a recording, moves it and plans its replay.
    ///
    /// # Errors
    /// If it is not a recording, or does not fit into 3 GiB.
    pub fn read(from: &Recording) -> Result<Self, Failure> {
        Self::new(match from {
            Recording::Shipped => Trace::from_bytes(COMPILE, "the shipped compile")?,
            Recording::File(path) => Trace::open(Path::new(path))?,
        })
    }

    /// Moves a recording and plans its replay.
    ///
    /// # Errors
    /// If it does not fit into 3 GiB.
    pub fn new(mut trace: Trace) -> Result<Self, Failure> {
        trace.relayout(room::<X86Pae>())?;
        let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, trace.cpus), true);
        Ok(PlacedTrace { trace, schedule })
    }

    /// Returns its name, and how many processes, events and faults it has.
    pub fn describe(&self) -> String {
        let Trace { name, processes, events, faults, .. } = &self.trace;
        format!("{name}: {processes} processes, {events} events, {faults} faults")
    }

    /// Replays it on the library's policy.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn run(&self, on: &PlacedMachine, userpte: UserPte) -> Result<PlacedRun, Failure> {
        let job = self.job(on.copies);
        let host = Self::host(&job, on)?;
        let tables = HostTables::new(&host, userpte).context("windows on tables")?;
        // SAFETY: 1. they were made for this host.
        let source = unsafe { tables.source(&host) };
        let lists = host.quicklists_of(ListsConfig::new(job.cpus()), source).context("lists")?;
        let (elapsed, counts) = self.execute(&job, on, &host, &tables, &lists)?;
        let all_tables = counts.levels.iter().map(|level| level.allocs as u64).sum();
        let placed = UserPteReport::new(userpte, &tables, &counts);
        Ok(PlacedRun { calls: elapsed.processor * job.workers() as u32, tables: placed, all_tables })
    }

    /// Replays it on the library's policy, and finds the peaks of low and high memory in tables. No
    /// time is measured.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn peaks(&self, on: &PlacedMachine, userpte: UserPte) -> Result<PlacedPeaks, Failure> {
        let job = self.job(on.copies);
        let host = Self::host(&job, on)?;
        let tables = HostTables::new(&host, userpte).context("windows on tables")?;
        // SAFETY: 1. they were made for this host.
        let source = unsafe { tables.source(&host) };
        let lists = host.quicklists_of(ListsConfig::new(job.cpus()), source).context("lists")?;
        let layered = Layered::new(Peaks::new(host.frames(), X86Pae::LAYOUT), lists).context("layers")?;
        let (_, counts) = self.execute(&job, on, &host, &tables, &layered)?;
        let [low, high] = layered.layer().most();
        Ok(PlacedPeaks { low, high, tables: UserPteReport::new(userpte, &tables, &counts) })
    }

    fn job(&self, copies: usize) -> Job<'_> {
        Job { trace: &self.trace, schedule: &self.schedule, copies, keep_going: false, idle_zero: 0 }
    }

    fn host(job: &Job<'_>, on: &PlacedMachine) -> Result<Host<X86Pae>, Failure> {
        let PlacedMachine { memory, low, touch_data, .. } = *on;
        let config = HostConfig { cpus: job.cpus(), bytes: memory, low, touch_data, ..HostConfig::default() };
        Host::new(config).context("the machine cannot be set up")
    }

    fn execute(
        &self,
        job: &Job<'_>,
        on: &PlacedMachine,
        host: &Host<X86Pae>,
        tables: &HostTables,
        policy: &dyn Policy,
    ) -> Result<(Elapsed, PolicyCounts), Failure> {
        let config = HighConfig { kmap: Kmap::Pool, slots: SlotKind::Store, pool_slots: POOL_SLOTS };
        let tlb = TlbConfig::new(job.cpus());
        // SAFETY: 1. the window was made for this host and reaches all of its memory, from which
        // the lists draw.
        let machine = unsafe { HostMachine::with_window(host, policy, NoTlb, tlb, Delivery::AtOnce, tables) };
        let machine = machine.context("machine")?;
        let slots = HighSlots::new(host, &config).context("high memory")?;
        let machine_high = HighMachine::new(&machine, slots, &config).context("high memory")?;
        let either = EitherMachine::high(machine_high);
        let (outcome, elapsed, _) = job.run(&either, &|| Unwatched, &|_| {})?;
        if let Some((event, task, reason)) = outcome.first_out_of_memory {
            return Err(Failure::new(format!(
                "{}: process {task} got no memory at event {event} ({reason}); give --memory more than {} MiB",
                self.trace.name,
                on.memory >> 20
            )));
        }
        Ok((elapsed, either.policy().counts()))
    }
}
