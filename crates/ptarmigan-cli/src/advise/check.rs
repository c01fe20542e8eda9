//! Compares the advice from one recording with a second one, in which advice was followed.
//!
//! A prediction is a saving: the figure of the first recording less the one that is expected. It is
//! compared with the figure of the first recording less that of the second. The second recording
//! has to be of the same work: each program of the advice is started as often, within a fifth.
use super::advice::Advice;
use super::expect::{Expect, Figure};
use super::facts::Facts;
use super::figures::{Figures, percent};
use super::measure::{Measure, Side};
use ptarmigan_replay::{Failure, SoloTrace, Trace};
use ptarmigan_trace::Unseen;
use serde::Serialize;

/// A prediction holds if it is off by this part of itself at the most.
const WITHIN: f64 = 0.2;
/// Less than this part of the predicted saving is none.
const NONE: f64 = 0.2;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// The saving is as predicted, within a fifth.
    Held,
    /// There is a saving, and it is smaller or larger.
    Partly,
    /// There is hardly any.
    Not,
    /// The recordings do not tell.
    CannotBeTold,
}

/// One figure, compared.
#[derive(Debug, Serialize)]
pub struct CheckedFigure {
    /// The prediction.
    #[serde(flatten)]
    pub expect: Expect,
    /// The figure of the second recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<f64>,
    /// The result.
    pub result: Holds,
    /// Why the recordings do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// One piece of advice, compared.
#[derive(Debug, Serialize)]
pub struct CheckedAdvice {
    /// Its kind.
    pub kind: &'static str,
    /// The change.
    pub title: String,
    /// The result of all figures: the worst, and `partly` if some hold and some do not.
    pub result: Holds,
    /// The figures.
    pub figures: Vec<CheckedFigure>,
}

/// The comparison of two recordings.
#[derive(Debug, Serialize)]
pub struct Check {
    /// The name of the second recording.
    pub name: String,
    /// The pieces of advice, in their order.
    pub advice: Vec<CheckedAdvice>,
}

/// The second recording.
pub struct After {
    name: String,
    facts: Facts,
    whole: Figures,
    lost: u64,
    unseen: Unseen,
}

impl After {
    /// Replays the second recording.
    ///
    /// # Errors
    /// If it is of another machine than the first, or cannot be replayed.
    pub fn new(trace: Trace, before: &Trace, measure: &Measure) -> Result<Self, Failure> {
        let machine = |trace: &Trace| (trace.header.arch, trace.header.page_shift);
        if machine(&trace) != machine(before) {
            let of = |trace: &Trace| {
                format!("{} with pages of {} bytes", trace.header.arch.name(), 1 << trace.header.page_shift)
            };
            return Err(Failure::new(format!(
                "--check {}: recorded on {}, and {} on {}: they cannot be compared",
                trace.name,
                of(&trace),
                before.name,
                of(before)
            )));
        }
        measure.say("replaying the second recording");
        let facts = Facts::of(&trace);
        let (name, lost, unseen) = (trace.name.clone(), trace.lost, trace.header.unseen);
        let solo = SoloTrace::new(trace);
        let whole = Figures::of(&[measure.once(Side { trace: &solo, on: measure.usual })?]);
        Ok(After { name, facts, whole, lost, unseen })
    }

    /// Compares advice from the first recording.
    pub fn check(self, advice: &[Advice], before: &Trace, facts: &Facts) -> Check {
        let advice = advice.iter().map(|piece| {
            let figures: Vec<CheckedFigure> =
                piece.details.expect.iter().map(|expect| self.figure(expect, before, facts)).collect();
            let result = together(figures.iter().map(|figure| figure.result));
            CheckedAdvice { kind: piece.kind, title: piece.title.clone(), result, figures }
        });
        let advice = advice.collect();
        Check { name: self.name, advice }
    }

    fn figure(&self, expect: &Expect, before: &Trace, facts: &Facts) -> CheckedFigure {
        let recorded = match self.not_comparable(expect, before, facts) {
            Some(why) => Err(why),
            None => expect.figure.of(&expect.programs, &self.facts, &self.whole),
        };
        let expect = expect.clone();
        match recorded {
            Err(why) => CheckedFigure { expect, recorded: None, result: Holds::CannotBeTold, why: Some(why) },
            Ok(recorded) => {
                let result = judged(expect.saving(), expect.without - recorded);
                CheckedFigure { expect, recorded: Some(recorded), result, why: None }
            }
        }
    }

