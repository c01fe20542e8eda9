//! Replays with and without.
use super::figures::{Figures, Saved};
use ptarmigan_bench::clock::Clock;
use ptarmigan_replay::{CountedMachine, CountedRun, SoloTrace};
use ptarmigan_term::Failure;
use ptarmigan_term::bar::ProgressBar;

/// One side of a comparison: a recording on a machine.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The recording.
    pub trace: &'a SoloTrace,
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

/// The result of a comparison.
pub struct Compared {
    /// The one side.
    pub without: Figures,
    /// The other side.
    pub with: Figures,
    /// The difference.
    pub saved: Saved,
}

impl Measure {
    /// Prepares replays on a machine of `memory` bytes, with so many rounds of each side. With 0
    /// each side is replayed once, and times are not compared.
    pub fn new(memory: u64, rounds: u8) -> Self {
        Measure {
            usual: CountedMachine::usual(memory),
            rounds,
            clock: Clock::calibrate(),
            spinner: ptarmigan_term::bar::spinner(),
        }
    }

    /// Returns the same for counts alone.
    pub fn counts(&self) -> Self {
        Measure { usual: self.usual, rounds: 0, clock: self.clock, spinner: self.spinner.clone() }
    }

    /// Returns whether times are compared.
    pub fn compares(&self) -> bool {
        self.rounds > 0
    }

    /// Shows the next measurement on a terminal.
    pub fn say(&self, what: &str) {
        self.spinner.set_message(what.to_owned());
    }

    /// Replays one side once.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn once(&self, side: Side<'_>) -> Result<CountedRun, Failure> {
        side.trace.count(&side.on, self.clock)
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

    /// Replays both sides in turns, so that a machine that changes its speed treats them alike.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    pub fn compare(&self, without: Side<'_>, with: Side<'_>) -> Result<Compared, Failure> {
        let mut runs = (Vec::new(), Vec::new());
        for _ in 0..self.rounds.max(1) {
            runs.0.push(self.once(without)?);
            runs.1.push(self.once(with)?);
        }
        let (without, with) = (Figures::of(&runs.0), Figures::of(&runs.1));
        let mut saved = Saved::between(&without, &with);
        if self.rounds == 0 || !times_differ(&runs.0, &runs.1) {
            saved.forget_times();
        }
        Ok(Compared { without, with, saved })
    }
}

/// Returns whether every round of the one side took less processor time than every round of the
/// other.
fn times_differ(without: &[CountedRun], with: &[CountedRun]) -> bool {
    let below = |a: &[CountedRun], b: &[CountedRun]| {
        a.iter().all(|a| b.iter().all(|b| a.processor_ns < b.processor_ns))
    };
    below(with, without) || below(without, with)
}

impl Drop for Measure {
    fn drop(&mut self) {
        self.spinner.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_differ_if_all_rounds_of_one_side_are_lower() {
        let rounds =
            |times: [f64; 3]| times.map(|processor_ns| CountedRun { processor_ns, ..Default::default() });
        let differ = |a, b| times_differ(&rounds(a), &rounds(b));
        assert!(differ([5.0, 7.0, 6.0], [3.0, 4.0, 4.5]), "less time");
        assert!(differ([3.0, 4.0, 4.5], [5.0, 7.0, 6.0]), "more time");
        assert!(!differ([5.0, 7.0, 6.0], [3.0, 4.0, 5.0]), "one round is as long");
        assert!(!differ([5.0, 7.0, 6.0], [3.0, 4.0, 6.5]), "one round is longer");
    }
}
