//! Counts requests by space, and tells the processes that could be pinned to a CPU.
//!
//! A process that is pinned with all of its threads sends no request. Pins cost no parallel work if
//! the threads do not run at once: if they did, requests would meet them. For example, Redis has
//! threads that sleep, and none of its requests meets one.
use crate::price::Whole;
use foldhash::HashMap;

/// Threads run at once if more than one in so many requests meets one of them.
const IDLE: u64 = 100;

/// What is known of a space.
#[derive(Clone, Copy, Default)]
struct Process {
    /// Whether it ever had two threads. A parent that waits for the child of a vfork is none.
    threads: bool,
    /// Requests of its tasks.
    requests: u64,
    /// Flushes by its tasks at the request of another CPU.
    met: u64,
}

impl Process {
    /// Returns whether one CPU does for it: it has one thread, or the others sleep.
    fn is_pinnable(self) -> bool {
        !self.threads || self.met * IDLE <= self.requests
    }
}

/// Requests of one program, that is, of all processes that run it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnableProgram {
    /// Its name. `None` if the recording has none.
    pub name: Option<String>,
    /// Requests of all its processes.
    pub requests: u64,
    /// Requests of its processes whose threads do not run at once.
    pub pinnable: u64,
    /// Flushes of such processes at the request of another CPU: requests that a thread needed.
    pub met: u64,
}

/// Counts by space.
#[derive(Default)]
pub struct ByProcess(HashMap<u32, Process>);

impl ByProcess {
    /// Counts a thread that a space starts.
    pub fn thread(&mut self, space: u32) {
        self.0.entry(space).or_default().threads = true;
    }

    /// Counts a request to other CPUs.
    pub fn request(&mut self, space: u32) {
        self.0.entry(space).or_default().requests += 1;
    }

    /// Counts a flush at the request of another CPU.
    pub fn met(&mut self, space: u32) {
        self.0.entry(space).or_default().met += 1;
    }

    /// Returns the programs that sent requests, the most pinnable ones first.
    pub fn programs(&self, whole: &Whole<'_>) -> Vec<PinnableProgram> {
        let mut all = vec![PinnableProgram::default(); whole.programs.all.len()];
        for (space, process) in &self.0 {
            let Some(program) = all.get_mut(whole.programs.of_space(*space) as usize) else { continue };
            program.requests += process.requests;
            if process.is_pinnable() {
                program.pinnable += process.requests;
                program.met += process.met;
            }
        }
        for (program, recorded) in all.iter_mut().zip(&whole.programs.all) {
            program.name.clone_from(&recorded.name);
        }
        all.retain(|program| program.requests > 0);
        all.sort_by_key(|program| std::cmp::Reverse(program.pinnable));
        all
    }
}
