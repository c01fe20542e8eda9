//! Compares the advice from one recording with a second one, in which advice was followed.
//!
//! A prediction is a saving: the figure of the first recording less the one that is expected. It is
//! compared with the figure of the first recording less that of the second. The second recording
//! has to be of the same work: each program of the advice is started as often, within a fifth,
//! unless the advice is to start it less often.
//!
//! One second recording may follow several pieces of advice, and not others. A piece was not
//! carried out if the second recording has more than half of its cases, whatever they would save
//! there. If cases are not counted, it was not if the second recording gets it with half the saving
//! or more.
//!
//! A figure that fell nevertheless fell by another piece. Pieces that were carried out and save the
//! same figure are judged together: between the largest saving of them and the sum, as savings may
//! overlap. A figure that the others explain does not judge a piece.
use super::advice::{Advice, Verdict};
use super::expect::{Expect, Figure};
use super::facts::{Facts, ProgramFacts};
use super::figures::{Figures, percent};
use super::measure::{Measure, Side};
use super::names::Renamed;
use super::program::{self, Needs, STARTS};
use ptarmigan_replay::{SoloTrace, Trace};
use ptarmigan_term::Failure;
use ptarmigan_term::words::several;
use ptarmigan_trace::Unseen;
use serde::Serialize;
use std::collections::BTreeSet;

/// A prediction holds if it is off by this part of itself at the most.
const WITHIN: f64 = 0.2;
/// Less than this part of the predicted saving is none.
const NONE: f64 = 0.2;
/// A piece was not carried out if the second recording has more than this part of its cases, or
/// gets it with this part of its saving.
const AGAIN: f64 = 0.5;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// The saving is as predicted, within a fifth.
    Held,
    /// The saving is smaller or larger.
    Missed,
    /// The second recording is of a program that needs the advice as much as before.
    NotCarriedOut,
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
    /// The part of the prediction that it is off by: below 0 if less is saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_by: Option<f64>,
    /// The pieces that save this figure too, and were carried out, by their number from 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with_pieces: Vec<usize>,
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
    /// The result of all figures: the worst of those that are known.
    pub result: Holds,
    /// The part of the prediction that the worst figure is off by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_by: Option<f64>,
    /// The part of its cases that the second recording has, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cases_left: Option<f64>,
    /// The figures.
    pub figures: Vec<CheckedFigure>,
    /// The second recording gets the same advice.
    #[serde(skip)]
    again: bool,
}

/// The comparison of two recordings.
#[derive(Debug, Serialize)]
pub struct Check {
    /// The name of the second recording.
    pub name: String,
    /// The pieces of advice, in their order.
    pub advice: Vec<CheckedAdvice>,
}

/// The first recording.
pub struct First<'t> {
    /// The recording.
    pub trace: &'t Trace,
    /// Facts about its programs.
    pub facts: Facts,
    /// The cases that it has of each kind.
    pub needs: Needs,
}

/// The second recording.
pub struct After {
    name: String,
    facts: Facts,
    whole: Figures,
    lost: u64,
    unseen: Unseen,
    /// The advice that it gets.
    again: Vec<Advice>,
    needs: Needs,
}

impl After {
    /// Replays the second recording.
    ///
    /// # Errors
    /// If it is of another machine than the first, has no program of a name that is given, or
    /// cannot be replayed.
    pub fn new(
        trace: Trace,
        before: &Trace,
        names: &Renamed<'_>,
        measure: &Measure,
    ) -> Result<Self, Failure> {
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
        let mut facts = Facts::of(&trace);
        names.apply(&mut facts)?;
        let (name, lost, unseen) = (trace.name.clone(), trace.lost, trace.header.unseen);
        let solo = SoloTrace::new(trace);
        let whole = Figures::of(&[measure.once(Side { trace: &solo, on: measure.usual })?]);
        let found = program::advise(&solo, &facts, &whole, &measure.counts(), None)?;
        let again = found.verdicts.into_iter().filter_map(|verdict| match verdict {
            Verdict::Advised(advice) => Some(*advice),
            Verdict::Not(_) => None,
        });
        Ok(After { name, again: again.collect(), needs: found.needs, facts, whole, lost, unseen })
    }

