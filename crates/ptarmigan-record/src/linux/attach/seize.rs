//! Attaches with ptrace: all tasks of the processes stand still while their state is read.
use super::tree;
use crate::linux::allowed;
use crate::linux::raw::{NO_CPU, Raw, RawKind};
use crate::linux::recording::Recording;
use crate::linux::sources::spill::Notes;
use crate::linux::state;
use crate::linux::stops::calls::Looked;
use crate::linux::stops::tracer::{TO_STOP, free_all, stop_all};
use crate::linux::system::counters::{Counters, When};
use crate::linux::system::{pagemap, proc, sys};
use ptarmigan_term::Failure;
use std::collections::{HashMap, HashSet};
use std::io;

/// Tasks that a tracer follows, and that change nothing for now.
pub(crate) struct Seized {
    /// Each task, with the status of its stop.
    pub(crate) stopped: Vec<(i32, i32)>,
    /// Tasks that wait for the child of a vfork, and stop when it has started a program.
    pub(crate) waiting: Vec<i32>,
    /// Their processes, parents first.
    processes: Vec<i32>,
    /// Tasks below the named processes that cannot be traced.
    pub(crate) refused: u64,
}

/// Stops the named processes and all their descendants.
///
/// # Errors
/// If a named process cannot be traced. No task is stopped then.
pub(crate) fn seize(named: &[i32]) -> Result<Seized, Failure> {
    let mut refused: HashMap<i32, io::Error> = HashMap::new();
    let (mut alive, mut stopped) = (HashSet::new(), HashMap::new());
    let mut take = |alive: &HashSet<i32>| {
        let images = tree::images(named, &[]);
        let mut new: Vec<i32> = images.iter().flat_map(|image| proc::threads(image.process)).collect();
        new.retain(|pid| !alive.contains(pid) && !refused.contains_key(pid));
        new.retain(|&pid| match sys::seize_running(pid) {
            Ok(()) => sys::interrupt(pid).is_ok(),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => false,
            // A child of a task that was taken is taken with it.
            Err(_) if is_ours(pid) => true,
            // It has ended since it was listed.
            Err(_) if has_ended(pid) => false,
            Err(e) => {
                refused.insert(pid, e);
                false
            }
        });
        new
    };
    alive.extend(take(&alive));
    stop_all(&mut alive, &mut stopped, TO_STOP, &mut take);
    if let Some((pid, e)) = named.iter().find_map(|pid| Some((*pid, refused.get(pid)?))) {
        let failure = allowed::unattachable(pid, e);
        free_all(&stopped);
        return Err(failure);
    }
    let images = tree::images(named, &[]);
    let processes = images.iter().map(|image| image.process).collect();
    let waiting = alive.into_iter().filter(|pid| !stopped.contains_key(pid)).collect();
    let (stopped, refused) = (stopped.into_iter().collect(), refused.len() as u64);
    Ok(Seized { stopped, waiting, processes, refused })
}

/// Returns whether this process traces a task.
fn is_ours(pid: i32) -> bool {
    let tracer = proc::status(&pid.to_string(), "TracerPid");
    tracer.is_some_and(|tracer| tracer == std::process::id().to_string())
}

/// Returns whether a task is gone, or waits for its parent to hear of its end.
fn has_ended(pid: i32) -> bool {
    proc::status(&pid.to_string(), "State").is_none_or(|state| state.starts_with(['Z', 'X']))
}

impl Seized {
    /// Returns the tasks.
    pub(crate) fn tasks(&self) -> Vec<i32> {
        self.stopped.iter().map(|(pid, _)| *pid).chain(self.waiting.iter().copied()).collect()
    }

    /// Notes the state of all processes.
    ///
    /// # Errors
    /// If one of those that were named has ended, or cannot be read. All go on then.
    pub(crate) fn read(
        &self,
        named: &[i32],
        notes: &mut Notes,
        recording: &Recording,
    ) -> Result<(), Failure> {
        let mut missing: Vec<i32> = named.to_vec();
        let there: HashSet<i32> = self.tasks().into_iter().collect();
        for (n, &process) in self.processes.iter().enumerate() {
            recording.reading(n, self.processes.len());
            let mut threads = proc::threads(process);
            threads.retain(|pid| there.contains(pid));
            let Some(reading) = state::read(process, |_| {}).filter(|_| !threads.is_empty()) else {
                continue;
            };
            let mut note = |what| notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid: process, what });
            note(RawKind::ReadStart { threads });
            note(RawKind::ReadDone(Box::new(reading.state)));
            missing.retain(|pid| *pid != process);
            // What the process used before does not count.
            if let Some(counters) = Counters::read(process, When::Start) {
                note(RawKind::Counters(counters));
            }
        }
        notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid: 0, what: RawKind::Begun });
        let Some(pid) = missing.first() else { return Ok(()) };
        let why = if has_ended(*pid) { "has ended before it was read" } else { "cannot be read" };
        self.free();
        Err(Failure::new(format!("process {pid} {why}")))
    }

    /// Lets all tasks go on, after an error.
    pub(crate) fn free(&self) {
        free_all(&self.stopped.iter().copied().collect());
    }
}

/// Samples the tables of a process that stands still, and goes on after the recording.
pub(crate) fn last_look(process: i32) -> Looked {
    let counts = proc::threads(process).into_iter().find_map(|pid| Some((pid, proc::counts(pid)?)));
    let Some((pid, counts)) = counts else { return Vec::new() };
    let used = Counters::read(process, When::GoingOn).map(|read| (process, RawKind::Counters(read)));
    let present = RawKind::Present { still: true, found: pagemap::present(pid) };
    let tables = RawKind::LastTables { tables: counts.tables };
    used.into_iter().chain([(pid, present), (pid, tables)]).collect()
}
