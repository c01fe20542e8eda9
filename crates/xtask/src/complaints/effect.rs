//! Runs programs and their cures in turns, without recording them: whether a cure does harm.
use super::table::Case;
use crate::usage::Usage;
use ptarmigan_term::text::{Text, TextTable};
use ptarmigan_term::{Bytes, Count, Time};
use std::fmt::Display;
use std::process::Command;
use std::time::Duration;

/// A cure that takes so many times the processor time, and so many seconds more, does harm; less
/// may be noise.
const HARM: (f64, f64) = (1.1, 0.02);

/// Runs of one side.
#[derive(Default)]
struct Side(Vec<Usage>);

/// Both sides of a case.
pub struct Effect {
    case: Case,
    sides: [Side; 2],
}

impl Side {
    /// Returns the median of a measurement.
    fn median<T: Ord + Copy>(&self, of: impl Fn(&Usage) -> T) -> T {
        let mut all: Vec<T> = self.0.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    }
}

impl Effect {
    /// Runs the two commands of a case in turns.
    ///
    /// # Errors
    /// If one of them does not succeed.
    pub fn of(case: &Case, rounds: u32, commands: [&dyn Fn() -> Command; 2]) -> Result<Self, String> {
        let mut sides = [Side::default(), Side::default()];
        for _ in 0..rounds {
            for (side, command) in sides.iter_mut().zip(commands) {
                side.0.push(Usage::of(&mut command())?);
            }
        }
        Ok(Effect { case: case.clone(), sides })
    }

    /// Returns why the cure does harm, if it does.
    pub fn harm(&self) -> Option<String> {
        let [before, after] =
            [0, 1].map(|side| self.sides[side].median(|used| used.processor()).as_secs_f64());
        let (name, more) = (self.case.name(), after / before.max(f64::MIN_POSITIVE));
        (more > HARM.0 && after - before > HARM.1)
            .then(|| format!("{name}: the cure takes {more:.2} times the processor time"))
    }
}

/// Makes the table of medians: two lines for each case, the cure and what it does.
pub fn report(effects: &[Effect]) -> Text {
    let heads = ["", "faults", "cured", "system", "cured", "CPU", "cured", "memory", "cured"];
    let mut rows = TextTable::new(&heads, &[-2, 9, 9, 8, 8, 8, 8, 8, 8]);
    for Effect { case, sides, .. } in effects {
        let faults = sides.each_ref().map(|side| Count(side.median(|used| used.faults)));
        let time = |of: fn(&Usage) -> Duration| sides.each_ref().map(|side| Time::from(side.median(of)));
        let (system, processor) = (time(|used| used.system), time(Usage::processor));
        let memory = sides.each_ref().map(|side| Bytes(side.median(|used| used.most_memory)));
        let label = format!("{}: {}", case.name(), case.cure.join(" "));
        let cells: [&dyn Display; 9] = [
            &label,
            &faults[0],
            &faults[1],
            &system[0],
            &system[1],
            &processor[0],
            &processor[1],
            &memory[0],
            &memory[1],
        ];
        rows.row(&cells);
    }
    let mut text = Text::default();
    text.table(rows);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cure_that_takes_longer_does_harm() {
        let used = |ms| Usage { user: Duration::from_millis(ms), ..Usage::default() };
        let effect = |after: [u64; 3]| Effect {
            case: Case { file: "a.c".into(), ..Case::default() },
            sides: [Side([100, 90, 300].map(used).into()), Side(after.map(used).into())],
        };
        assert_eq!(effect([50, 105, 900]).harm(), None, "the median is 5 % more");
        let harm = effect([50, 205, 900]).harm();
        assert_eq!(harm.as_deref(), Some("a: the cure takes 2.05 times the processor time"));
        let text = report(&[effect([50, 105, 900])]).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