    /// Compares advice from the first recording.
    pub fn check(self, advice: &[Advice], before: &First<'_>) -> Check {
        let left: Vec<Remainder> = advice.iter().map(|piece| self.left(piece, before)).collect();
        let shares = |one: usize, other: usize| {
            one != other
                && advice[one]
                    .details
                    .expect
                    .iter()
                    .any(|a| advice[other].details.expect.iter().any(|b| same(a, b)))
        };
        let certain: Vec<bool> = left.iter().map(Remainder::is_certain).collect();
        // Another piece that was carried out takes a part of what this one would save.
        let open = |piece: usize| {
            let others = (0..advice.len()).any(|other| shares(piece, other) && !certain[other]);
            certain[piece] || left[piece].cases.is_none() && left[piece].share >= AGAIN && others
        };
        let open: Vec<bool> = (0..advice.len()).map(open).collect();
        let one = |(number, piece): (usize, &Advice)| {
            let figures = piece.details.expect.iter().map(|expect| {
                let others = (0..advice.len()).filter(|other| *other != number && !open[*other]);
                let others = others.flat_map(|other| {
                    let shared = advice[other].details.expect.iter().find(|e| same(e, expect));
                    shared.map(|e| (other + 1, e.saving()))
                });
                // Its cases are gone: it was carried out, or another piece that leaves none.
                let state = if open[number] {
                    Carried::No
                } else if left[number].cases.is_some_and(|cases| cases <= WITHIN) {
                    Carried::Wholly
                } else {
                    Carried::Maybe
                };
                self.figure(piece.kind, expect, &others.collect::<Vec<_>>(), state, before)
            });
            let figures: Vec<CheckedFigure> = figures.collect();
            let result = together(figures.iter().map(|figure| figure.result));
            let parts = figures.iter().filter(|figure| figure.result == Holds::Missed);
            let parts = parts.filter_map(|figure| figure.missed_by);
            let missed_by = parts.max_by(|a, b| a.abs().total_cmp(&b.abs()));
            let again = left[number].saving > 0.0;
            let (title, cases_left) = (piece.title.clone(), left[number].cases);
            CheckedAdvice { kind: piece.kind, title, result, missed_by, cases_left, figures, again }
        };
        let checked = advice.iter().enumerate().map(one).collect();
        Check { name: self.name.clone(), advice: checked }
    }

    /// Returns how much of a piece of advice the second recording still gets.
    fn left(&self, piece: &Advice, before: &First<'_>) -> Remainder {
        let names = |advice: &Advice| -> BTreeSet<String> {
            advice.details.programs.iter().map(|share| share.name.clone()).collect()
        };
        let of = names(piece);
        let same_programs = |other: &&Advice| of.is_empty() || !names(other).is_disjoint(&of);
        let again = self.again.iter().filter(|other| other.kind == piece.kind).find(same_programs);
        let programs: Vec<String> = of.iter().cloned().collect();
        let cases = match before.needs.of(piece.kind, &programs) {
            0 => None,
            was => Some(self.needs.of(piece.kind, &programs) as f64 / was as f64),
        };
        let gone = Remainder { cases, ..Remainder::default() };
        let Some(again) = again else { return gone };
        let share = |expect: &Expect| expect.saving() / expect.without;
        // Seconds are predicted if prices were measured, which they are once. The figure that the
        // piece is about is the one of which it saves the largest part.
        let both = piece.details.expect.iter().filter_map(|first| {
            let now = again.details.expect.iter().find(|now| now.figure == first.figure)?;
            Some((first, now))
        });
        let both = both.max_by(|(a, _), (b, _)| share(a).total_cmp(&share(b)));
        both.map_or(gone, |(first, now)| Remainder {
            saving: now.saving() / first.saving(),
            share: share(now) / share(first),
            cases,
        })
    }

    fn figure(
        &self,
        kind: &str,
        expect: &Expect,
        others: &[(usize, f64)],
        carried: Carried,
        before: &First<'_>,
    ) -> CheckedFigure {
        let is_gone = |name: &String| self.facts.named(name).is_none();
        let recorded = match self.not_comparable(kind, expect, before) {
            Some(why) => Err(why),
            // Another program does the jobs.
            None if kind == STARTS && expect.programs.iter().all(is_gone) => Ok(0.0),
            None => expect.figure.of(&expect.programs, &self.facts, &self.whole),
        };
        let checked = CheckedFigure {
            expect: expect.clone(),
            recorded: None,
            missed_by: None,
            with_pieces: Vec::new(),
            result: Holds::CannotBeTold,
            why: None,
        };
        let recorded = match recorded {
            Err(why) => return CheckedFigure { why: Some(why), ..checked },
            Ok(recorded) => recorded,
        };
        let checked = CheckedFigure { recorded: Some(recorded), ..checked };
        if carried == Carried::No {
            return CheckedFigure { result: Holds::NotCarriedOut, ..checked };
        }
        let with_pieces: Vec<usize> = others.iter().map(|(number, _)| *number).collect();
        let savings: Vec<f64> = others.iter().map(|(_, saving)| *saving).collect();
        let checked = CheckedFigure { with_pieces, ..checked };
        let saved = expect.without - recorded;
        let alone = || Some(off(expect.saving(), expect.saving(), saved)).filter(|by| by.abs() <= WITHIN);
        let beside = judge(expect.saving(), &savings, saved);
        match beside.or_else(|| alone().filter(|_| carried == Carried::Wholly)) {
            Some(missed_by) => {
                let result = if missed_by.abs() <= WITHIN { Holds::Held } else { Holds::Missed };
                CheckedFigure { missed_by: Some(missed_by), result, ..checked }
            }
            None => {
                let one = others.len() == 1;
                let explain = if one { "explains" } else { "explain" };
                let why = format!("{} {explain} what was saved", pieces(&checked.with_pieces));
                CheckedFigure { why: Some(why), ..checked }
            }
        }
    }

