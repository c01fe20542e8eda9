//! The passes on a kind of machine, behind a pointer: the code around them is compiled once.
use super::common::Common;
use crate::flushes::{FlushesByCause, LibraryFlushes};
use crate::high::UserPteReport;
use crate::input::relayout::Room;
use crate::instruments::counters::{Counters, Snapshot, TableShape};
use crate::instruments::measured::{CallLog, Measured};
use crate::instruments::sanitize::Sanitized;
use crate::instruments::stream::Stream;
use crate::instruments::zero::ZeroReport;
use crate::platform::{Platform, ReachedTables};
use crate::policy::{Choice, with_policy};
use crate::report::{HashReport, SanitizerReport};
use crate::setup::FreshHost;
use crate::workers::job::{Job, Ran};
use crate::workers::outcome::Outcome;
use crate::workers::watch::{Watches, watches};
use ptarmigan::format::Format;
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Layered, Policy, PolicyCounts};
use ptarmigan::tlb::FlushCounts;
use ptarmigan_hosted::Delivery;
use ptarmigan_ptsan::{MmuTraits, Watchable};
use ptarmigan_term::{Context, Failure};
use ptsan::{Adversary, Config};

/// With a seed: at how many of 1000 hooks of the sanitizer a CPU walks the tables speculatively.
const RATE: u16 = 60;

/// Counts of a counting pass.
pub(super) struct CountedPass {
    /// The names of the levels, lowest first.
    pub levels: &'static [&'static str],
    pub counts: PolicyCounts,
    pub counters: Option<Counters>,
    pub outcome: Outcome,
    pub flushes: FlushCounts,
    /// The same by cause, with one worker.
    pub flushes_by_cause: Option<LibraryFlushes>,
    pub zero: Option<ZeroReport>,
    pub hash: Option<HashReport>,
    pub userpte: Option<UserPteReport>,
}

/// A kind of machine that passes run on.
pub(super) trait PassMachine: Sync {
    /// Returns the room that a recording must be moved to, if addresses are not as recorded.
    fn room_for_areas(&self) -> Option<Room>;

    /// Returns the binary logarithm of the bytes of a page, and the number of levels of its tables.
    #[cfg(feature = "formats")]
    fn pages_and_levels(&self) -> (u32, u8);

    /// Runs the counting pass, which also times single calls and logs the allocator's calls. Calls
    /// `counted` with the counts and the log.
    fn count(
        &self,
        common: &Common<'_>,
        choice: Choice,
        counted: &mut dyn FnMut(CountedPass, &mut CallLog),
    ) -> Result<(), Failure>;

    /// Runs a pass under the sanitizer. Returns the findings, and a line about the first of them if
    /// the policy is not historic.
    fn sanitize(
        &self,
        common: &Common<'_>,
        choice: Choice,
        seed: Option<u64>,
    ) -> Result<(SanitizerReport, Option<String>), Failure>;

    /// Runs a job with observers.
    fn watched(
        &self,
        common: &Common<'_>,
        choice: Choice,
        job: Job<'_>,
        watches: Watches<'_>,
    ) -> Result<Ran, Failure>;

    /// Runs a stream of allocator calls. Returns its time, and that of the stream itself, in
    /// nanoseconds.
    fn stream(&self, common: &Common<'_>, choice: Choice, stream: &Stream) -> Result<(f64, f64), Failure>;
}

impl<P: Platform> PassMachine for P {
    fn room_for_areas(&self) -> Option<Room> {
        self.room()
    }

    #[cfg(feature = "formats")]
    fn pages_and_levels(&self) -> (u32, u8) {
        (P::Format::PAGE_SHIFT, P::Format::LAYOUT.levels)
    }

    fn count(
        &self,
        common: &Common<'_>,
        choice: Choice,
        counted: &mut dyn FnMut(CountedPass, &mut CallLog),
    ) -> Result<(), Failure> {
        let job = common.job();
        let fresh = common.setup(self, job).fresh()?;
        let mmus = self.mmus(job.cpus(), None)?;
        let frames = fresh.host().frames();
        with_policy!(fresh, choice, |made| {
            let snapshot = Snapshot::new(frames, job.cpus(), TableShape::of::<P::Format>());
            let measured = Measured::new(frames, P::Format::LAYOUT, common.clock);
            let layered =
                Layered::new(measured, Layered::new(snapshot, made).context("layers")?).context("layers")?;
            let Counting { outcome, flushes, flushes_by_cause, zero } =
                counting(common, &fresh, P::mmu(&mmus), &layered)?;
            let counts = layered.counts();
            let counters = common.args.counters.then(|| {
                let snapshot = layered.inner();
                snapshot.layer().counters(snapshot.inner())
            });
            let pass = CountedPass {
                levels: P::Format::LEVEL_NAMES,
                hash: P::hash_use(&mmus).map(|usage| HashReport::new(&usage, flushes.hashed)),
                userpte: fresh.tables().placed(&counts),
                counts,
                counters,
                outcome,
                flushes,
                flushes_by_cause,
                zero,
            };
            counted(pass, &mut layered.layer().log());
            Ok(())
        })
    }

