//! A recording in progress, as the code that follows tasks sees it.
use super::sources::Source;
use super::sources::mappings::PerfMappings;
use super::sources::spill::Spill;
use super::stops::tracer::Surroundings;
use ptarmigan_term::Failure;
use ptarmigan_term::bar::ProgressBar;
use ptarmigan_term::{Bytes, Count, Time};
use ptarmigan_term::{bar, print};
use ptarmigan_trace::{Method, Unseen};
use std::io::IsTerminal;
use std::time::Duration;

/// A recording in progress.
pub(super) struct Recording {
    pub(super) method: Method,
    pub(super) unseen: Unseen,
    pub(super) cpus: u16,
    progress: Option<ProgressBar>,
    /// Its length, if it is given.
    duration: Option<Duration>,
    /// Its events, until it is abandoned.
    pub(super) kept: Option<(Source, Spill)>,
    /// Its mappings, beside events that come from tracepoints.
    pub(super) mappings: Option<PerfMappings>,
}

impl Recording {
    /// Starts to show progress. `missing` are events that this kind of recording does not have.
    pub(super) fn new(method: Method, source: Source, spill: Spill, missing: u16) -> Self {
        let unseen = Unseen(source.unseen().0 | missing);
        let cpus = source.cpus();
        // The command may write to the terminal, too.
        let shows = !std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let (progress, kept) = (shows.then(bar::spinner), Some((source, spill)));
        Self { method, unseen, cpus, progress, duration: None, kept, mappings: None }
    }

    /// The recording attaches to processes, which have their own terminals, and ends after a time
    /// if one is given.
    pub(super) fn attached(mut self, duration: Option<Duration>) -> Self {
        self.duration = duration;
        if self.progress.is_none() && std::io::stderr().is_terminal() {
            self.progress = Some(bar::spinner());
        }
        self
    }

    /// Shows that the first state of processes is read, of which `done` have been.
    pub(super) fn reading(&self, done: usize, all: usize) {
        if done == 0 {
            print::error(&format!("reading {}", processes(all)));
        }
        if let Some(progress) = &self.progress {
            progress.set_message(format!("reading {} … {done}", processes(all)));
        }
    }

    /// Records mappings beside tracepoints, and samples of callers if they are wanted. Without them
    /// a trace has the objects of areas that execve makes only.
    pub(super) fn with_mappings(mut self, callers: bool) -> Self {
        if let Some((Source::Tracefs(_), spill)) = &self.kept {
            let say =
                |e: &Failure| print::error(&format!("files that programs map are unknown: {}", e.message()));
            self.mappings = PerfMappings::start(spill, callers).inspect_err(say).ok();
        }
        self
    }

    /// Keeps the samples of these processes and their descendants alone.
    pub(super) fn samples(&self, processes: &[i32]) {
        if let Some(mappings) = &self.mappings {
            mappings.begin(processes);
        }
    }

    /// Takes the recording out, at its end. What is left follows tasks and keeps no event.
    pub(super) fn take(&mut self) -> Self {
        if let Some(progress) = self.progress.take() {
            progress.finish_and_clear();
        }
        let Self { method, unseen, cpus, duration, .. } = *self;
        let (kept, mappings) = (self.kept.take(), self.mappings.take());
        Self { method, unseen, cpus, progress: None, duration, kept, mappings }
    }
}

fn processes(n: usize) -> String {
    if n == 1 { "1 process".to_owned() } else { format!("{} processes", Count(n as u64)) }
}

impl Surroundings for Recording {
    fn begun(&mut self) {
        let (method, unseen) = (self.method.name(), self.unseen.names());
        let long = self.duration.map(|time| format!(" for {}", Time::from(time))).unwrap_or_default();
        if unseen.is_empty() {
            print::error(&format!("recording with {method}{long}"));
        } else {
            let unseen = unseen.join(", ");
            print::error(&format!("recording with {method}{long}; it does not record {unseen}"));
        }
    }

    fn tick(&mut self, alive: Option<usize>) {
        let (Some(progress), Some((source, _))) = (&self.progress, &self.kept) else { return };
        let tasks = alive.map(|n| format!("{} tasks alive, ", Count(n as u64))).unwrap_or_default();
        progress.set_message(format!("recording: {tasks}{}", Bytes(source.bytes())));
    }

    fn alive(&self) -> Vec<i32> {
        self.kept.as_ref().map(|(source, _)| source.alive()).unwrap_or_default()
    }

    fn abandon(&mut self) {
        (self.kept, self.mappings) = (None, None);
    }
}
