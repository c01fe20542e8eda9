//! Sets replays up and runs them.
//!
//! # A replay
//!
//! 1. A [`Setup`] describes it: the machine, the recording and its workers, memory, TLBs, lists.
//! 2. [`Setup::fresh`] makes a [`FreshHost`].
//! 3. The caller makes a policy on the host, and puts its instruments around it as layers.
//! 4. [`FreshHost::machine`] puts the machine together.
//! 5. [`FreshHost::run`] runs the job. At its end every frame must be free again.
//!
//! Engine and machine are compiled once for each platform: they call the policy through a pointer,
//! which takes a nanosecond or two more.
use super::input::schedule::{CpuMap, Program, Schedule};
use super::input::trace::Trace;
use super::instruments::stream::{Nothing, Stream};
use super::memory;
use super::platform::{Platform, ReachedTables, RecordedX86, Walked};
use super::policy::{Choice, with_policy};
use super::workers::job::{Job, Ran};
use super::workers::machine::{EitherMachine, ReplayMmu};
use super::workers::outcome::Outcome;
use super::workers::watch::Watches;
use ptarmigan::machine::{Machine, On};
use ptarmigan::quicklist::{ListsConfig, Policy, Source};
use ptarmigan::space::Space;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{Mmu, TlbConfig};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{
    Delivery, HighConfig, HighMachine, HighSlots, Host, HostConfig, HostMachine, TableReach,
};
use ptarmigan_term::Bytes;
use ptarmigan_term::bar;
use ptarmigan_term::{Context, Failure};
use std::path::Path;

/// A recording that one worker replays.
pub struct SoloTrace {
    trace: Trace,
    schedule: Schedule,
}

impl SoloTrace {
    /// Plans the replay of a recording.
    pub fn new(trace: Trace) -> Self {
        let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, trace.cpus), true);
        SoloTrace { trace, schedule }
    }

    /// Reads a recording, `None` for the default one.
    ///
    /// # Errors
    /// If the file is not a recording.
    pub fn read(path: Option<&Path>) -> Result<Self, Failure> {
        Trace::open_or_default(path).map(Self::new)
    }

    /// Returns the recording.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the only worker's program.
    pub fn program(&self) -> &Program {
        &self.schedule.programs[0]
    }

    /// Returns the plan.
    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the job.
    pub(super) fn job(&self) -> Job<'_> {
        Job::new(&self.trace, &self.schedule)
    }

    /// Describes the replay on x86-64 with `memory` bytes.
    pub(super) fn on(&self, memory: u64) -> Setup<'_, RecordedX86> {
        Setup::new(&Walked::RECORDED, self.job(), memory)
    }
}

/// A replay, described.
pub struct Setup<'a, P> {
    /// The kind of machine.
    pub platform: &'a P,
    /// The recording, and how it is replayed.
    pub job: Job<'a>,
    /// The host.
    pub host: HostConfig,
    /// How high memory is mapped, if there is any.
    pub high: Option<HighConfig>,
    /// The TLBs.
    pub tlb: TlbConfig,
    /// The library's own lists.
    pub lists: ListsConfig,
}

impl<P> Clone for Setup<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Setup<'_, P> {}

impl<'a, P: Platform> Setup<'a, P> {
    /// Describes a machine for a job as the library sets it up by itself.
    pub fn new(platform: &'a P, job: Job<'a>, memory: u64) -> Self {
        let cpus = job.cpus();
        Setup {
            platform,
            job,
            host: HostConfig { cpus, bytes: memory, ..HostConfig::default() },
            high: None,
            tlb: TlbConfig::new(cpus),
            lists: ListsConfig::new(cpus),
        }
    }

    /// Makes the host.
    ///
    /// # Errors
    /// If it cannot be set up, or this host has too little memory for its frame records.
    pub fn fresh(&self) -> Result<FreshHost<'a, P>, Failure> {
        memory::fits(self.host.bytes, self.host.nodes)?;
        let host = Host::new(self.host).context("the machine cannot be set up")?;
        let tables = self.platform.tables(&host)?;
        Ok(FreshHost { setup: *self, host, tables })
    }

    /// Runs a stream of allocator calls over a policy and over [`Nothing`]. Returns both times in
    /// nanoseconds, the policy's first.
    ///
    /// # Errors
    /// If the machine cannot be set up, memory runs out, or frames are lost.
    pub fn stream(&self, choice: Choice, stream: &Stream) -> Result<(f64, f64), Failure> {
        let fresh = self.fresh()?;
        let mmus = self.platform.mmus(self.job.cpus(), None)?;
        let slots = fresh.host().slots();
        with_policy!(fresh, choice, |made| {
            let machine = fresh.machine(made, P::mmu(&mmus), Delivery::AtOnce)?;
            let what = "replaying the allocator's calls";
            let nothing = stream.run(&Nothing(fresh.host().machine()), &slots).context(what)?;
            let time = stream.run(machine.policy(), &slots).context(what)?;
            machine.drain(&slots);
            fresh.host().audit().context("after the allocator's calls")?;
            Ok((time.as_nanos() as f64, nothing.as_nanos() as f64))
        })
    }

    /// Checks that memory has not run out.
    ///
    /// # Errors
    /// If it has.
    pub fn check_memory(&self, outcome: &Outcome) -> Result<(), Failure> {
        let Some((event, task, reason)) = outcome.first_out_of_memory else { return Ok(()) };
        Err(Failure::new(format!(
            "{}: process {task} got no memory at event {event} ({reason}); give the machine more than {} MiB (--memory)",
            self.job.trace.name,
            Bytes(self.host.bytes).mib()
        )))
    }
}

