//! Attaches with tracepoints alone. No task is stopped, but for one reading of a process that was
//! named and never holds still.
use super::still::{self, Still, Stood};
use super::tree::{self, ProcessImage};
use crate::linux::raw::{NO_CPU, Raw, RawKind};
use crate::linux::recording::Recording;
use crate::linux::sources::Source;
use crate::linux::sources::execs::Execs;
use crate::linux::sources::spill::Notes;
use crate::linux::state::{self, Progress};
use crate::linux::stops::supervisor::Missed;
use crate::linux::stops::tracer::Surroundings;
use crate::linux::system::counters::{Counters, When};
use crate::linux::system::{pagemap, proc, signals, sys};
use ptarmigan_term::print;
use ptarmigan_term::{Failure, Time};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often all processes are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A program that has just started is read at once, and again after this time if it did not hold
/// still, so often. The looks at all processes have the rest.
const AGAIN: Duration = Duration::from_micros(500);
const AT_START: u32 = 40;

/// Readings of one process in a row, and looks at which it is read, until nothing seems to change
/// meanwhile.
const READINGS: u32 = 3;
const LOOKS: u32 = 20;

/// How long a process that was named is read again while it runs, and how often a reading has to
/// seem right if the process ran meanwhile.
const NAMED: Duration = Duration::from_millis(100);
const SEEMS: u32 = 3;

/// How often it is stopped to be read, until it has stopped as a whole.
const STOPS: u32 = 5;

/// Lists of tasks until one brings no new task.
const LISTS: u32 = 50;

/// A process, as it was at the last look.
struct LastLook {
    image: ProcessImage,
    /// Looks at which it is to be read, at most.
    left: u32,
}

/// A reading, as far as can be told before the events are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steady {
    /// The process has ended, or cannot be read.
    Gone,
    /// It has changed meanwhile.
    No,
    /// Nothing seems to have changed.
    Seems,
    /// No task of it ran.
    Surely,
}

