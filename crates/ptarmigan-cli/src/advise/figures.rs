//! What a replay counts, and what is saved between two of them.
use crate::replay::{CountedRun, OpClass};
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of a replay. Tables are of all levels, roots included.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Page faults.
    pub faults: u64,
    /// Tables made.
    pub tables_made: u64,
    /// The most tables at once.
    pub tables_peak: u64,
    /// Tables that address spaces had when they ended.
    pub tables_at_end: u64,
    /// Processor time of the replay, in nanoseconds.
    pub work_ns: f64,
    /// Faults, forks, execs, exits and calls. Their times are by the clock, and part of `work_ns`.
    pub causes: BTreeMap<&'static str, CauseFigures>,
    /// Table pages that came from the frame allocator.
    pub misses: u64,
    /// Magazines that a CPU exchanged at its node's depot.
    pub refills: u64,
    /// The most pages that the lists kept.
    pub cached_peak: u64,
}

/// The figures of one cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CauseFigures {
    /// How often it came.
    pub times: u64,
    /// Tables that it made.
    pub tables_made: u64,
    /// Tables that it took away.
    pub tables_freed: u64,
    /// Its time, in nanoseconds.
    pub ns: f64,
}

impl Figures {
    /// Summarises rounds of one replay. Counts are those of the first round. A time is the least of
    /// the rounds: other work on the machine only adds to it.
    pub fn of(rounds: &[CountedRun]) -> Self {
        let mut causes = BTreeMap::new();
        for cause in OpClass::ALL.into_iter().filter(|cause| *cause != OpClass::Switch) {
            let ns = rounds.iter().map(|run| run.classes[cause as usize].ns).fold(f64::INFINITY, f64::min);
            let first = rounds.first().map(|run| run.classes[cause as usize]).unwrap_or_default();
            let figures =
                CauseFigures { times: first.times, tables_made: first.made, tables_freed: first.freed, ns };
            causes.insert(cause.name(), figures);
        }
        let count = |of: fn(&CountedRun) -> u64| rounds.first().map_or(0, of);
        Figures {
            faults: causes[OpClass::Fault.name()].times,
            tables_made: count(|run| run.made),
            tables_peak: count(|run| run.peak),
            tables_at_end: count(|run| run.at_end),
            work_ns: rounds.iter().map(|run| run.processor_ns).fold(f64::INFINITY, f64::min),
            causes,
            misses: count(|run| run.misses),
            refills: count(|run| run.refills),
            cached_peak: count(|run| run.cached),
        }
    }
}

/// What is saved. A number below 0 is lost.
#[derive(Clone, Debug, Serialize)]
pub struct Saved {
    /// Page faults.
    pub faults: i64,
    /// Tables made.
    pub tables_made: i64,
    /// Tables at the peak.
    pub tables_peak: i64,
    /// Tables that address spaces had when they ended.
    pub tables_at_end: i64,
    /// The part of the replay's processor time, 0 to 1; 0 if the rounds do not tell a difference.
    pub work_share: f64,
    /// The part of the time of each cause, if there is a difference.
    pub cause_shares: BTreeMap<&'static str, f64>,
}

/// The least part of a figure that counts as a saving.
pub const LEAST_SHARE: f64 = 0.01;
/// The fewest tables that count as a saving.
const LEAST_TABLES: i64 = 8;
/// The fewest faults that count as a saving.
const LEAST_FAULTS: i64 = 256;

impl Saved {
    /// Compares the counts of two replays, and their times.
    pub fn between(without: &Figures, with: &Figures) -> Self {
        let less = |a: u64, b: u64| a as i64 - b as i64;
        let share = |a: f64, b: f64| if a > 0.0 { (a - b) / a } else { 0.0 };
        let shares =
            without.causes.iter().map(|(name, cause)| (*name, share(cause.ns, with.causes[name].ns)));
        Saved {
            faults: less(without.faults, with.faults),
            tables_made: less(without.tables_made, with.tables_made),
            tables_peak: less(without.tables_peak, with.tables_peak),
            tables_at_end: less(without.tables_at_end, with.tables_at_end),
            work_share: share(without.work_ns, with.work_ns),
            cause_shares: shares.collect(),
        }
    }

