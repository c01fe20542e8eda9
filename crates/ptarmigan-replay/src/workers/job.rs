//! Runs a schedule on a machine, with one thread for each worker.
use super::engine::Engine;
use super::machine::ReplayMachine;
use super::outcome::Outcome;
use super::panics::caught;
use super::progress::Progress;
use super::spaces::Spaces;
use super::step::{FailedStep, StepError};
use super::watch::Watches;
use crate::input::schedule::{Program, Schedule};
use crate::input::trace::Trace;
use crate::linux::{Blocks, RECORDED_EMPTY_TABLES, begin};
use ptarmigan::format::Format;
use ptarmigan::machine::On;
use ptarmigan::space::{EmptyTables, Space};
use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::clock::thread_time;
use ptarmigan_hosted::CpuSlot;
use ptarmigan_term::{Context, Failure};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The trace to replay, and the way to replay it.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The programs of the workers.
    pub schedule: &'a Schedule,
    /// Number of copies that run at once, each with its own tasks, spaces and CPUs.
    pub copies: usize,
    /// Whether to continue when memory runs out.
    pub keep_going: bool,
    /// Frames that an idle CPU clears ahead of need.
    pub idle_zero: u32,
    /// Whether spaces have large pages where the recorded ones had.
    pub large_pages: bool,
    /// The empty tables that spaces give back.
    pub empty_tables: EmptyTables,
    /// The blocks of pages that a fault on anonymous memory maps.
    pub blocks: Blocks,
}

/// The time that a job took.
#[derive(Clone, Copy, Default)]
pub struct Elapsed {
    /// From the start to the end of the last worker.
    pub wall: Duration,
    /// Mean processor time of the workers.
    pub processor: Duration,
}

/// The result of a job.
pub struct Ran {
    /// The results of all workers together.
    pub outcome: Outcome,
    /// The time that the job took.
    pub elapsed: Elapsed,
}

/// The result of one worker.
struct WorkerResult {
    outcome: Outcome,
    result: Result<(), FailedStep>,
    used: Duration,
    end: Instant,
}

impl<'a> Job<'a> {
    /// Makes the job of one copy, which ends when memory runs out. It maps blocks as the recorded
    /// machine did.
    pub fn new(trace: &'a Trace, schedule: &'a Schedule) -> Self {
        Job {
            trace,
            schedule,
            copies: 1,
            keep_going: false,
            idle_zero: 0,
            large_pages: false,
            empty_tables: RECORDED_EMPTY_TABLES,
            blocks: trace.blocks,
        }
    }

    /// Returns the number of logical CPUs.
    pub fn cpus(&self) -> usize {
        self.schedule.cpus * self.copies
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.schedule.programs.len() * self.copies
    }

    /// Returns the number of operations in the programs of all copies.
    pub fn ops(&self) -> usize {
        self.copies * self.schedule.programs.iter().map(|program| program.ops.len()).sum::<usize>()
    }