/// Follows processes by tracepoints.
pub(crate) struct Watch<'a> {
    named: &'a [i32],
    notes: &'a mut Notes,
    recording: &'a mut Recording,
    seen: HashMap<i32, LastLook>,
    /// The thread group of each task.
    groups: HashMap<i32, i32>,
    /// Tells that programs start, if the kernel does.
    execs: Option<Execs>,
    /// Processes that have just started a program and are to be read again, at most so often.
    started: HashMap<i32, u32>,
    /// 32-bit programs that were started. They are not read.
    narrow: HashSet<ProcessImage>,
    /// Whether the time of the recording has begun.
    begun: bool,
    /// Tasks that are to be freed when they have stopped.
    leaving: HashSet<i32>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(named: &'a [i32], notes: &'a mut Notes, recording: &'a mut Recording) -> Self {
        let say = |e: &Failure| {
            print::error(&format!("programs are read up to 0.1 s after their start: {}", e.message()));
        };
        let execs = Execs::start().inspect_err(say).ok();
        let (seen, groups, started) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (narrow, leaving) = (HashSet::new(), HashSet::new());
        Self { named, notes, recording, seen, groups, execs, started, narrow, begun: false, leaving }
    }

    /// Reads the processes that were named, and records until all have ended, a signal arrives, or
    /// for `duration`. Returns whether they have ended, and the programs that were not recorded.
    ///
    /// The time begins when the processes have been read.
    ///
    /// # Errors
    /// If events cannot be switched on, or a process that was named has ended.
    pub(crate) fn follow(mut self, duration: Option<Duration>) -> Result<(bool, Missed), Failure> {
        self.watch_all()?;
        for &process in self.named {
            self.read_named(process)?;
        }
        let mut until = None;
        let unblocked = signals::let_through();
        for look in 0_u64.. {
            if signals::orphaned() {
                self.recording.abandon();
                return Ok((false, Missed::default()));
            }
            let alive = self.recording.alive();
            if alive.is_empty() {
                return Ok((true, self.missed()));
            }
            // A process that was made before its parent was read is not among those of the first
            // list. It is in the second.
            let images = if look < 2 {
                tree::images(self.named, &self.processes(&alive))
            } else {
                let processes = self.processes(&alive);
                processes.into_iter().filter_map(tree::image).collect()
            };
            self.look(&images, look < 2);
            if look == 0 {
                self.begin(&images);
                until = duration.and_then(|duration| Instant::now().checked_add(duration));
            }
            self.recording.tick(Some(alive.len()));
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
            if signals::count() > 0 || left.is_zero() {
                break;
            }
            self.wait(&unblocked, Instant::now() + left);
        }
        let alive = self.recording.alive();
        for process in self.processes(&alive) {
            self.count(process, When::GoingOn);
            self.sample(process);
        }
        Ok((alive.is_empty(), self.missed()))
    }

    /// The first processes have been read. What they used before does not count.
    fn begin(&mut self, images: &[ProcessImage]) {
        for image in images {
            self.count(image.process, When::Start);
        }
        self.note(0, RawKind::Begun);
        self.begun = true;
        self.recording.begun();
    }

    /// Notes the counters of a process.
    fn count(&mut self, process: i32, when: When) {
        if let Some(counters) = Counters::read(process, when) {
            self.note(process, RawKind::Counters(counters));
        }
    }

    fn missed(&self) -> Missed {
        Missed { narrow: self.narrow.len() as u64, other_tracer: 0 }
    }

    /// Waits until the next look. Reads programs that start meanwhile.
    fn wait(&mut self, unblocked: &libc::sigset_t, until: Instant) {
        let descriptors = self.execs.as_ref().map(Execs::descriptors).unwrap_or_default();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || signals::count() > 0 || signals::orphaned() {
                return;
            }
            let again = !self.started.is_empty() || !self.leaving.is_empty();
            let pause = if again { left.min(AGAIN) } else { left };
            signals::wait_for(unblocked, &descriptors, pause);
            still::free_left(&mut self.leaving);
            self.read_started();
        }
    }

    /// Reads the programs that have just started.
    fn read_started(&mut self) {
        let new = self.execs.as_mut().map(Execs::take).unwrap_or_default();
        // Other programs start as well. The kernel's list has the tasks that are recorded.
        let alive = if new.is_empty() { Vec::new() } else { self.recording.alive() };
        self.started.extend(new.into_iter().filter(|pid| alive.contains(pid)).map(|pid| (pid, AT_START)));
        for (process, left) in std::mem::take(&mut self.started) {
            let Some(image) = tree::image(process) else { continue };
            let steady = self.read(process) != Steady::No;
            if !steady && left > 1 {
                self.started.insert(process, left - 1);
            }
            self.seen.insert(process, LastLook { image, left: if steady { 0 } else { LOOKS } });
        }
    }

    /// Switches the events of all tasks on. Later ones are added by the kernel.
    fn watch_all(&mut self) -> Result<(), Failure> {
        let Some((Source::Tracefs(instance), _)) = &self.recording.kept else { return Ok(()) };
        let mut watched = HashSet::new();
        for list in 0..LISTS {
            let images = tree::images(self.named, &[]);
            let tasks = images.iter().flat_map(|image| proc::threads(image.process));
            let new: Vec<i32> = tasks.filter(|task| watched.insert(*task)).collect();
            let processes: Vec<i32> = images.iter().map(|image| image.process).collect();
            self.recording.samples(&processes);
            if list > 0 && new.is_empty() {
                break;
            }
            instance.add(&new)?;
            if list == 0 {
                instance.switch_on()?;
            }
        }
        Ok(())
    }

    /// Returns the processes of these tasks.
    fn processes(&mut self, tasks: &[i32]) -> Vec<i32> {
        let there: HashSet<i32> = tasks.iter().copied().collect();
        self.groups.retain(|task, _| there.contains(task));
        let mut processes = HashSet::new();
        for &task in tasks {
            let known = self.groups.get(&task).copied();
            if let Some(group) = known.or_else(|| proc::group(task)) {
                self.groups.insert(task, group);
                processes.insert(group);
            }
        }
        let mut processes: Vec<i32> = processes.into_iter().collect();
        processes.sort_unstable();
        processes
    }

    /// Reads the processes that are new and that run another program than at the last look.
    fn look(&mut self, images: &[ProcessImage], all: bool) {
        let there: HashSet<i32> = images.iter().map(|image| image.process).collect();
        self.seen.retain(|process, _| there.contains(process));
        for (n, &image) in images.iter().enumerate() {
            if !self.begun {
                self.recording.reading(n, images.len());
            }
            let seen = self.seen.get(&image.process);
            let left = match seen {
                Some(seen) if seen.image == image => seen.left,
                // A fork of a process that was read: the event tells of it.
                None if !all && self.seen.values().any(|seen| seen.image.same_program(image)) => 0,
                _ => LOOKS,
            };
            let steady = left > 0 && (0..READINGS).any(|_| self.read(image.process) != Steady::No);
            let left = if steady { 0 } else { left.saturating_sub(1) };
            self.seen.insert(image.process, LastLook { image, left });
        }
    }

    fn note(&mut self, pid: i32, what: RawKind) {
        self.notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid, what });
    }

    /// Reads a process between two marks.
    fn read(&mut self, process: i32) -> Steady {
        self.read_with(process, |_| {})
    }

    /// Reads a process that stands still between two marks. It goes on before the stop takes too
    /// long: the areas are known then, and the rest is read while it runs. That holds if nobody
    /// forks meanwhile.
    fn read_still(&mut self, process: i32) -> Steady {
        let forks_before = forks();
        let mut leaving = std::mem::take(&mut self.leaving);
        let still = Still::new(process, &mut leaving);
        let whole = still.whole;
        let (mut still, mut stood) = (Some(still), None);
        let steady = self.read_with(process, |progress| {
            let all = progress == Progress::All;
            if let Some(still) = still.take_if(|still| all || still.is_over()) {
                stood = Some((still.end(), all));
            }
        });
        // It has ended, or cannot be read.
        let stood = still.map(|still| (still.end(), true)).or(stood);
        self.leaving = leaving;
        let Some((stood, all)) = stood else { return steady };
        let name = tree::name(process).unwrap_or_default();
        print::error(&format!("process {process} ({name}) {}", told(&stood, all)));
        let holds = all || forks_before.is_some() && forks_before == forks();
        if whole && holds && steady != Steady::Gone { Steady::Surely } else { steady }
    }

    /// Reads a process between two marks, and tells `each` how far that is.
    fn read_with(&mut self, process: i32, each: impl FnMut(Progress)) -> Steady {
        if proc::is_32_bit_file(Path::new(&format!("/proc/{process}/exe"))) {
            // No tracepoint tells its system calls.
            self.narrow.extend(tree::image(process));
            return Steady::Gone;
        }
        let now = || (forks(), sys::scheduled_time(process));
        let (forks, ran) = now();
        let threads = proc::threads(process);
        self.note(process, RawKind::ReadStart { threads });
        let Some(reading) = state::read(process, each) else { return Steady::Gone };
        self.note(process, RawKind::ReadDone(Box::new(reading.state)));
        if self.begun {
            // Processes that are known already have such counters, or began with none.
            self.count(process, When::Start);
        }
        match (reading.steady, now()) {
            (true, (_, after)) if ran.is_some() && ran == after => Steady::Surely,
            (true, (after, _)) if forks == after => Steady::Seems,
            _ => Steady::No,
        }
    }

    /// Reads a process that was named until a reading holds: while it runs, and then while it
    /// stands still.
    ///
    /// # Errors
    /// If the process has ended.
    fn read_named(&mut self, process: i32) -> Result<(), Failure> {
        let (until, mut seems) = (Instant::now() + NAMED, 0);
        let mut steady = Steady::No;
        while steady != Steady::Surely && seems < SEEMS && Instant::now() < until {
            steady = self.read(process);
            if steady == Steady::Gone {
                break;
            }
            seems += u32::from(steady == Steady::Seems);
        }
        for _ in 0..STOPS {
            if matches!(steady, Steady::Surely | Steady::Gone) || seems >= SEEMS {
                break;
            }
            steady = self.read_still(process);
        }
        let Some(image) = tree::image(process) else {
            return Err(Failure::new(format!("process {process} has ended before it was read")));
        };
        let left = if steady == Steady::No { LOOKS } else { 0 };
        self.seen.insert(process, LastLook { image, left });
        Ok(())
    }

    /// Samples the tables of a process that goes on.
    fn sample(&mut self, process: i32) {
        for _ in 0..READINGS {
            let Some(pid) = proc::threads(process).into_iter().find(|&pid| proc::counts(pid).is_some())
            else {
                return;
            };
            let before = proc::counts(pid);
            let found = pagemap::present(pid);
            let time = sys::now();
            if let (Some(before), Some(after)) = (before, proc::counts(pid))
                && before == after
            {
                let mut note = |what| self.notes.event(&Raw { time, cpu: NO_CPU, pid, what });
                note(RawKind::Present { still: true, found });
                note(RawKind::LastTables { tables: after.tables });
                return;
            }
        }
    }
}

/// Says how long a process stood still, and whether all of it was read then.
fn told(stood: &Stood, all: bool) -> String {
    let [time, longest] = [stood.time, stood.longest].map(Time::from);
    let rest = if all { "" } else { "; the rest was read while it ran" };
    let over = if stood.time <= stood.longest {
        String::new()
    } else {
        format!("; more than {longest}, as the machine was busy")
    };
    format!("stood still for {time}, to be read{rest}{over}")
}

/// Returns how many tasks were made since the machine started.
fn forks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("processes "))?.trim().parse().ok()
}