    /// Leaves the times out: the rounds do not tell a difference.
    pub fn forget_times(&mut self) {
        self.work_share = 0.0;
        self.cause_shares.clear();
    }

    /// Returns whether a change of the program is worth it: one count falls by a hundredth at least,
    /// and by more than a handful, and none rises by a hundredth.
    pub fn pays(&self, without: &Figures) -> bool {
        let counts = self.counts(without);
        let falls = |(saved, of, least): &(i64, u64, i64)| {
            *saved >= *least && *saved as f64 >= *of as f64 * LEAST_SHARE
        };
        let rises = |(saved, of, _): &(i64, u64, i64)| (*saved as f64) < -(*of as f64 * LEAST_SHARE);
        counts.iter().any(falls) && !counts.iter().any(rises)
    }

    /// Returns the counts: what is saved, of how much, and how little is too little.
    fn counts(&self, without: &Figures) -> [(i64, u64, i64); 4] {
        [
            (self.faults, without.faults, LEAST_FAULTS),
            (self.tables_made, without.tables_made, LEAST_TABLES),
            (self.tables_peak, without.tables_peak, LEAST_TABLES),
            (self.tables_at_end, without.tables_at_end, LEAST_TABLES),
        ]
    }

    /// Returns the largest part that is saved, of time or of memory.
    pub fn value(&self, without: &Figures) -> f64 {
        let parts = self.counts(without).map(|(saved, of, _)| saved as f64 / (of as f64).max(1.0));
        parts.into_iter().skip(2).fold(self.work_share, f64::max)
    }

    /// Returns the counts that fall and those that rise, as parts of sentences.
    fn parts(&self, without: &Figures) -> (Vec<String>, Vec<String>) {
        let names = ["faults", "tables made", "tables at the peak", "tables at the end of programs"];
        let (mut less, mut more) = (Vec::new(), Vec::new());
        for ((saved, of, _), name) in self.counts(without).into_iter().zip(names) {
            let share = percent(saved as f64 / (of as f64).max(1.0));
            match saved {
                0 => {}
                // The figure is in the document, and no reason to do anything.
                1.. if (saved as f64) < of as f64 * LEAST_SHARE => {}
                1.. => less.push(format!("{saved} of {of} {name} ({share})")),
                _ => more.push(format!("{} {name}", -saved)),
            }
        }
        (less, more)
    }

    /// Returns what is saved as sentences.
    pub fn sentence(&self, without: &Figures) -> String {
        let (mut less, more) = self.parts(without);
        let whole: f64 = without.causes.values().map(|cause| cause.ns).sum();
        // Parts of the whole, not only of causes that hardly count.
        let counts = |name: &str, share: f64| share * without.causes[name].ns >= whole * LEAST_SHARE;
        let causes = self.cause_shares.iter().filter(|(name, share)| counts(name, **share));
        let causes: Vec<String> =
            causes.map(|(name, share)| format!("{} of {name}", percent(*share))).collect();
        if self.work_share >= LEAST_SHARE {
            let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
            let share = percent(self.work_share);
            less.push(format!("{share} of the replay's time{causes}"));
        }
        let costs = if more.is_empty() { String::new() } else { format!(" Costs {} more.", list(&more)) };
        let less = if less.is_empty() { "nothing".to_owned() } else { list(&less) };
        format!("Saves {less}.{costs}")
    }

    /// Returns why a change does not pay, without a full stop.
    pub fn counts_only(&self, without: &Figures) -> String {
        let (less, more) = self.parts(without);
        let less = if less.is_empty() { "nothing".to_owned() } else { list(&less) };
        let costs = if more.is_empty() { String::new() } else { format!(", and costs {} more", list(&more)) };
        format!("saves {less}{costs}")
    }
}

/// Joins the parts of a list.
fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Formats a number of things.
pub fn several(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// Formats a part of a whole.
pub fn percent(share: f64) -> String {
    let hundredths = share * 100.0;
    if hundredths.abs() < 9.95 && hundredths != 0.0 {
        format!("{hundredths:.1} %")
    } else {
        format!("{hundredths:.0} %")
    }
}