    /// Returns why a figure of the second recording cannot be compared with the first one's.
    fn not_comparable(&self, kind: &str, expect: &Expect, before: &First<'_>) -> Option<String> {
        if self.lost > 0 {
            return Some(format!("{} events of it were lost", self.lost));
        }
        let blind = |unseen: Unseen| unseen.has(Unseen::KERNEL_FAULTS);
        if expect.figure == Figure::Faults && blind(self.unseen) != blind(before.trace.header.unseen) {
            return Some("only one of the two recordings has faults of the kernel".to_owned());
        }
        if kind == STARTS {
            return None;
        }
        expect.programs.iter().find_map(|name| {
            // A helper process of the same name is a part of the program's work.
            let starts = |program: &ProgramFacts| program.starts - program.starts_itself;
            let was = starts(before.facts.named(name)?);
            let Some(is) = self.facts.named(name).map(starts) else {
                return Some(format!(
                    "no program {name} is in it, but {}; --as {name}=NAME compares one of them",
                    self.facts.some_names()
                ));
            };
            let differ = was.abs_diff(is) as f64 > was as f64 * WITHIN;
            let times = |n| several(n, "time");
            differ.then(|| format!("{name} was started {} in it, and {} before", times(is), times(was)))
        })
    }
}

/// Whether a piece of advice was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    No,
    Maybe,
    /// It has no cases any more.
    Wholly,
}

/// The part of a piece of advice that the second recording still gets.
#[derive(Clone, Copy, Debug, Default)]
struct Remainder {
    /// The saving, as a part of that of the first recording.
    saving: f64,
    /// The part of the figure that it saves, as a part of that of the first recording.
    share: f64,
    /// The cases, as a part of those of the first recording. `None` if they were not counted.
    cases: Option<f64>,
}

impl Remainder {
    /// Returns whether the piece was not carried out, whatever others did.
    fn is_certain(&self) -> bool {
        self.cases.map_or(self.saving >= AGAIN, |cases| cases > AGAIN)
    }
}

/// Returns whether two predictions are about one figure.
fn same(a: &Expect, b: &Expect) -> bool {
    let common = || a.programs.iter().any(|name| b.programs.contains(name));
    a.figure == b.figure && (a.programs.is_empty() || b.programs.is_empty() || common())
}

/// Returns the part of a predicted saving of `least` to `most` that a recorded one is off by: below
/// 0 if it is smaller.
fn off(least: f64, most: f64, recorded: f64) -> f64 {
    if recorded < least {
        recorded / least - 1.0
    } else if recorded > most {
        recorded / most - 1.0
    } else {
        0.0
    }
}

/// Returns the part of a predicted saving of `own` that a recorded one is off by, beside `others`
/// that were carried out, too. `None` if a larger one of them, with the rest, explains the recorded
/// saving.
fn judge(own: f64, others: &[f64], recorded: f64) -> Option<f64> {
    let most = others.iter().fold(own, |most, saving| most.max(*saving));
    let rest: f64 = others.iter().sum();
    let alone = off(own, own, recorded);
    if alone < -WITHIN {
        return Some(alone);
    }
    if most > own && recorded <= rest * (1.0 + WITHIN) {
        return None;
    }
    Some(off(most, own + rest, recorded))
}

/// Names pieces by their numbers.
fn pieces(numbers: &[usize]) -> String {
    let listed: Vec<String> = numbers.iter().map(usize::to_string).collect();
    format!("{} {}", if numbers.len() == 1 { "piece" } else { "pieces" }, listed.join(" and "))
}

/// Puts the results of several figures together: the worst of those that are known.
fn together(results: impl Iterator<Item = Holds>) -> Holds {
    let worst = |result: &Holds| match result {
        Holds::CannotBeTold => 0,
        Holds::Held => 1,
        Holds::Missed => 2,
        Holds::NotCarriedOut => 3,
    };
    results.max_by_key(worst).unwrap_or(Holds::CannotBeTold)
}

