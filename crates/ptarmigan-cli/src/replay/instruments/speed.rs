//! How fast: several workers against one, several copies against one, and what the order would allow.
//!
//! What the order allows comes from the schedule's critical path, in which every event counts with what it took when one
//! worker carried the same schedule out: the least of several passes, so that what disturbed one of them does not count.
//! Waiting itself costs nothing there.
use crate::measure::clock::Clock;
use crate::measure::stats::median;
use crate::replay::input::schedule::{Schedule, critical_path};
use crate::replay::workers::job::Elapsed;
use crate::replay::workers::watch::Watch;
use ptarmigan::space::Access;
use serde::Serialize;

/// Times each thing that a worker does.
pub struct Timed {
    clock: Clock,
    last: u64,
    ticks: Vec<u32>,
}

impl Timed {
    /// For a program of `len` things.
    pub fn new(clock: Clock, len: usize) -> Self {
        Timed { clock, last: clock.now(), ticks: vec![0; len] }
    }
}

impl Watch for Timed {
    #[inline(always)]
    fn served(&mut self, _: usize, _: u64, _: Access) {}

    #[inline(always)]
    fn done(&mut self, at: usize) {
        let now = self.clock.now();
        self.ticks[at] = u32::try_from(now - self.last).unwrap_or(u32::MAX);
        self.last = now;
    }
}

/// Events per second of one pass.
#[derive(Clone, Copy)]
pub struct Rate {
    /// By the clock on the wall.
    pub wall: f64,
    /// By the processor time of a worker, on average.
    pub processor: f64,
}

impl Rate {
    /// Of `events` events.
    pub fn new(events: usize, elapsed: Elapsed) -> Self {
        let rate = |time: std::time::Duration| events as f64 / time.as_secs_f64().max(1e-9);
        Rate { wall: rate(elapsed.wall), processor: rate(elapsed.processor) }
    }
}

/// Round by round: what was asked for, and what it is compared with.
#[derive(Default)]
pub struct SpeedRounds {
    /// All copies and workers.
    pub all: Vec<Rate>,
    /// One copy with all its workers, if several copies were asked for.
    pub one_copy: Vec<Rate>,
    /// One copy with one worker, if several workers were asked for.
    pub one_worker: Vec<Rate>,
    /// The least that each thing took one worker, in ticks.
    ticks: Vec<u32>,
}

/// Several workers against one.
#[derive(Serialize, Clone, Copy)]
pub struct WorkerSpeedup {
    /// Workers of one copy.
    pub workers: usize,
    /// Processors that this process may use.
    pub processors: usize,
    /// Times that one waits for another.
    pub waits: u64,
    /// With one worker on the same CPUs.
    pub one_worker_events_per_s: f64,
    /// With all of them.
    pub events_per_s: f64,
    /// The second by the first, median of the rounds.
    pub speed_up: f64,
    /// What the recorded order allows: all work by the critical path.
    pub ceiling: f64,
    /// What is reached of that, or of the number of processors if that is less.
    pub share: f64,
}

/// Several copies against one.
#[derive(Serialize, Clone, Copy)]
pub struct CopySpeedup {
    /// How many.
    pub copies: usize,
    /// One alone.
    pub one_copy_events_per_s: f64,
    /// All together.
    pub events_per_s: f64,
    /// The second by the first, median of the rounds.
    pub ratio: f64,
    /// The same by processor time: other work on the machine does not count, nor does waiting for a processor.
    pub ratio_by_processor_time: f64,
}

fn ratio(of: &[Rate], to: &[Rate], by: impl Fn(&Rate) -> f64) -> f64 {
    median(of.iter().zip(to).map(|(of, to)| by(of) / by(to)))
}

impl SpeedRounds {
    /// Notes what a timed pass took.
    pub fn timed(&mut self, timed: Timed) {
        if self.ticks.is_empty() {
            self.ticks = timed.ticks;
        } else {
            self.ticks.iter_mut().zip(timed.ticks).for_each(|(least, ticks)| *least = (*least).min(ticks));
        }
    }

    /// Events per second: of one worker by processor time, as waiting for a processor would count otherwise; of
    /// several by the clock on the wall, as they wait for each other.
    pub fn events_per_s(&self, workers: usize) -> f64 {
        median(self.all.iter().map(|rate| if workers == 1 { rate.processor } else { rate.wall }))
    }

    /// Several copies against one, if there were several.
    pub fn copies(&self, copies: usize) -> Option<CopySpeedup> {
        (copies > 1).then(|| CopySpeedup {
            copies,
            one_copy_events_per_s: median(self.one_copy.iter().map(|rate| rate.wall)),
            events_per_s: median(self.all.iter().map(|rate| rate.wall)),
            ratio: ratio(&self.all, &self.one_copy, |rate| rate.wall),
            ratio_by_processor_time: ratio(&self.all, &self.one_copy, |rate| rate.processor),
        })
    }

    /// Several workers against one, if there were several: those of `schedule` against the one of `alone`.
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

/// All work by the critical path.
fn ceiling(schedule: &Schedule, alone: &Schedule, ticks: &[u32], clock: Clock) -> f64 {
    let mut events: Vec<f32> = Vec::new();
    for (origin, ticks) in alone.programs.iter().flat_map(|program| &program.origins).zip(ticks) {
        let at = *origin as usize;
        if events.len() <= at {
            events.resize(at + 1, 0.0);
        }
        events[at] += clock.between(0, u64::from(*ticks)) as f32;
    }
    // An event is several things in a program; the first of them stands for all.
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
