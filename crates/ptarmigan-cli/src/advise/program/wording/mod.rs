//! Puts findings into words, by program, and weighs them with a replay.
mod blocks;
mod children;
mod churn;
mod forks;
mod huge;
mod memory;
mod pin;

use super::super::advice::{Advice, Details, ProgramShare, Rejected, To, Verdict};
use super::super::expect::{self, Expect, Figure};
use super::super::facts::Facts;
use super::super::figures::{Figures, NOTHING, Saved, percent};
use super::super::measure::{Compared, Measure, Side};
use super::rejected::not;
pub use pin::PIN;
use ptarmigan_replay::model::page_prices::PagePrices;
use ptarmigan_replay::{SoloTrace, Trace};
use ptarmigan_term::{Count, Failure, Time};
use ptarmigan_trace::Cause;
use std::collections::BTreeMap;

/// The kind of advice on memory that comes back.
const CHURN: &str = "churn";
/// The kind of advice on arrays that grow.
const GROWTH: &str = "growth";
/// The kind of advice on changes of protection.
const PROTECT: &str = "protect";
/// The kind of advice on programs that are started for each small job.
pub const STARTS: &str = "starts";

/// The least saving of seconds that is advice by itself.
const LEAST_SECONDS: f64 = 0.005;

/// The least part of a program's work that makes a function worth naming.
const LEAST_CALLER: f64 = 0.1;

/// Says why a recording without the access of faults does not decide, as the end of a sentence.
const UNSEEN_WRITES: &str = "this recording does not show: it does not tell writes from reads, which one by \
                             tracefs does (as root)";

/// Says that a recording without the access of faults shows too small a saving, as a sentence.
const LOWER_BOUND: &str = "The recording does not tell writes from reads, so the parent's faults on pages that \
                           forks protect are left out. ";

/// A change of a program that may pay.
struct Proposal {
    kind: &'static str,
    title: String,
    /// The text before the savings, as sentences; may be empty.
    before: String,
    how: String,
    not_measured: String,
    corrected: Trace,
    /// Faults that the corrected program makes, and that are calls in `corrected`.
    faults_as_calls: u64,
    /// Where it applies.
    details: Details,
    /// Recorded seconds of calls that it saves.
    seconds: Option<f64>,
    /// Seconds that are missing from a figure of a second recording.
    seconds_of: Option<(Figure, f64)>,
    /// Processes or memory live longer with it: more tables at once are the price.
    raises_peak: bool,
    /// What the tables of the corrected recording say.
    tables: Tables,
}

/// What the tables of a corrected recording say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    /// Those that the corrected program has.
    Counted,
    /// Memory that comes and goes makes its tables again each time: of the tables made, only as
    /// many count as are saved at once.
    MadeAgain,
    /// The way to do it decides how many there are: faults alone are expected to fall.
    Open,
}

/// All that the verdicts are made of.
pub struct Look<'a> {
    /// The recording.
    pub recorded: &'a SoloTrace,
    /// Facts about its programs.
    pub facts: &'a Facts,
    /// The replay as recorded.
    pub whole: &'a Figures,
    /// Replays.
    pub measure: &'a Measure,
    /// Prices of pages on this host, if they were measured.
    pub prices: Option<PagePrices>,
}