/// Returns the words for a result, with the part that a prediction is off by.
fn words(result: Holds, missed_by: Option<f64>) -> String {
    match (result, missed_by) {
        (Holds::Held, _) => "held".to_owned(),
        (Holds::Missed, Some(part)) if part < 0.0 => format!("missed by {}", percent(-part)),
        (Holds::Missed, Some(part)) => format!("missed by {}, more than predicted", percent(part)),
        (Holds::Missed, None) => "missed".to_owned(),
        (Holds::NotCarriedOut, _) => "not carried out".to_owned(),
        (Holds::CannotBeTold, _) => "cannot be told".to_owned(),
    }
}

impl CheckedAdvice {
    /// Returns the result as a part of a sentence.
    pub fn words(&self) -> String {
        let words = words(self.result, self.missed_by);
        if self.result != Holds::NotCarriedOut {
            return words;
        }
        let fell = |figure: &CheckedFigure| {
            figure.recorded.is_some_and(|r| figure.expect.without - r >= figure.expect.saving() * NONE)
        };
        let also =
            if self.figures.iter().any(fell) { "; other changes save some of its figures" } else { "" };
        let why = match self.cases_left {
            Some(part) if !self.again => format!("the second recording has {} of its cases", percent(part)),
            _ => "the second recording gets the same advice".to_owned(),
        };
        format!("{words}: {why}{also}")
    }
}

impl CheckedFigure {
    /// Returns the comparison as a sentence.
    pub fn sentence(&self) -> String {
        let Expect { figure, without, .. } = &self.expect;
        let mut predicted = format!("{} less predicted", figure.amount(self.expect.saving()));
        if !self.with_pieces.is_empty() {
            predicted += &format!(" beside {}", pieces(&self.with_pieces));
        }
        let (Some(recorded), None) = (self.recorded, &self.why) else {
            let why = self.why.as_deref().unwrap_or("the second recording does not have it");
            return format!("{predicted}: {}, as {why}.", words(self.result, None));
        };
        if self.result == Holds::NotCarriedOut {
            return format!("{predicted}.");
        }
        let saving = without - recorded;
        let part = match (saving >= 0.0, self.with_pieces.is_empty()) {
            (true, true) => {
                format!(
                    "{} recorded, {} of that",
                    figure.bare(saving),
                    percent(saving / self.expect.saving())
                )
            }
            (true, false) => format!("{} recorded of all", figure.bare(saving)),
            (false, _) => format!("{} more recorded", figure.bare(-saving)),
        };
        format!("{predicted}, {part}: {}.", words(self.result, self.missed_by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saving_is_off_by_its_part_of_the_prediction() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(off(100.0, 100.0, 79.0), -0.21);
        near(off(100.0, 100.0, 121.0), 0.21);
        near(off(100.0, 100.0, -50.0), -1.5);
        // Pieces that save one figure: no less than the largest, and no more than all of them.
        near(off(100.0, 150.0, 120.0), 0.0);
        near(off(100.0, 150.0, 90.0), -0.1);
        near(off(100.0, 150.0, 165.0), 0.1);
    }

    #[test]
    fn a_figure_that_a_larger_piece_explains_says_nothing() {
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} {b}");
        // The larger one is judged with the smaller one, which is not judged by itself.
        near(judge(10_000.0, &[150.0], 10_100.0), 0.0);
        assert_eq!(judge(150.0, &[10_000.0], 10_100.0), None);
        assert_eq!(judge(150.0, &[10_000.0], 5_000.0), None);
        near(judge(10_000.0, &[150.0], 5_000.0), -0.5);
        // Less than it alone was to save: it missed, whatever the other did.
        near(judge(800.0, &[1_000.0], 400.0), -0.5);
        // More than the other one explains.
        near(judge(800.0, &[1_000.0], 1_500.0), 0.0);
        near(judge(800.0, &[800.0], 900.0), 0.0);
    }

    #[test]
    fn several_figures_have_their_worst_known_result() {
        use Holds::{CannotBeTold, Held, Missed, NotCarriedOut};
        let of = |results: &[Holds]| together(results.iter().copied());
        assert_eq!(of(&[Held, CannotBeTold]), Held);
        assert_eq!(of(&[Held, Missed]), Missed);
        assert_eq!(of(&[NotCarriedOut, Held]), NotCarriedOut);
        assert_eq!(of(&[CannotBeTold]), CannotBeTold);
        assert_eq!(of(&[]), CannotBeTold);
    }

    #[test]
    fn results_are_words() {
        assert_eq!(words(Holds::Missed, Some(-0.49)), "missed by 49 %");
        assert_eq!(words(Holds::Missed, Some(0.3)), "missed by 30 %, more than predicted");
        assert_eq!(words(Holds::Held, Some(0.1)), "held");
    }
}
