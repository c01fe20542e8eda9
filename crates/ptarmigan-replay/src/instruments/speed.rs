//! Speed: several workers against one, several copies against one, and the limit set by the
//! recorded order.
//!
//! The limit comes from the schedule's critical path. The cost of an event is the minimum over
//! several passes in which one worker executes the same schedule, so single disturbances do not
//! count. Waiting itself is free on the critical path.
use crate::input::schedule::{Schedule, critical_path};
use crate::workers::job::Elapsed;
use crate::workers::watch::Watch;
use ptarmigan_bench::clock::Clock;
use ptarmigan_bench::stats::median;
use serde::Serialize;

/// Times each operation of a worker.
pub struct Timed {
    clock: Clock,
    last: u64,
    ticks: Vec<u32>,
}

impl Timed {
    /// Creates a timer for a program of `len` operations.
    pub fn new(clock: Clock, len: usize) -> Self {
        Timed { clock, last: 0, ticks: vec![0; len] }
    }
}

impl Watch for Timed {
    fn starts(&mut self) {
        self.last = self.clock.now();
    }

    fn done(&mut self, at: usize) {
        let now = self.clock.now();
        self.ticks[at] = u32::try_from(now - self.last).unwrap_or(u32::MAX);
        self.last = now;
    }
}

/// Events per second in one pass.
#[derive(Clone, Copy)]
pub struct Rate {
    /// By wall-clock time.
    pub wall: f64,
    /// By the mean processor time of the workers.
    pub processor: f64,
}

impl Rate {
    /// Computes the rate of `events` events.
    pub fn new(events: usize, elapsed: Elapsed) -> Self {
        let rate = |time: std::time::Duration| events as f64 / time.as_secs_f64().max(1e-9);
        Rate { wall: rate(elapsed.wall), processor: rate(elapsed.processor) }
    }
}

/// The rates of the rounds: of the requested replay, and of those that it is compared with.
#[derive(Default)]
pub struct SpeedRounds {
    /// All copies and workers.
    pub all: Vec<Rate>,
    /// One copy with all its workers, if several copies are requested.
    pub one_copy: Vec<Rate>,
    /// One copy with one worker, if several workers are requested.
    pub one_worker: Vec<Rate>,
    /// The least time of each operation with one worker, in ticks.
    ticks: Vec<u32>,
}

/// Several workers against one.
#[derive(Serialize, Clone, Copy)]
pub struct WorkerSpeedup {
    /// Workers of one copy.
    pub workers: usize,
    /// Processors available to this process.
    pub processors: usize,
    /// How often a worker waits for another one.
    pub waits: u64,
    /// Speed with one worker on the same CPUs.
    pub one_worker_events_per_s: f64,
    /// Speed with all workers.
    pub events_per_s: f64,
    /// The ratio of the two, as the median of the rounds.
    pub speed_up: f64,
    /// The limit set by the recorded order: all work divided by the critical path.
    pub ceiling: f64,
    /// `speed_up` divided by the lesser of `ceiling` and `processors`.
    pub share: f64,
}

/// Several copies against one.
#[derive(Serialize, Clone, Copy)]
pub struct CopySpeedup {
    /// Number of copies.
    pub copies: usize,
    /// Speed of one copy alone.
    pub one_copy_events_per_s: f64,
    /// Speed of all copies together.
    pub events_per_s: f64,
    /// The ratio of the two, as the median of the rounds.
    pub ratio: f64,
    /// The ratio by processor time, which excludes other work on the machine and waiting for a
    /// processor.
    pub ratio_by_processor_time: f64,
}

fn ratio(of: &[Rate], to: &[Rate], by: impl Fn(&Rate) -> f64) -> f64 {
    median(of.iter().zip(to).map(|(of, to)| by(of) / by(to)))
}

impl SpeedRounds {
    /// Adds the times of a timed pass.
    pub fn timed(&mut self, timed: Timed) {
        if self.ticks.is_empty() {
            self.ticks = timed.ticks;
        } else {
            self.ticks.iter_mut().zip(timed.ticks).for_each(|(least, ticks)| *least = (*least).min(ticks));
        }
    }

    /// Returns the events per second. One worker counts by processor time, which excludes waiting
    /// for a processor; several count by wall-clock time, as they wait for each other.
    pub fn events_per_s(&self, workers: usize) -> f64 {
        median(self.all.iter().map(|rate| if workers == 1 { rate.processor } else { rate.wall }))
    }

    /// Compares several copies with one, if there are several.
    pub fn copies(&self, copies: usize) -> Option<CopySpeedup> {
        (copies > 1).then(|| CopySpeedup {
            copies,
            one_copy_events_per_s: median(self.one_copy.iter().map(|rate| rate.wall)),
            events_per_s: median(self.all.iter().map(|rate| rate.wall)),
            ratio: ratio(&self.all, &self.one_copy, |rate| rate.wall),
            ratio_by_processor_time: ratio(&self.all, &self.one_copy, |rate| rate.processor),
        })
    }

    /// Compares the workers of `schedule` with the one of `alone`, if there are several.
    pub fn workers(
        &self,
        schedule: &Schedule,
        alone: Option<&Schedule>,
        clock: Clock,
    ) -> Option<WorkerSpeedup> {
        let alone = alone?;
        let many = if self.one_copy.is_empty() { &self.all } else { &self.one_copy };
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let speed_up = ratio(many, &self.one_worker, |rate| rate.wall);
        let ceiling = ceiling(schedule, alone, &self.ticks, clock);
        Some(WorkerSpeedup {
            workers: schedule.programs.len(),
            processors,
            waits: schedule.waits(),
            one_worker_events_per_s: median(self.one_worker.iter().map(|rate| rate.wall)),
            events_per_s: median(many.iter().map(|rate| rate.wall)),
            speed_up,
            ceiling,
            share: speed_up / ceiling.min(processors as f64).max(1e-9),
        })
    }
}

/// Returns all work divided by the critical path.
fn ceiling(schedule: &Schedule, alone: &Schedule, ticks: &[u32], clock: Clock) -> f64 {
    let mut events: Vec<f32> = Vec::new();
    for (origin, ticks) in alone.programs.iter().flat_map(|program| &program.origins).zip(ticks) {
        let at = *origin as usize;
        if events.len() <= at {
            events.resize(at + 1, 0.0);
        }
        events[at] += clock.between(0, u64::from(*ticks)) as f32;
    }
    // An event can be several operations of a program. The first one stands for all.
    let mut last = vec![u32::MAX; schedule.programs.len()];
    let path = critical_path(schedule, |worker, at| {
        let origin = schedule.programs[worker].origins[at];
        if std::mem::replace(&mut last[worker], origin) == origin {
            return 0.0;
        }
        events.get(origin as usize).map_or(0.0, |ns| f64::from(*ns))
    });
    path.map_or(1.0, |path| path.total / path.longest.max(1e-9))
}