    /// Runs the job; at its end every frame must be free again. `tick` is called with numbers of
    /// finished operations, and `look` with the spaces that are left at the end.
    ///
    /// # Errors
    /// If memory is too small to begin, a worker fails, or frames are lost. If memory runs out
    /// later, the outcome says so.
    pub fn run<F: Format, M: ReplayMachine<F>>(
        &self,
        machine: &M,
        watches: Watches<'_>,
        tick: &(dyn Fn(u64) + Sync),
        look: &dyn Fn(On<'_, M>, &Space<F>),
    ) -> Result<Ran, Failure> {
        let host = machine.host();
        let mut copies = Vec::new();
        for copy in 0..self.copies {
            let slot = host.slot(copy * self.schedule.cpus).ok_or_else(|| Failure::new("a CPU is taken"))?;
            let pin = slot.pin();
            let on = machine.on(&pin).context("cannot begin")?;
            let mut spaces = Spaces::new(self.schedule.spaces);
            let what = if self.copies > 1 {
                "no memory for the first space of each copy"
            } else {
                "no memory for the first space"
            };
            let mut first = Space::<F>::new(on).context(what)?;
            let huge = self.large_pages.then_some(self.trace.huge);
            begin(&mut first.edit(on).context("cannot begin")?, self.empty_tables, huge);
            spaces.set(0, first);
            copies.push(spaces);
        }
        let progress = Progress::new(self.workers());
        let (results, start) = self.spawn(machine, &copies, &progress, watches, tick)?;

        let elapsed = Elapsed {
            wall: results.iter().map(|one| one.end).max().map_or(Duration::ZERO, |end| end - start),
            processor: results.iter().map(|one| one.used).sum::<Duration>() / (results.len() as u32).max(1),
        };
        for (worker, one) in results.iter().enumerate() {
            if let Err(FailedStep { event, error: StepError::OutOfOrder }) = one.result {
                let worker = self.name(worker);
                return Err(Failure::new(format!(
                    "{worker} used a space out of order at event {event}: the schedule is wrong"
                )));
            }
        }
        let slots = host.slots();
        let Some(slot) = slots.first() else {
            return Err(Failure::new("all CPUs of the machine are in use"));
        };
        for space in copies.into_iter().flat_map(Spaces::into_left) {
            let pin = slot.pin();
            let on = machine.on(&pin).context("after the replay")?;
            look(on, &space);
            space.end(on).context("after the replay")?;
        }
        let kmap = machine.drain(&slots)?;
        host.audit().context("after the replay")?;
        let outcomes: Vec<_> = results.into_iter().map(|one| one.outcome).collect();
        let large_splits = host.data().large_splits() as u64;
        let outcome = Outcome { kmap, large_splits, ..Outcome::sum(outcomes) };
        Ok(Ran { outcome, elapsed })
    }

    /// A worker as messages call it.
    fn name(&self, worker: usize) -> String {
        let each = self.schedule.programs.len();
        let copy = if self.copies > 1 { format!(" of copy {}", worker / each) } else { String::new() };
        format!("worker {}{copy}", worker % each)
    }

    fn spawn<F: Format, M: ReplayMachine<F>>(
        &self,
        machine: &M,
        copies: &[Spaces<F>],
        progress: &Progress,
        watches: Watches<'_>,
        tick: &(dyn Fn(u64) + Sync),
    ) -> Result<(Vec<WorkerResult>, Instant), Failure> {
        // Set once: true when all threads have started, false if one could not.
        let gate = OnceLock::<bool>::new();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spread = (2..=processors).contains(&self.workers());
        let gate = &gate;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let mut watches = watches.into_iter();
            for number in 0..self.workers() {
                let each = self.schedule.programs.len();
                let (copy, program) = (number / each, &self.schedule.programs[number % each]);
                let watch = watches.next();
                let body = move || {
                    let per_worker = self.schedule.cpus / each;
                    let first = copy * self.schedule.cpus + (number % each) * per_worker;
                    let slots: Vec<CpuSlot> =
                        (first..first + per_worker).filter_map(|cpu| machine.host().slot(cpu)).collect();
                    if !*gate.wait() || slots.len() < per_worker {
                        progress.stop();
                        return Err("its CPU is in use".to_owned());
                    }
                    // Schedulers tend to put threads that wake each other up on one processor. If
                    // pinning fails, only time is lost.
                    let _stay = spread.then(|| AffinityGuard::on(number));
                    let engine = Engine {
                        m: machine,
                        host: machine.host(),
                        slots,
                        trace: self.trace,
                        spaces: copies[copy].for_worker(),
                        worker: number,
                        first_worker: copy * each,
                        crewed: each > 1,
                        progress,
                        keep_going: self.keep_going,
                        idle_zero: self.idle_zero,
                        large_pages: self.large_pages,
                        empty_tables: self.empty_tables,
                        blocks: self.blocks,
                        watch,
                        outcome: Outcome::default(),
                    };
                    let done = caught(|| work(engine, program, tick));
                    if !matches!(done, Ok(WorkerResult { result: Ok(()), .. })) {
                        progress.stop();
                    }
                    done
                };
                match std::thread::Builder::new().name("worker".to_owned()).spawn_scoped(scope, body) {
                    Ok(thread) => threads.push(thread),
                    Err(e) => {
                        let _ = gate.set(false);
                        return Err(Failure::new(format!("cannot start {}: {e}", self.name(number))));
                    }
                }
            }
            let start = Instant::now();
            let _ = gate.set(true);
            let mut results = Vec::new();
            let mut failed = None;
            for (number, thread) in threads.into_iter().enumerate() {
                match thread.join().unwrap_or_else(|_| Err("it ended unexpectedly".to_owned())) {
                    Ok(one) => results.push(one),
                    Err(why) => failed = failed.or(Some(format!("{} failed: {why}", self.name(number)))),
                }
            }
            failed.map_or(Ok((results, start)), |why| Err(Failure::new(why)))
        })
    }
}

fn work<F: Format, M: ReplayMachine<F>>(
    mut engine: Engine<'_, '_, F, M>,
    program: &Program,
    tick: &dyn Fn(u64),
) -> WorkerResult {
    let start = thread_time();
    let result = engine.run(program, tick);
    let used = thread_time() - start;
    WorkerResult { outcome: engine.outcome, result, used, end: Instant::now() }
}
