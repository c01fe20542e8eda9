//! Sums up what a recording says about time: by program and by call.
//!
//! A recording of format 3 has the times of calls ([`Note::Took`]) and the CPU time of each process
//! ([`Note::Used`]). The account adds them up for the program that the task ran at that moment. A
//! fork counts for its parent's program, an execve for the program that it starts.
//!
//! Page faults have no time of their own. Their time is about the CPU time in the kernel less that
//! of the timed calls. Other system calls are in it.
mod line;
mod sums;

pub use ptarmigan_trace::Call;
pub use sums::{CallTime, Family, Times};

use foldhash::HashMap;
use ptarmigan_term::Count;
use ptarmigan_term::words::several;
use ptarmigan_trace::{CloneKind, Event, Kind, Note, Opening, Openings, Unseen};
use serde::Serialize;

/// The account of one program, or of programs without a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ProgramTimes {
    /// Its name. `None` if the recording has none.
    pub name: Option<String>,
    /// Its times.
    #[serde(flatten)]
    pub times: Times,
}

/// The account of a recording's time.
#[derive(Clone, Debug, Default)]
pub struct Account {
    programs: Vec<ProgramTimes>,
    by_name: HashMap<String, u32>,
    /// The program of each task that is alive.
    of_task: HashMap<u32, u32>,
    /// Whether the recording has times of calls or processes.
    timed: bool,
    stop_cost: Option<u64>,
    elapsed: u64,
    openings: Openings,
    /// Programs that were started.
    execs: u64,
}

/// How many of the programs that ran are in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Programs {
    /// Programs whose events are in the recording, those of processes that ran already among them.
    pub recorded: u64,
    /// Programs that ran and were not recorded.
    pub unrecorded: u64,
}

impl Programs {
    /// Returns the part that was recorded, `1 of 3,230 programs`, or `None` if that is all.
    pub fn part(self) -> Option<String> {
        let all = self.recorded.saturating_add(self.unrecorded);
        (self.unrecorded > 0).then(|| format!("{} of {}", Count(self.recorded), several(all, "program")))
    }

    /// Returns a clause that follows a statement about all that was recorded: nothing, if all was.
    pub fn clause(self) -> String {
        self.part().map(|part| format!(" of what was recorded ({part})")).unwrap_or_default()
    }
}

impl Account {
    /// Begins an account.
    pub fn new() -> Self {
        Self { programs: vec![ProgramTimes::default()], ..Self::default() }
    }

    /// Adds an event, which happened `micros` after the recording began.
    #[inline]
    pub fn add(&mut self, event: &Event, micros: u64) {
        self.elapsed = micros;
        let Event { task, ref kind, .. } = *event;
        if let Some(Opening::Process { maker: Some(maker) }) = self.openings.see(event) {
            // No program made it while the recording ran.
            let made = &mut self.times(maker).processes;
            *made = made.saturating_sub(1);
        }
        match *kind {
            Kind::Fault { .. } => self.times(task).faults += 1,
            Kind::Clone { child, kind } => {
                let program = self.of_task.get(&task).copied().unwrap_or(0);
                self.of_task.insert(child, program);
                self.times(task).processes += u64::from(kind != CloneKind::Share);
            }
            // Its name follows.
            Kind::Exec { arg_pages, .. } => {
                self.execs += u64::from(arg_pages > 0);
                self.of_task.insert(task, 0);
            }
            Kind::Name(name) => self.name(task, name.as_str()),
            Kind::Note(note) => self.note(task, note),
            _ => {}
        }
    }

    /// The task runs the program `name`.
    fn name(&mut self, task: u32, name: &str) {
        let program = match self.by_name.get(name) {
            Some(program) => *program,
            None => {
                let program = self.programs.len() as u32;
                self.by_name.insert(name.to_owned(), program);
                self.programs.push(ProgramTimes { name: Some(name.to_owned()), times: Times::default() });
                program
            }
        };
        self.of_task.insert(task, program);
    }

    fn note(&mut self, task: u32, note: Note) {
        match note {
            Note::Took { call, nanos, away } => {
                self.timed = true;
                let nanos = nanos.saturating_sub(self.stop_cost.unwrap_or(0));
                self.times(task).took(call, nanos, away);
            }
            Note::Used { user, system, minor, major, waits, preempted } => {
                self.timed = true;
                let times = self.times(task);
                times.ended += 1;
                times.user += user;
                times.kernel += system;
                times.minor += minor;
                times.major += u64::from(major);
                times.waits += u64::from(waits);
                times.preempted += u64::from(preempted);
            }
            Note::StopCost { nanos } => self.stop_cost = Some(nanos),
            _ => {}
        }
    }

    fn times(&mut self, task: u32) -> &mut Times {
        let program = self.of_task.get(&task).copied().unwrap_or(0);
        &mut self.programs[program as usize].times
    }

    /// Returns whether the recording has times of calls and processes.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns how many processes ran before the recording.
    pub fn running(&self) -> u64 {
        self.openings.counts().processes
    }

    /// Returns how many of the programs that ran are in the recording of this header and trailer.
    pub fn coverage(&self, unseen: Unseen, unrecorded: u32) -> Programs {
        let opened = self.openings.counts();
        // Where nothing tells the areas of a program, those are known that were read later.
        let known = if unseen.has(Unseen::EXEC_AREAS) { opened.programs } else { self.execs };
        Programs { recorded: opened.processes + known, unrecorded: unrecorded.into() }
    }

    /// Returns the microseconds from the first event to the last.
    pub fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// Returns about how many nanoseconds of each call the stops of the recorder took, if it
    /// stopped the calls. The times here are without them.
    pub fn stop_cost(&self) -> Option<u64> {
        self.stop_cost
    }

    /// Returns the account of each program that did something, in order of first start.
    pub fn programs(&self) -> impl Iterator<Item = &ProgramTimes> {
        self.programs.iter().filter(|program| program.times != Times::default())
    }

    /// Returns the account of all programs together.
    pub fn total(&self) -> Times {
        // Neither the first process nor those that ran already are children of a program here.
        let first = Times { processes: self.running().max(1), ..Times::default() };
        self.programs.iter().fold(first, |sum, program| sum.plus(&program.times))
    }

    /// Returns the account as numbers in seconds, or `None` if the recording has no times.
    pub fn report(&self) -> Option<TimesReport> {
        self.timed.then(|| TimesReport {
            elapsed_seconds: self.elapsed as f64 / 1e6,
            stop_cost_nanoseconds: self.stop_cost,
            line: self.line(),
            remarks: self.remarks(),
            all: self.total(),
            programs: self.programs().cloned().collect(),
        })
    }
}

/// The account of a recording's time, to be printed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TimesReport {
    /// Seconds from the first event to the last.
    pub elapsed_seconds: f64,
    /// About how many nanoseconds of each call the recorder's stops took. They are not in the times
    /// of calls.
    pub stop_cost_nanoseconds: Option<u64>,
    /// The account as a sentence without its full stop.
    pub line: Option<String>,
    /// Sentences that a reader of the line must know.
    pub remarks: Vec<String>,
    /// All programs together.
    #[serde(flatten)]
    pub all: Times,
    /// Each program.
    pub programs: Vec<ProgramTimes>,
}

#[cfg(test)]
mod tests;
