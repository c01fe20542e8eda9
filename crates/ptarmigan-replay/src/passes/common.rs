//! Holds the trace and the settings that all passes have in common.
use crate::args::ReplayArgs;
use crate::high::High;
use crate::input::schedule::{CpuMap, Schedule};
use crate::input::trace::Trace;
use crate::platform::Platform;
use crate::setup::Setup;
use crate::workers::job::Job;
use ptarmigan::cpu::MAX_CPUS;
use ptarmigan_bench::clock::Clock;
use ptarmigan_hosted::{HostConfig, SlotKind};
use ptarmigan_term::Failure;

/// A trace, and how it is replayed.
pub(super) struct Common<'a> {
    pub trace: &'a Trace,
    pub args: &'a ReplayArgs,
    pub clock: Clock,
    pub schedule: Schedule,
    pub high: Option<High>,
    /// The same CPUs with one worker, if `schedule` has several.
    pub alone: Option<Schedule>,
}

impl<'a> Common<'a> {
    /// Plans the replay.
    ///
    /// # Errors
    /// If there are too many CPUs, or options contradict each other.
    pub fn new(trace: &'a Trace, args: &'a ReplayArgs) -> Result<Self, Failure> {
        let logical = args.spread.cpus.map_or(trace.cpus, usize::from);
        let copies = usize::from(args.spread.copies);
        if logical * copies > MAX_CPUS {
            return Err(Failure::new(format!(
                "{logical} CPUs in each of {copies} copies: at most {MAX_CPUS} CPUs in all"
            )));
        }
        let cpus = CpuMap::new(trace.cpus, logical);
        let alone = args.spread.cpus.is_none();
        let schedule = Schedule::new(trace, cpus, alone);
        let alone = (schedule.programs.len() > 1).then(|| Schedule::new(trace, cpus, true));
        let high = args.high.high(args.memory, args.nodes, args.idle_zero, args.usual_low())?;
        Ok(Common { trace, args, clock: Clock::calibrate(), schedule, high, alone })
    }

    /// Returns the requested job: all copies and workers.
    pub fn job(&self) -> Job<'_> {
        self.job_of(&self.schedule, usize::from(self.args.spread.copies))
    }

    pub fn job_of<'s>(&'s self, schedule: &'s Schedule, copies: usize) -> Job<'s> {
        let ReplayArgs { keep_going, idle_zero, large_pages, .. } = *self.args;
        let empty_tables = self.args.empty_tables.into();
        Job { copies, keep_going, idle_zero, large_pages, empty_tables, ..Job::new(self.trace, schedule) }
    }

    /// Describes a job on a kind of machine.
    pub fn setup<'s, P: Platform>(&'s self, platform: &'s P, job: Job<'s>) -> Setup<'s, P> {
        let setup = Setup::new(platform, job, self.args.memory);
        let cpus = job.cpus();
        let host = HostConfig {
            nodes: self.args.nodes,
            touch_data: self.args.touch_data,
            use_lines: usize::from(self.args.use_lines),
            low: self.high.map_or(u64::MAX, |high| high.low),
            high_file: self.high.is_some_and(|high| high.config.slots == SlotKind::Real),
            ..setup.host
        };
        let high = self.high.map(|high| high.config);
        Setup { host, high, tlb: platform.tlb(self.args.tlb(cpus)), lists: self.args.lists(cpus), ..setup }
    }

    /// Returns how many frames idle CPUs clear, if cleared frames are counted.
    pub fn zeroes(&self) -> Option<u32> {
        let ReplayArgs { touch_data, idle_zero, .. } = *self.args;
        (touch_data || idle_zero > 0).then_some(idle_zero)
    }
}
