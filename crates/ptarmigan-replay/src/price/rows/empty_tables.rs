//! Leaf tables that calls leave empty: given back by a call that covers them, or when the last page
//! goes.
//!
//! Linux 6.14 gives back a leaf table if one `madvise(MADV_DONTNEED)` covers its whole span, and
//! the replay does so, too. A table whose pages go by smaller calls stays, although it is empty.
//! The row counts both kinds, and the tables that a program fills again: these would be made again.
//! A replay with `--empty-tables freed` gives all of them back, and judges that.
mod gone;
#[cfg(test)]
mod tests;

use crate::counted::{CountedMachine, CountedRun};
use crate::pages::REGION;
use crate::price::{About, Answer, Effect, Judgement, Moment, Row, Unit, Whole, entries, regions};
use gone::{EmptyRegions, Table};
use ptarmigan::space::EmptyTables as Rule;
use ptarmigan_term::{Count, words::several};
use ptarmigan_trace::Kind;
use std::collections::BTreeSet;

/// Counts tables that are left empty.
#[derive(Default)]
pub struct EmptyTables {
    regions: EmptyRegions,
    emptied: u64,
    refilled: u64,
    /// Empty tables that a fork has copied.
    copied: u64,
    at_end: u64,
    /// Tables that a covering call gave back, and how many were made again.
    covered: u64,
    again: u64,
}

impl EmptyTables {
    /// Pages have come.
    fn fill(&mut self, space: u32, start: u64, pages: u64) {
        for (region, _) in regions(start, pages) {
            match self.regions.remove(space, region) {
                Some(Table::Empty) => self.refilled += 1,
                Some(Table::Freed) => self.again += 1,
                None => {}
            }
        }
    }
}

impl Row for EmptyTables {
    fn about(&self) -> About {
        About {
            name: "empty-tables",
            title: "give leaf tables back when they are empty",
            reference: "Qi Zheng, reclaim empty tables in madvise (CONFIG_PT_RECLAIM), Linux 6.14 (2025)",
            claim: "the series' cover letter has a process with 110 GB of page tables",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        let Some(space) = moment.space else { return };
        let (mut left, mut child, mut frees) = (BTreeSet::new(), space, false);
        for effect in moment.effects {
            match *effect {
                Effect::Unmapped { start, pages } => left.extend(regions(start, pages).map(|part| part.0)),
                Effect::Moved { from, to, pages } => {
                    left.extend(regions(from, pages).map(|part| part.0));
                    self.fill(space, to, pages);
                }
                Effect::Mapped { start, pages } => self.fill(space, start, pages),
                Effect::TableFreed { level: 0, .. } => frees = true,
                Effect::Forked { child: new } => child = new,
                Effect::TableCopied { start, entries: 0 } => {
                    self.copied += 1;
                    self.regions.add(child, start / REGION, Table::Empty);
                }
                Effect::Ended => self.at_end += self.regions.end(space),
                _ => {}
            }
        }
        let Some(view) = moment.view else { return };
        if frees {
            // The call may have covered tables that were empty before it.
            let gone: Vec<_> = self.regions.empty(space).filter(|at| entries(view, *at).is_none()).collect();
            gone.into_iter().for_each(|region| _ = self.regions.remove(space, region));
        }
        for region in left {
            match (entries(view, region), moment.event.kind) {
                (Some(0), _) => {
                    self.emptied += 1;
                    self.regions.add(space, region, Table::Empty);
                }
                (None, Kind::Madvise { .. }) => {
                    self.covered += 1;
                    self.regions.add(space, region, Table::Freed);
                }
                _ => {}
            }
        }
    }

    fn machine(&self, usual: CountedMachine) -> Option<CountedMachine> {
        Some(CountedMachine { empty_tables: Rule::Freed, ..usual })
    }

    fn judge(&self, usual: &CountedRun, changed: &CountedRun) -> Option<Judgement> {
        // A fork does not copy a table that is not there.
        let counted = self.refilled as f64 - self.copied as f64;
        let replayed = changed.leaves_made as f64 - usual.leaves_made as f64;
        Some(Judgement { what: "more leaf tables made", counted, replayed })
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let (made, most) = (whole.tables[0], whole.tables_peak[0]);
        let mut answer = Answer::default();
        for (name, value) in [
            ("left empty", self.emptied),
            ("filled again", self.refilled),
            ("copied empty", self.copied),
            ("empty at once", self.regions.peak),
            ("empty at the end", self.at_end),
            ("given back by covering calls", self.covered),
            ("given back and made again", self.again),
        ] {
            answer.figure(name, value as f64, "tables");
        }
        answer.saves(Unit::Clear, self.copied as i64 - self.refilled as i64);
        let [emptied, again, peak, covered] =
            [self.emptied, self.again, self.regions.peak, self.covered].map(Count);
        answer.counted = format!(
            "Calls for a part of a table leave {emptied} of {} empty, at most {peak} at once (of {} in all); \
             calls that cover one give back {covered}.",
            several(made, "leaf table"),
            Count(most),
        );
        answer.cost = format!(
            "{} would be made again, as the program fills them; {again} that covering calls give back are.",
            several(self.refilled, "table"),
        );
        answer.when_not = format!(
            "{:.0} % of the empty tables are filled again, and {} of {} are never left empty.",
            100.0 * self.refilled as f64 / (self.emptied as f64).max(1.0),
            Count(made.saturating_sub(self.emptied)),
            several(made, "table"),
        );
        answer.today = "Linux 6.14 with CONFIG_PT_RECLAIM (x86-64), for each aligned 2 MiB that one \
                        madvise(MADV_DONTNEED) covers."
            .to_owned();
        Ok(answer)
    }
}
