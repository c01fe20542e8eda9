//! The passes that measure speed.
use super::{Counted, Replay};
use crate::error::{Context, Failure};
use crate::replay::instruments::speed::{MaybeTimed, Rate, Timed};
use crate::replay::instruments::stream::{Nothing, Stream};
use crate::replay::instruments::zero::IdleRound;
use crate::replay::platform::Platform;
use crate::replay::policy::{Choice, PolicyName, with_policy};
use crate::replay::workers::job::{Elapsed, Job};
use crate::replay::workers::outcome::Outcome;
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Policy, Rules};
use ptarmigan_hosted::{Delivery, Host};

impl<P: Platform> Replay<'_, P> {
    /// Replays without instruments: the requested job, and the jobs that it is compared with.
    pub(super) fn speed(&self, one: &mut Counted) -> Result<(), Failure> {
        let Counted { policy, ref mut rounds, ref mut ahead, .. } = *one;
        let job = self.job();
        let (elapsed, outcome) = self.bare(policy, &job)?;
        rounds.all.push(Rate::new(self.trace.steps.len() * job.copies, elapsed));
        if job.idle_zero > 0 {
            let (lazy, _) = self.bare(policy, &Job { idle_zero: 0, ..job })?;
            let of_all = |elapsed: Elapsed| elapsed.processor * job.workers() as u32;
            ahead.push(IdleRound { with: of_all(elapsed), ahead: outcome.ahead, without: of_all(lazy) });
        }
        if job.copies > 1 {
            rounds.one_copy.push(self.rate(policy, &self.job_of(&self.schedule, 1))?);
        }
        if let Some(alone) = &self.alone {
            let job = self.job_of(alone, 1);
            rounds.one_worker.push(self.rate(policy, &job)?);
            let len = alone.programs.iter().map(|program| program.ops.len()).sum();
            let (_, _, watches) = self.watched(policy, &job, &|| Some(Timed::new(self.clock, len)))?;
            watches.into_iter().flatten().for_each(|timed| rounds.timed(timed));
        }
        Ok(())
    }

    fn rate(&self, policy: Choice, job: &Job<'_>) -> Result<Rate, Failure> {
        let (elapsed, _) = self.bare(policy, job)?;
        Ok(Rate::new(self.trace.steps.len() * job.copies, elapsed))
    }

    /// Runs a job without instruments.
    fn bare(&self, policy: Choice, job: &Job<'_>) -> Result<(Elapsed, Outcome), Failure> {
        let (elapsed, outcome, _) = self.watched(policy, job, &|| None)?;
        Ok((elapsed, outcome))
    }

    /// Runs a job with observers.
    fn watched(
        &self,
        policy: Choice,
        job: &Job<'_>,
        watch: &(dyn Fn() -> MaybeTimed + Sync),
    ) -> Result<(Elapsed, Outcome, Vec<MaybeTimed>), Failure> {
        let host = self.host(job)?;
        let mmus = self.platform.mmus(job.cpus())?;
        let tables = self.platform.tables(&host)?;
        with_policy!(host, self.source(&host, &tables), policy, self.args.lists(host.config().cpus), |made| {
            self.watched_on(&host, &tables, &mmus, &made, job, watch)
        })
    }

    /// Runs a job on a policy. The engine is compiled once for all policies: a call through the
    /// pointer takes a nanosecond or two more.
    fn watched_on(
        &self,
        host: &Host<P::Format>,
        tables: &P::Tables,
        mmus: &P::Mmus,
        policy: &dyn Policy,
        job: &Job<'_>,
        watch: &(dyn Fn() -> MaybeTimed + Sync),
    ) -> Result<(Elapsed, Outcome, Vec<MaybeTimed>), Failure> {
        let (tlb, mmu) = (self.tlb(job.cpus()), P::mmu(mmus));
        let machine = self.machine(host, tables, policy, mmu, tlb, Delivery::AtOnce)?;
        let (outcome, elapsed, watches) =
            self.execute(job, &machine, &|| P::watch(mmus, watch()), &|_| {})?;
        Ok((elapsed, outcome, watches.into_iter().map(P::unwatch).collect()))
    }

    /// Runs a stream of allocator calls over a policy and over [`Nothing`]. Returns both times in
    /// nanoseconds.
    pub(super) fn stream(&self, policy: Choice, stream: &Stream) -> Result<(f64, f64), Failure> {
        let host = self.host(&self.job())?;
        let slots = host.slots();
        let mmus = self.platform.mmus(self.job().cpus())?;
        let tables = self.platform.tables(&host)?;
        with_policy!(host, self.source(&host, &tables), policy, self.args.lists(host.config().cpus), |made| {
            let (tlb, mmu) = (self.tlb(self.job().cpus()), P::mmu(&mmus));
            let machine = self.machine(&host, &tables, made, mmu, tlb, Delivery::AtOnce)?;
            let policy = machine.policy();
            let what = "replaying the allocator's calls";
            let nothing = stream.run(&Nothing(host.machine()), &slots).context(what)?;
            let time = stream.run(policy, &slots).context(what)?;
            machine.drain(&slots);
            host.audit().context("after the allocator's calls")?;
            Ok((time.as_nanos() as f64, nothing.as_nanos() as f64))
        })
    }
}