/// A host on which nothing has run.
pub struct FreshHost<'a, P: Platform> {
    setup: Setup<'a, P>,
    host: Host<P::Format>,
    // Made for `host`.
    tables: P::Tables,
}

/// How a machine of a kind reaches its tables.
type Reach<'h, P> = <<P as Platform>::Tables as ReachedTables<<P as Platform>::Format>>::Reach<'h>;
/// A machine of a kind.
type Put<'h, P, Q, S> = HostMachine<'h, <P as Platform>::Format, Q, S, Reach<'h, P>>;
/// The same as the engine takes it.
type Either<'m, 'h, 'q, P, S, R> = EitherMachine<'m, 'h, <P as Platform>::Format, &'q dyn Policy, S, R>;
/// Looks at a space that is left at the end.
type Look<'l, 'm, 'h, 'q, P, S, R> =
    dyn Fn(On<'_, Either<'m, 'h, 'q, P, S, R>>, &Space<<P as Platform>::Format>) + 'l;

impl<P: Platform> FreshHost<'_, P> {
    /// Returns the host.
    pub fn host(&self) -> &Host<P::Format> {
        &self.host
    }

    /// Returns the mappings through which its tables are reached.
    pub fn tables(&self) -> &P::Tables {
        &self.tables
    }

    /// Returns the library's lists.
    pub fn lists(&self) -> ListsConfig {
        self.setup.lists
    }

    /// Returns the source of table pages.
    pub fn source(&self) -> Source<'_, Reach<'_, P>, &KernelMap<P::Format, DirectMap>> {
        // SAFETY: 1. `fresh` has made them for it.
        unsafe { self.tables.source(&self.host) }
    }

    /// Makes the library's own policy.
    ///
    /// # Errors
    /// If memory is too small.
    pub fn quicklists(&self) -> Result<impl Policy + '_, Failure> {
        self.host.quicklists_of(self.lists(), self.source()).context("lists")
    }

    /// Makes a policy.
    ///
    /// # Errors
    /// If memory is too small.
    pub fn policy(&self, choice: Choice) -> Result<Box<dyn Policy + '_>, Failure> {
        with_policy!(self, choice, |made| Ok(Box::new(made)))
    }

    /// Puts a machine together.
    ///
    /// # Errors
    /// If memory is too small, the host has a machine, or the policy is another host's.
    pub fn machine<Q: Policy, S: Mmu>(
        &self,
        policy: Q,
        mmu: S,
        delivery: Delivery,
    ) -> Result<Put<'_, P, Q, S>, Failure> {
        let reach = self.tables.reach(&self.host);
        // SAFETY: 1. `fresh` has made `tables` for the host. They reach all of its memory, and a
        // policy that is another host's is refused.
        let machine =
            unsafe { HostMachine::with_window(&self.host, policy, mmu, self.setup.tlb, delivery, reach) };
        machine.context("machine")
    }

    /// Runs the job on a machine of this host, under the eyes of `watches`, with a progress bar
    /// called `name` if there is one.
    ///
    /// # Errors
    /// As [`Job::run`].
    pub fn run<S: ReplayMmu, R: TableReach>(
        &self,
        machine: &HostMachine<'_, P::Format, &dyn Policy, S, R>,
        watches: Watches<'_>,
        name: Option<&str>,
    ) -> Result<Ran, Failure> {
        self.run_and_look(machine, watches, name, &|_, _| {})
    }

    /// Runs the job, and passes the spaces that are left at the end to `look`.
    ///
    /// # Errors
    /// As [`Job::run`].
    pub fn run_and_look<'m, 'h, 'q, S: ReplayMmu, R: TableReach>(
        &self,
        machine: &'m HostMachine<'h, P::Format, &'q dyn Policy, S, R>,
        watches: Watches<'_>,
        name: Option<&str>,
        look: &Look<'_, 'm, 'h, 'q, P, S, R>,
    ) -> Result<Ran, Failure> {
        let job = &self.setup.job;
        let machine = match &self.setup.high {
            None => EitherMachine::low(machine),
            Some(config) => {
                let slots = HighSlots::new(machine.host(), config).context("high memory")?;
                EitherMachine::high(HighMachine::new(machine, slots, config).context("high memory")?)
            }
        };
        let Some(name) = name else { return job.run(&machine, watches, &|_| {}, look) };
        let bar = bar::bar(job.ops() as u64, name);
        let ran = job.run(&machine, watches, &|done| bar.inc(done), look)?;
        bar.finish_and_clear();
        Ok(ran)
    }
}
