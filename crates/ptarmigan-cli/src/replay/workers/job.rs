//! A crew of workers carries a schedule out, one thread each, on one machine.
use super::engine::Engine;
use super::outcome::Outcome;
use super::progress::Progress;
use super::spaces::Spaces;
use super::step::{FailedStep, StepError};
use super::watch::Watch;
use crate::error::{Context, Failure};
use crate::measure::affinity::AffinityGuard;
use crate::measure::clock::thread_time;
use crate::replay::input::schedule::{Program, Schedule};
use crate::replay::input::trace::Trace;
use ptarmigan::format::Format;
use ptarmigan::hosted::{CpuSlot, HostMachine};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::Space;
use ptarmigan::tlb::Mmu;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

/// What is to be done.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// Who does what.
    pub schedule: &'a Schedule,
    /// How many times at once, each with tasks, spaces and CPUs of its own.
    pub copies: usize,
    /// Whether to go on when memory has run out.
    pub keep_going: bool,
    /// Frames that an idle CPU clears ahead.
    pub idle_zero: u32,
}

/// What it took.
#[derive(Clone, Copy, Default)]
pub struct Elapsed {
    /// From the start to the end of the last worker.
    pub wall: Duration,
    /// Processor time of all workers, on average.
    pub processor: Duration,
}

/// One worker's part.
struct WorkerResult<W> {
    outcome: Outcome,
    watch: W,
    result: Result<(), FailedStep>,
    used: Duration,
    end: Instant,
}

