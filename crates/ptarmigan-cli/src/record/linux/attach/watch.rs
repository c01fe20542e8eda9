//! Attaches with tracepoints alone: no task is ever stopped.
use super::tree::{self, Image};
use crate::record::linux::raw::{NO_CPU, Raw, RawKind};
use crate::record::linux::recording::Recording;
use crate::record::linux::sources::Source;
use crate::record::linux::sources::spill::Notes;
use crate::record::linux::state;
use crate::record::linux::stops::tracer::Surroundings;
use crate::record::linux::system::{pagemap, proc, signals, sys};
use ptarmigan_replay::Failure;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

/// How often the processes are looked at: a program that one of them starts is read at the next
/// look.
const LOOK: Duration = Duration::from_millis(100);

/// Readings of one process in a row, and looks at which it is read, until nothing seems to change
/// meanwhile.
const READINGS: u32 = 3;
const LOOKS: u32 = 20;

/// Lists of tasks until one brings no new task.
const LISTS: u32 = 50;

/// A process, as it was at the last look.
struct Seen {
    image: Image,
    /// Looks at which it is to be read, at most.
    left: u32,
}

/// Follows processes by tracepoints.
pub(crate) struct Watch<'a> {
    named: &'a [i32],
    notes: &'a mut Notes,
    recording: &'a mut Recording,
    seen: HashMap<i32, Seen>,
    /// The thread group of each task.
    groups: HashMap<i32, i32>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(named: &'a [i32], notes: &'a mut Notes, recording: &'a mut Recording) -> Self {
        Self { named, notes, recording, seen: HashMap::new(), groups: HashMap::new() }
    }

    /// Records until all processes have ended, a signal arrives, or `until`. Returns whether they
    /// have ended.
    pub(crate) fn follow(mut self, until: Option<Instant>) -> Result<bool, Failure> {
        self.watch_all()?;
        let unblocked = signals::let_through();
        for look in 0_u64.. {
            if signals::orphaned() {
                self.recording.abandon();
                return Ok(false);
            }
            let alive = self.recording.alive();
            if alive.is_empty() {
                return Ok(true);
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
                self.recording.begun();
            }
            self.recording.tick(Some(alive.len()));
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
            if signals::count() > 0 || left.is_zero() {
                break;
            }
            signals::wait_for(&unblocked, left);
        }
        let alive = self.recording.alive();
        for process in self.processes(&alive) {
            self.sample(process);
        }
        Ok(alive.is_empty())
    }

    /// Switches the events of all tasks on. Later ones are added by the kernel.
    fn watch_all(&mut self) -> Result<(), Failure> {
        let Some((Source::Tracefs(instance), _)) = &self.recording.kept else { return Ok(()) };
        let mut watched = HashSet::new();
        for list in 0..LISTS {
            let images = tree::images(self.named, &[]);
            let tasks = images.iter().flat_map(|image| proc::threads(image.process));
            let new: Vec<i32> = tasks.filter(|task| watched.insert(*task)).collect();
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
    fn look(&mut self, images: &[Image], all: bool) {
        let there: HashSet<i32> = images.iter().map(|image| image.process).collect();
        self.seen.retain(|process, _| there.contains(process));
        for &image in images {
            let seen = self.seen.get(&image.process);
            let left = match seen {
                Some(seen) if seen.image == image => seen.left,
                // A fork of a process that was read: the event tells of it.
                None if !all && self.seen.values().any(|seen| seen.image.same_program(image)) => 0,
                _ => LOOKS,
            };
            let steady = left > 0 && (0..READINGS).any(|_| self.read(image.process));
            let left = if steady { 0 } else { left.saturating_sub(1) };
            self.seen.insert(image.process, Seen { image, left });
        }
    }

    fn note(&mut self, pid: i32, what: RawKind) {
        self.notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid, what });
    }

    /// Reads a process between two marks. Returns whether it need not be read again, as far as can
    /// be told now.
    fn read(&mut self, process: i32) -> bool {
        let forks = forks();
        let threads = proc::threads(process);
        self.note(process, RawKind::ReadStart { threads });
        match state::read(process) {
            Some(reading) => {
                self.note(process, RawKind::ReadDone(Box::new(reading.state)));
                reading.steady && forks == self::forks()
            }
            // It has ended.
            None => true,
        }
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
                note(RawKind::Present(found));
                note(RawKind::LastTables { tables: after.tables });
                return;
            }
        }
    }
}

/// Returns how many tasks were made since the machine started.
fn forks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("processes "))?.trim().parse().ok()
}