    /// Returns why a figure of the second recording cannot be compared with the first one's.
    fn not_comparable(&self, expect: &Expect, before: &Trace, facts: &Facts) -> Option<String> {
        if self.lost > 0 {
            return Some(format!("{} events of it were lost", self.lost));
        }
        let blind = |unseen: Unseen| unseen.has(Unseen::KERNEL_FAULTS);
        if expect.figure == Figure::Faults && blind(self.unseen) != blind(before.header.unseen) {
            return Some("only one of the two recordings has faults of the kernel".to_owned());
        }
        expect.programs.iter().find_map(|name| {
            let was = facts.named(name)?.starts;
            let Some(is) = self.facts.named(name).map(|program| program.starts) else {
                let programs = self.facts.programs.iter().filter(|p| p.starts > 0);
                let others: Vec<&str> = programs.map(|p| p.name.as_str()).take(4).collect();
                return Some(format!("no program {name} is in it, but {}", others.join(", ")));
            };
            let differ = was.abs_diff(is) as f64 > was as f64 * WITHIN;
            differ.then(|| format!("{name} was started {is} times in it, and {was} times before"))
        })
    }
}

/// Compares a saving with the predicted one.
fn judged(predicted: f64, recorded: f64) -> Holds {
    let part = recorded / predicted;
    if (part - 1.0).abs() <= WITHIN {
        Holds::Held
    } else if part >= NONE {
        Holds::Partly
    } else {
        Holds::Not
    }
}

/// Puts the results of several figures together.
fn together(results: impl Iterator<Item = Holds>) -> Holds {
    let told: Vec<Holds> = results.filter(|result| *result != Holds::CannotBeTold).collect();
    let all = |holds| told.iter().all(|result| *result == holds);
    match told.as_slice() {
        [] => Holds::CannotBeTold,
        _ if all(Holds::Held) => Holds::Held,
        _ if all(Holds::Not) => Holds::Not,
        _ => Holds::Partly,
    }
}

impl Holds {
    /// Returns the words for it.
    pub fn words(self) -> &'static str {
        match self {
            Holds::Held => "held",
            Holds::Partly => "partly",
            Holds::Not => "not",
            Holds::CannotBeTold => "cannot be told",
        }
    }
}

impl CheckedFigure {
    /// Returns the comparison as a sentence.
    pub fn sentence(&self) -> String {
        let Expect { figure, without, with, .. } = &self.expect;
        let predicted = figure.amount(self.expect.saving());
        let (Some(recorded), None) = (self.recorded, &self.why) else {
            let why = self.why.as_deref().unwrap_or("the second recording does not have it");
            return format!("{predicted} less predicted: {}, as {why}.", self.result.words());
        };
        let saving = without - recorded;
        let part = if saving >= 0.0 {
            format!("{} less recorded, {} of that", figure.amount(saving), percent(saving / (without - with)))
        } else {
            format!("{} more recorded", figure.amount(-saving))
        };
        format!("{predicted} less predicted, {part}: {}.", self.result.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_holds_within_a_fifth_and_partly_if_there_is_some_saving() {
        let cases = [
            (100.0, Holds::Held),
            (80.0, Holds::Held),
            (120.0, Holds::Held),
            (79.0, Holds::Partly),
            (121.0, Holds::Partly),
            (20.0, Holds::Partly),
            (19.0, Holds::Not),
            (-50.0, Holds::Not),
        ];
        for (recorded, holds) in cases {
            assert_eq!(judged(100.0, recorded), holds, "{recorded}");
        }
    }

    #[test]
    fn several_figures_hold_together_if_all_that_are_known_hold() {
        use Holds::{CannotBeTold, Held, Not, Partly};
        let of = |results: &[Holds]| together(results.iter().copied());
        assert_eq!(of(&[Held, CannotBeTold]), Held);
        assert_eq!(of(&[Held, Not]), Partly);
        assert_eq!(of(&[Not, Not]), Not);
        assert_eq!(of(&[Partly, Held]), Partly);
        assert_eq!(of(&[CannotBeTold]), CannotBeTold);
        assert_eq!(of(&[]), CannotBeTold);
    }
}
