//! Counts of a replay, and the savings between two replays.
use ptarmigan_replay::{CountedRun, OpClass};
use ptarmigan_term::Count;
use ptarmigan_term::words::several;
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of a replay. Tables are of all levels, roots included.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Page faults.
    pub faults: u64,
    /// Of these, faults that found their page mapped.
    pub faults_found: u64,
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
            faults_found: count(|run| run.found_mapped),
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

/// Savings of one replay over another. A negative number is a loss.
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
    /// The part of the replay's processor time, at most 1 and below 0 if it takes more; 0 if the
    /// rounds do not tell a difference.
    pub work_share: f64,
    /// The part of the time of each cause, if there is a difference.
    pub cause_shares: BTreeMap<&'static str, f64>,
}

/// The sentence for a change without savings.
pub const NOTHING: &str = "Saves nothing.";

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

    /// Returns whether a change of the program pays: one count falls by at least a hundredth, and
    /// by more than a handful, and no count rises by a hundredth, and of tables by a handful.
    pub fn pays(&self, without: &Figures) -> bool {
        let counts = self.counts(without);
        let falls = |(saved, of, least): &(i64, u64, i64)| {
            *saved >= *least && *saved as f64 >= *of as f64 * LEAST_SHARE
        };
        let rises = |(saved, of, least): &(i64, u64, i64)| {
            let few = if *least == LEAST_TABLES { *least } else { 0 };
            -saved > few && (*saved as f64) < -(*of as f64 * LEAST_SHARE)
        };
        counts.iter().any(falls) && !counts.iter().any(rises)
    }

    /// Returns the counts: the saving, the count without the change, and the least saving that
    /// matters.
    fn counts(&self, without: &Figures) -> [(i64, u64, i64); 4] {
        [
            (self.faults, without.faults, LEAST_FAULTS),
            (self.tables_made, without.tables_made, LEAST_TABLES),
            (self.tables_peak, without.tables_peak, LEAST_TABLES),
            (self.tables_at_end, without.tables_at_end, LEAST_TABLES),
        ]
    }

    /// Returns whether the replay takes more time: every round does.
    pub fn slows(&self) -> bool {
        self.work_share <= -LEAST_SHARE
    }

    /// Returns the largest part that is saved, of time or of memory. Where no time is known, faults
    /// stand for it.
    pub fn value(&self, without: &Figures) -> f64 {
        let parts = self.counts(without).map(|(saved, of, _)| saved as f64 / (of as f64).max(1.0));
        let time = if self.work_share == 0.0 { parts[0].max(0.0) } else { self.work_share };
        parts.into_iter().skip(2).fold(time, f64::max)
    }

    /// Returns the counts that fall and those that rise, as parts of sentences.
    fn parts(&self, without: &Figures) -> (Vec<String>, Vec<String>) {
        let names = [
            ("fault", ""),
            ("table", " made"),
            ("table", " at the peak"),
            ("table", " at the end of programs"),
        ];
        let (mut less, mut more) = (Vec::new(), Vec::new());
        for ((saved, of, _), (thing, which)) in self.counts(without).into_iter().zip(names) {
            let share = percent(saved as f64 / (of as f64).max(1.0));
            match saved {
                0 => {}
                // The figure is in the document, and no reason to do anything.
                1.. if (saved as f64) < of as f64 * LEAST_SHARE => {}
                1.. => {
                    let saved = Count(saved.unsigned_abs());
                    less.push(format!("{saved} of {}{which} ({share})", several(of, thing)));
                }
                // Nor is this one, which every run differs by.
                _ if (saved as f64) > -(of as f64 * LEAST_SHARE) => {}
                _ => more.push(format!("{}{which}", several(saved.unsigned_abs(), thing))),
            }
        }
        (less, more)
    }

    /// Returns the savings as a sentence, and the costs as another, if there are any.
    pub fn sentences(&self, without: &Figures) -> (Option<String>, Option<String>) {
        let (mut less, more) = self.parts(without);
        let whole: f64 = without.causes.values().map(|cause| cause.ns).sum();
        // Parts of the whole, not only of causes that hardly count.
        let counts =
            |name: &str, share: f64| share > 0.0 && share * without.causes[name].ns >= whole * LEAST_SHARE;
        let causes = self.cause_shares.iter().filter(|(name, share)| counts(name, **share));
        let causes: Vec<String> =
            causes.map(|(name, share)| format!("{} of {name}", percent(*share))).collect();
        if self.work_share >= LEAST_SHARE {
            let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
            let share = percent(self.work_share);
            less.push(format!("{share} of the replay's time{causes}"));
        }
        let saves = (!less.is_empty()).then(|| format!("Saves {}.", list(&less)));
        let costs = (!more.is_empty()).then(|| format!("But it takes {} more.", list(&more)));
        (saves, costs)
    }

    /// Returns the savings and costs as sentences.
    pub fn sentence(&self, without: &Figures) -> String {
        let (saves, costs) = self.sentences(without);
        let saves = saves.unwrap_or_else(|| NOTHING.to_owned());
        costs.into_iter().fold(saves, |saves, costs| format!("{saves} {costs}"))
    }

    /// Returns why a change does not pay, without a full stop.
    pub fn reason(&self, without: &Figures) -> String {
        let (less, more) = self.parts(without);
        let less = if less.is_empty() { "nothing".to_owned() } else { list(&less) };
        let mut costs = Vec::new();
        if !more.is_empty() {
            costs.push(format!("takes {} more", list(&more)));
        }
        if self.slows() {
            costs.push(format!("the replay gets {} slower", percent(-self.work_share)));
        }
        if costs.is_empty() {
            format!("saves {less}")
        } else {
            format!("saves {less}, but {}", costs.join(" and "))
        }
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

/// Formats a part of a whole.
pub fn percent(share: f64) -> String {
    let hundredths = share * 100.0;
    if hundredths.abs() < 9.95 && hundredths != 0.0 {
        format!("{hundredths:.1} %")
    } else {
        format!("{hundredths:.0} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replay of 100,000 faults, 1,000 tables made, 500 at the peak and 900 at the end.
    fn run() -> CountedRun {
        let mut run =
            CountedRun { made: 1000, peak: 500, at_end: 900, processor_ns: 1e6, ..Default::default() };
        class(&mut run, OpClass::Fault, 100_000, 6e5);
        class(&mut run, OpClass::Exit, 10, 4e5);
        run
    }

    fn class(run: &mut CountedRun, of: OpClass, times: u64, ns: f64) {
        let class = &mut run.classes[of as usize];
        (class.times, class.ns) = (times, ns);
    }

    fn figures(change: impl FnOnce(&mut CountedRun)) -> Figures {
        let mut run = run();
        change(&mut run);
        Figures::of(&[run])
    }

    fn saved(change: impl FnOnce(&mut CountedRun)) -> Saved {
        Saved::between(&figures(|_| {}), &figures(change))
    }

    #[test]
    fn a_change_pays_if_a_count_falls_by_1_percent_and_none_rises() {
        let pays = |change: fn(&mut CountedRun)| saved(change).pays(&figures(|_| {}));
        assert!(!pays(|_| {}), "nothing is saved");
        assert!(pays(|run| run.classes[OpClass::Fault as usize].times -= 1000));
        assert!(!pays(|run| run.classes[OpClass::Fault as usize].times -= 999));
        assert!(pays(|run| run.made -= 10));
        assert!(!pays(|run| run.made -= 9));
        assert!(!pays(|run| run.peak -= 7), "more than a hundredth, and fewer than 8 tables");
        assert!(pays(|run| run.peak -= 8));
        assert!(pays(|run| run.at_end -= 9));
        assert!(!pays(|run| run.at_end += 9), "what is lost is not saved");
        assert!(pays(|run| (run.made, run.at_end) = (900, 909)), "a hundredth more is borne");
        assert!(!pays(|run| (run.made, run.at_end) = (900, 910)));
        let few = figures(|run| run.classes[OpClass::Fault as usize].times = 1000);
        let fewer = |by: u64| figures(|run| run.classes[OpClass::Fault as usize].times = 1000 - by);
        assert!(!Saved::between(&few, &fewer(255)).pays(&few));
        assert!(Saved::between(&few, &fewer(256)).pays(&few));
    }

    #[test]
    fn savings_are_sentences_with_their_shares_and_costs() {
        let say = |change: fn(&mut CountedRun)| saved(change).sentence(&figures(|_| {}));
        assert_eq!(say(|_| {}), "Saves nothing.");
        let change: fn(&mut CountedRun) = |run| {
            class(run, OpClass::Fault, 75_000, 3e5);
            (run.made, run.peak, run.at_end, run.processor_ns) = (600, 510, 895, 7e5);
        };
        assert_eq!(
            say(change),
            "Saves 25,000 of 100,000 faults (25 %), 400 of 1,000 tables made (40 %) and 30 % of the replay's time \
             (50 % of fault). But it takes 10 tables at the peak more."
        );
        let lost: fn(&mut CountedRun) = |run| (run.made, run.peak, run.at_end) = (1020, 501, 918);
        assert_eq!(
            saved(lost).reason(&figures(|_| {})),
            "saves nothing, but takes 20 tables made and 18 tables at the end of programs more"
        );
    }

    #[test]
    fn a_change_that_makes_every_round_slower_says_so() {
        let slower: fn(&mut CountedRun) = |run| (run.made, run.processor_ns) = (600, 1.2e6);
        let mut slow = saved(slower);
        assert!(slow.slows() && slow.pays(&figures(|_| {})), "its counts pay");
        assert_eq!(
            slow.reason(&figures(|_| {})),
            "saves 400 of 1,000 tables made (40 %), but the replay gets 20 % slower"
        );
        slow.forget_times();
        assert!(!slow.slows(), "the rounds do not tell");
        assert_eq!(slow.sentence(&figures(|_| {})), "Saves 400 of 1,000 tables made (40 %).");
    }

    #[test]
    fn advice_is_worth_the_largest_part_of_time_or_of_table_memory() {
        let value = |change: fn(&mut CountedRun)| saved(change).value(&figures(|_| {}));
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(value(|run| (run.peak, run.at_end, run.processor_ns) = (400, 450, 9e5)), 0.5);
        near(value(|run| (run.peak, run.processor_ns) = (400, 7e5)), 0.3);
        near(value(|run| (run.peak, run.processor_ns) = (400, 1.5e6)), 0.2);
        near(value(|run| run.made = 0), 0.0);
        let faults: fn(&mut CountedRun) = |run| {
            run.peak = 475;
            run.classes[OpClass::Fault as usize].times = 6000;
        };
        near(value(faults), 0.94);
        near(value(|run| class(run, OpClass::Fault, 200_000, 6e5)), 0.0);
        let timed: fn(&mut CountedRun) = |run| {
            run.classes[OpClass::Fault as usize].times = 6000;
            run.processor_ns = 9e5;
        };
        near(value(timed), 0.1);
    }

    #[test]
    fn counts_are_of_the_first_round_and_times_the_least_of_all() {
        let slow = run();
        let mut fast = CountedRun { processor_ns: 5e5, made: 1, ..run() };
        class(&mut fast, OpClass::Fault, 1, 1e5);
        let figures = Figures::of(&[slow, fast]);
        assert_eq!((figures.faults, figures.tables_made), (100_000, 1000));
        assert_eq!((figures.work_ns, figures.causes["fault"].ns, figures.causes["exit"].ns), (5e5, 1e5, 4e5));
    }
}