    fn sanitize(
        &self,
        common: &Common<'_>,
        choice: Choice,
        seed: Option<u64>,
    ) -> Result<(SanitizerReport, Option<String>), Failure> {
        let job = common.job();
        let setup = common.setup(self, job);
        let fresh = setup.fresh()?;
        let config = Config {
            cpus: job.cpus(),
            eager_walkers: true,
            asids: setup.tlb.asids > 0,
            barriers: P::Traits::BROADCASTS,
            adversary: seed.map(|seed| Adversary { seed, rate: RATE }),
            keeps_invalid: false,
            ..Config::new(P::Format::arch())
        };
        let sanitized = Sanitized::new(self.sanitizer(fresh.host(), config)?);
        let soft = sanitized.mmu();
        let mmus = self.mmus(job.cpus(), Some(soft))?;
        let several = job.workers() > 1;
        let delivery = seed.map_or(Delivery::AtOnce, Delivery::Adverse);
        let of = seed.map_or(choice.name().to_string(), |seed| format!("{}, seed {seed}", choice.name()));
        {
            let made = fresh.policy(choice)?;
            let layered = Layered::new(soft, &*made).context("layers")?;
            let machine = fresh.machine(&layered as &dyn Policy, P::mmu(&mmus), delivery)?;
            let mut watchers: Vec<_> = (0..job.workers()).map(|_| sanitized.watcher(several)).collect();
            fresh.run(&machine, watches(&mut watchers), Some(&format!("sanitizing {of}")))?;
        }
        let left = P::hash_use(&mmus).map_or(0, |usage| {
            soft.with(|sanitizer, memory| sanitizer.check_hash_table(memory));
            usage.valid as u64
        });
        let mut report = SanitizerReport { ran: true, passes: 1, ..SanitizerReport::default() };
        self.ended(soft);
        report.add_levels(soft.findings_by_level());
        let first = soft.with(|sanitizer, _| {
            sanitizer.finish();
            report.add(ptsan::Kind::ALL.iter().map(|kind| (kind.to_string(), sanitizer.count(*kind))));
            sanitizer.findings().first().map(|finding| format!("policy {of}: {finding}"))
        });
        report.add([
            ("unserved-fault".to_owned(), sanitized.unserved()),
            ("left-in-hash-table".to_owned(), left),
        ]);
        Ok((report, first.filter(|_| !choice.is_historic())))
    }

    fn watched(
        &self,
        common: &Common<'_>,
        choice: Choice,
        job: Job<'_>,
        watches: Watches<'_>,
    ) -> Result<Ran, Failure> {
        let fresh = common.setup(self, job).fresh()?;
        let mmus = self.mmus(job.cpus(), None)?;
        let made = fresh.policy(choice)?;
        let machine = fresh.machine(&*made, P::mmu(&mmus), Delivery::AtOnce)?;
        fresh.run(&machine, watches, None)
    }

    fn stream(&self, common: &Common<'_>, choice: Choice, stream: &Stream) -> Result<(f64, f64), Failure> {
        common.setup(self, common.job()).stream(choice, stream)
    }
}

/// Counts of a counting pass that do not depend on the policy.
struct Counting {
    outcome: Outcome,
    flushes: FlushCounts,
    flushes_by_cause: Option<LibraryFlushes>,
    zero: Option<ZeroReport>,
}

/// Runs the counting pass on a policy. Which one it is, is not known while compiling: the policy's
/// own instruments do not see the calls through a pointer.
fn counting<P: Platform>(
    common: &Common<'_>,
    fresh: &FreshHost<'_, P>,
    mmu: P::Mmu<'_>,
    policy: &dyn Policy,
) -> Result<Counting, Failure> {
    let machine = fresh.machine(policy, mmu, Delivery::AtOnce)?;
    let job = common.job();
    let program = job.schedule.programs.first().filter(|_| job.workers() == 1);
    let mut by_cause: Vec<FlushesByCause<'_>> = program
        .map(|program| FlushesByCause::new(common.trace, &program.ops, || machine.tlb().counts()))
        .into_iter()
        .collect();
    let outcome = fresh.run(&machine, watches(&mut by_cause), Some("counting"))?.outcome;
    let flushes_by_cause = by_cause.pop().map(FlushesByCause::finish);
    let zero = common.zeroes().map(|idle_zero| ZeroReport {
        idle_zero,
        faults: machine.data().zero_counts().into(),
        zones: fresh.host().frames().zero_counts().into(),
        times: None,
    });
    Ok(Counting { outcome, flushes: machine.tlb().counts(), flushes_by_cause, zero })
}