impl Job<'_> {
    /// Logical CPUs of the machine.
    pub fn cpus(&self) -> usize {
        self.schedule.cpus * self.copies
    }

    /// Workers.
    pub fn workers(&self) -> usize {
        self.schedule.programs.len() * self.copies
    }

    /// Does it; afterwards every frame must be back. `watch` makes who looks on, for each worker; `tick` is called with
    /// numbers of things done.
    ///
    /// # Errors
    /// If there was not even memory to begin with, a worker failed, or frames were lost. Lack of memory later is in
    /// the outcome.
    pub fn run<F: Format, P: Policy, S: Mmu, W: Watch + Send>(
        &self,
        machine: &HostMachine<'_, F, P, S>,
        watch: impl Fn() -> W + Sync,
        tick: impl Fn(u64) + Sync,
    ) -> Result<(Outcome, Elapsed, Vec<W>), Failure> {
        self.run_and_look(machine, watch, tick, |_| {})
    }

    /// The same; `look` sees the spaces that are left at the end.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_and_look<F: Format, P: Policy, S: Mmu, W: Watch + Send>(
        &self,
        machine: &HostMachine<'_, F, P, S>,
        watch: impl Fn() -> W + Sync,
        tick: impl Fn(u64) + Sync,
        look: impl Fn(&Space<F>),
    ) -> Result<(Outcome, Elapsed, Vec<W>), Failure> {
        let host = machine.host();
        let mut copies = Vec::new();
        for copy in 0..self.copies {
            let slot = host.slot(copy * self.schedule.cpus).ok_or_else(|| Failure::new("a CPU is taken"))?;
            let pin = slot.pin();
            let first = Space::<F>::new(machine.on(&pin).context("cannot begin")?);
            let mut spaces = Spaces::new(self.schedule.spaces);
            let what =
                if self.copies > 1 { "cannot begin copies that share the memory" } else { "cannot begin" };
            spaces.set(0, first.context(what)?);
            copies.push(spaces);
        }
        let progress = Progress::new(self.workers());
        let (parts, start) = self.spawn(machine, &copies, &progress, &watch, &tick)?;

        let elapsed = Elapsed {
            wall: parts.iter().map(|part| part.end).max().map_or(Duration::ZERO, |end| end - start),
            processor: parts.iter().map(|part| part.used).sum::<Duration>() / (parts.len() as u32).max(1),
        };
        for (worker, part) in parts.iter().enumerate() {
            if let Err(FailedStep { event, error: StepError::OutOfOrder }) = part.result {
                let who = self.name(worker);
                return Err(Failure::new(format!(
                    "{who} used a space out of order at event {event}; this is a defect of the schedule"
                )));
            }
        }
        let slots = host.slots();
        let Some(slot) = slots.first() else { return Err(Failure::new("all CPUs are taken")) };
        for space in copies.into_iter().flat_map(Spaces::into_left) {
            look(&space);
            let pin = slot.pin();
            space.end(machine.on(&pin).context("after the replay")?).context("after the replay")?;
        }
        machine.drain(&slots);
        host.audit().context("after the replay")?;
        let (outcomes, watches): (Vec<_>, _) = parts.into_iter().map(|p| (p.outcome, p.watch)).unzip();
        Ok((Outcome::sum(outcomes), elapsed, watches))
    }

    /// A worker as messages call it.
    fn name(&self, worker: usize) -> String {
        let each = self.schedule.programs.len();
        let copy = if self.copies > 1 { format!(" of copy {}", worker / each) } else { String::new() };
        format!("worker {}{copy}", worker % each)
    }

    fn spawn<F: Format, P: Policy, S: Mmu, W: Watch + Send>(
        &self,
        machine: &HostMachine<'_, F, P, S>,
        copies: &[Spaces<F>],
        progress: &Progress,
        watch: &(impl Fn() -> W + Sync),
        tick: &(impl Fn(u64) + Sync),
    ) -> Result<(Vec<WorkerResult<W>>, Instant), Failure> {
        quiet_panics();
        // Whether all are there and may begin.
        let gate = OnceLock::<bool>::new();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spread = (2..=processors).contains(&self.workers());
        let gate = &gate;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..self.workers() {
                let each = self.schedule.programs.len();
                let (copy, program) = (number / each, &self.schedule.programs[number % each]);
                let body = move || {
                    let per_worker = self.schedule.cpus / each;
                    let first = copy * self.schedule.cpus + (number % each) * per_worker;
                    let slots: Vec<CpuSlot> =
                        (first..first + per_worker).filter_map(|cpu| machine.host().slot(cpu)).collect();
                    if !*gate.wait() || slots.len() < per_worker {
                        progress.stop();
                        return Err("its CPU is taken".to_owned());
                    }
                    // Schedulers like to put threads that wake each other up on one processor. Where that fails,
                    // nothing is lost but time.
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
                        watch: watch(),
                        outcome: Outcome::default(),
                    };
                    let done = catch_unwind(AssertUnwindSafe(|| work(engine, program, tick)));
                    if !matches!(done, Ok(WorkerResult { result: Ok(()), .. })) {
                        progress.stop();
                    }
                    done.map_err(|_| PANIC.take())
                };
                match std::thread::Builder::new().name(THREAD.to_owned()).spawn_scoped(scope, body) {
                    Ok(thread) => threads.push(thread),
                    Err(e) => {
                        let _ = gate.set(false);
                        return Err(Failure::new(format!("cannot start {}: {e}", self.name(number))));
                    }
                }
            }
            let start = Instant::now();
            let _ = gate.set(true);
            let mut parts = Vec::new();
            let mut failed = None;
            for (number, thread) in threads.into_iter().enumerate() {
                match thread.join().unwrap_or_else(|_| Err("it ended unexpectedly".to_owned())) {
                    Ok(part) => parts.push(part),
                    Err(why) => failed = failed.or(Some(format!("{} failed: {why}", self.name(number)))),
                }
            }
            failed.map_or(Ok((parts, start)), |why| Err(Failure::new(why)))
        })
    }
}

fn work<F: Format, M: ptarmigan::space::SpaceMachine, W: Watch>(
    mut engine: Engine<'_, F, M, W>,
    program: &Program,
    tick: impl Fn(u64),
) -> WorkerResult<W> {
    let start = thread_time();
    let result = engine.run(program, tick);
    let used = thread_time() - start;
    WorkerResult { outcome: engine.outcome, watch: engine.watch, result, used, end: Instant::now() }
}

/// Name of all threads of workers.
const THREAD: &str = "worker";

thread_local! {
    /// What a worker's panic said.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A worker's panic is kept for the one line that the replay ends with, instead of being printed as it happens.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some(THREAD) {
                return before(info);
            }
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let why = text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
            let place = info.location().map_or(String::new(), |at| format!(" ({}:{})", at.file(), at.line()));
            PANIC.set(format!("{why}{place}"));
        }));
    });
}