impl Look<'_> {
    fn side<'s>(&self, trace: &'s SoloTrace) -> Side<'s> {
        Side { trace, on: self.measure.usual }
    }

    /// Returns whether the program of a number is the user's: shells and their like are not.
    pub fn is_told(&self, number: u32) -> bool {
        self.is_users(self.facts.program(number))
    }

    /// Returns whether the program of a number waits for each page, as with `userfaultfd`.
    pub fn waits_for_pages(&self, number: u32) -> bool {
        self.facts.programs[self.facts.program(number)].waits_for_pages()
    }

    fn is_users(&self, program: usize) -> bool {
        !self.facts.programs[program].is_wrapper()
    }

    /// Adds counts of numbers up by program, the largest first.
    fn by_program(&self, counts: impl Iterator<Item = (u32, u64)>) -> Vec<ProgramShare> {
        let mut sum: BTreeMap<usize, u64> = BTreeMap::new();
        for (number, count) in counts {
            *sum.entry(self.facts.program(number)).or_default() += count;
        }
        self.shares(sum.into_iter().map(|(program, count)| (program, count, None)))
    }

    /// Lists programs with their counts and seconds, the largest first.
    fn shares(&self, counts: impl Iterator<Item = (usize, u64, Option<f64>)>) -> Vec<ProgramShare> {
        let share = |(program, count, seconds): (usize, u64, Option<f64>)| ProgramShare {
            name: self.facts.programs[program].name.clone(),
            count,
            seconds,
        };
        let mut shares: Vec<ProgramShare> = counts.filter(|one| one.1 > 0).map(share).collect();
        shares.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        shares
    }

    /// Returns the function that caused most of the first program's work, as a sentence.
    fn caller(&self, shares: &[ProgramShare], cause: Cause) -> Option<String> {
        let first = shares.first()?;
        let program = self.facts.programs.iter().position(|program| program.name == first.name)?;
        let (function, part) = self.facts.caller(program, cause, &self.recorded.trace().symbols)?;
        if part < LEAST_CALLER {
            return None;
        }
        Some(format!("{function}: {} of those of {}", percent(part), first.name))
    }

    /// Replays a proposal.
    fn weigh(&self, proposal: Proposal) -> Result<Verdict, Failure> {
        let Proposal { kind, title, before, how, not_measured, corrected, .. } = proposal;
        let Proposal { faults_as_calls, mut details, seconds, seconds_of, .. } = proposal;
        let Proposal { raises_peak, tables, .. } = proposal;
        self.measure.say(&format!("replaying with and without: {kind}"));
        let corrected = SoloTrace::new(corrected);
        let more_faults = |mut figures: Figures| {
            figures.faults += faults_as_calls;
            figures
        };
        // Whether it pays is a matter of counts, which one replay shows, or of recorded seconds.
        let once = Figures::of(&[self.measure.once(self.side(&corrected))?]);
        let mut counted = Saved::between(self.whole, &once);
        counted.forget_times();
        let credited = |saved: Saved| {
            let faults = saved.faults - faults_as_calls as i64;
            let at_once = saved.tables_peak.max(saved.tables_at_end).max(0);
            let tables_made = match tables {
                Tables::MadeAgain => saved.tables_made.min(at_once),
                Tables::Counted | Tables::Open => saved.tables_made,
            };
            Saved { faults, tables_made, ..saved }
        };
        let saved = credited(counted.clone());
        let seconds = seconds.filter(|seconds| *seconds >= LEAST_SECONDS);
        let judged = match raises_peak {
            true => Saved {
                tables_peak: saved.tables_peak.max(0),
                tables_at_end: saved.tables_at_end.max(0),
                ..saved.clone()
            },
            false => saved.clone(),
        };
        if !judged.pays(self.whole) && seconds.is_none() {
            return Ok(not(kind, format!("{title}: {}", saved.reason(self.whole))));
        }
        let Compared { without, with, saved } = match self.measure.compares() {
            true => self.measure.compare(self.side(self.recorded), self.side(&corrected))?,
            // Counts are the same in each replay.
            false => Compared { without: self.whole.clone(), saved: counted, with: once },
        };
        let with = more_faults(with);
        let saved = credited(saved);
        // All rounds are slower: it costs more than it saves, whatever the counts say.
        if saved.slows() && seconds.is_none() {
            return Ok(not(kind, format!("{title}: {}", saved.reason(&without))));
        }
        let programs: Vec<String> = details.programs.iter().map(|share| share.name.clone()).collect();
        let of_seconds = seconds_of
            .filter(|_| seconds.is_some())
            .and_then(|(figure, saved)| Expect::new(figure, &programs, saved, self.facts, self.whole));
        let mut counted = expect::from_replay(&saved, &programs, self.facts, self.whole);
        if tables == Tables::Open && counted.iter().any(|one| one.figure == Figure::Faults) {
            counted.retain(|one| one.figure == Figure::Faults);
        }
        details.expect.splice(0..0, of_seconds.into_iter().chain(counted));
        details.seconds = seconds;
        let (saves, costs) = saved.sentences(&without);
        // Where seconds are saved, no count has to be.
        let saves = saves.or_else(|| seconds.is_none().then(|| NOTHING.to_owned()));
        let figure: Vec<String> = [Some(before), saves, costs].into_iter().flatten().collect();
        let figure = figure.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty());
        let figure = figure.collect::<Vec<_>>().join(" ");
        let value = saved.value(&without).max(seconds.map_or(0.0, |seconds| self.part_of_cpu(seconds)));
        Ok(Verdict::Advised(Box::new(Advice {
            kind,
            to: To::of(kind),
            title,
            figure,
            how,
            not_measured,
            value,
            without,
            with,
            saved,
            details,
            linux: None,
            variants: Vec::new(),
        })))
    }

    /// Returns which part of the programs' CPU time so many seconds are, at most 1; 0 if the time
    /// is not known.
    fn part_of_cpu(&self, seconds: f64) -> f64 {
        let micros: u64 = self.facts.programs.iter().map(|program| program.cpu.0 + program.cpu.1).sum();
        if micros == 0 { 0.0 } else { (seconds * 1e6 / micros as f64).min(1.0) }
    }

    /// Returns what a wrapper does, as a rejected piece of advice.
    fn of_wrappers(&self, kind: &'static str, what: &str, shares: &[ProgramShare]) -> Option<Verdict> {
        let reason = match shares {
            [] => return None,
            shares => format!(
                "{what} of programs that start others are theirs, not your program's: {}; start them less \
                 often",
                list(shares, true)
            ),
        };
        Some(Verdict::Not(Rejected { kind, to: To::Program, measured: true, reason }))
    }
}

/// Formats a list of programs: "node 750 (0.31 s), npm 2". The first four are named. With one
/// program, `always` says whether its count is repeated.
fn list(shares: &[ProgramShare], always: bool) -> String {
    if let ([one], false) = (shares, always) {
        return one.name.clone();
    }
    let one = |share: &ProgramShare| {
        let seconds = share.seconds.map_or(String::new(), |s| format!(" ({})", Time::from_secs(s)));
        format!("{} {}{seconds}", share.name, Count(share.count))
    };
    let named: Vec<String> = shares.iter().take(4).map(one).collect();
    let more = shares.len().saturating_sub(4);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &rest
}
