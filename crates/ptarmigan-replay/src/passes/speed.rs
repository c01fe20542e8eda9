//! The passes that measure speed.
use super::{Counted, Passes};
use crate::instruments::speed::{Rate, Timed};
use crate::instruments::zero::IdleRound;
use crate::policy::Choice;
use crate::workers::job::{Elapsed, Job, Ran};
use ptarmigan_term::Failure;

impl Passes<'_> {
    /// Replays without instruments: the requested job, and the jobs that it is compared with.
    pub(super) fn speed(&self, one: &mut Counted) -> Result<(), Failure> {
        let Counted { policy, ref mut rounds, ref mut ahead, .. } = *one;
        let job = self.common.job();
        let ran = self.bare(policy, job)?;
        rounds.all.push(self.rate(job, &ran));
        if job.idle_zero > 0 {
            let lazy = self.bare(policy, Job { idle_zero: 0, ..job })?.elapsed;
            let of_all = |elapsed: Elapsed| elapsed.processor * job.workers() as u32;
            let (with, without) = (of_all(ran.elapsed), of_all(lazy));
            ahead.push(IdleRound { with, ahead: ran.outcome.ahead, without });
        }
        if job.copies > 1 {
            let job = self.common.job_of(&self.common.schedule, 1);
            rounds.one_copy.push(self.rate(job, &self.bare(policy, job)?));
        }
        if let Some(alone) = &self.common.alone {
            let job = self.common.job_of(alone, 1);
            rounds.one_worker.push(self.rate(job, &self.bare(policy, job)?));
            let mut timed = Timed::new(self.common.clock, job.ops());
            self.machine.watched(&self.common, policy, job, vec![&mut timed])?;
            rounds.timed(timed);
        }
        Ok(())
    }

    fn rate(&self, job: Job<'_>, ran: &Ran) -> Rate {
        Rate::new(self.common.trace.steps.len() * job.copies, ran.elapsed)
    }

    /// Runs a job without instruments.
    fn bare(&self, policy: Choice, job: Job<'_>) -> Result<Ran, Failure> {
        self.machine.watched(&self.common, policy, job, Vec::new())
    }
}
