//! Replays with and without.
use super::figures::{Figures, Saved};
use crate::error::Failure;
use crate::measure::clock::Clock;
use crate::replay::{CountedMachine, CountedRun, CountedTrace};
use indicatif::ProgressBar;

/// One side of a comparison: a recording on a machine.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The recording.
    pub trace: &'a CountedTrace,
    /// The machine.
    pub on: CountedMachine,
}

/// Replays recordings.
pub struct Measure {
    /// The machine, as the library sets it up by itself.
    pub usual: CountedMachine,
    rounds: u8,
    clock: Clock,
    spinner: ProgressBar,
}

/// What a comparison has found.
pub struct Compared {
    /// The one side.
    pub without: Figures,
    /// The other side.
    pub with: Figures,
    /// The difference.
    pub saved: Saved,
}

impl Measure {
    /// Prepares replays on a machine of `memory` bytes, with so many rounds of each side.
    pub fn new(memory: u64, rounds: u8) -> Self {
        Measure {
            usual: CountedMachine::usual(memory),
            rounds,
            clock: Clock::new(),
            spinner: crate::bar::spinner(),
        }
    }

    /// Shows on a terminal what is measured next.
    pub fn say(&self, what: &str) {
        self.spinner.set_message(what.to_owned());
    }

    /// Replays one side once.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn once(&self, side: Side<'_>) -> Result<CountedRun, Failure> {
        side.trace.run(&side.on, self.clock)
    }

    /// Replays one side in all rounds.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    pub fn alone(&self, side: Side<'_>) -> Result<(Figures, CountedRun), Failure> {
        let first = self.once(side)?;
        let mut runs = vec![first];
        for _ in 1..self.rounds {
            runs.push(self.once(side)?);
        }
        Ok((Figures::of(&runs), first))
    }

    /// Replays both sides in turns, so that a machine that changes its speed treats them alike. Times
    /// differ if every round of the other side took less than every round of the one.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    pub fn compare(&self, without: Side<'_>, with: Side<'_>) -> Result<Compared, Failure> {
        let mut runs = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            runs.0.push(self.once(without)?);
            runs.1.push(self.once(with)?);
        }
        let (without, with) = (Figures::of(&runs.0), Figures::of(&runs.1));
        let mut saved = Saved::between(&without, &with);
        let least = runs.0.iter().map(|run| run.processor_ns).fold(f64::INFINITY, f64::min);
        if runs.1.iter().any(|run| run.processor_ns >= least) {
            saved.forget_times();
        }
        Ok(Compared { without, with, saved })
    }
}

impl Drop for Measure {
    fn drop(&mut self) {
        self.spinner.finish_and_clear();
    }
}
