//! Leaf tables that all spaces with the same shared memory have together.
//!
//! A fault fills the entry for every space that has the table, and the table stays while one of
//! them has a page in it:
//!
//! ```text
//! today:  space 1 ── table ──┐              shared:  space 1 ─┐
//!         space 2 ── table ──┴─ object               space 2 ─┴─ table ── object
//! ```
//!
//! Areas share a table if they show the same object, at the same place in the table, and cover all
//! of the table's span. With huge pages of hugetlb there is no leaf table at all, and each space
//! has one fault for each table that it has today.
mod counts;
mod objects;
#[cfg(test)]
mod tests;

use crate::price::{About, Answer, Moment, Row, Unit, Whole};
use counts::Counts;
use ptarmigan_term::{Count, words::several};

/// Shares tables of shared memory.
#[derive(Default)]
pub struct SharedTables {
    counts: Counts,
}

impl Row for SharedTables {
    fn about(&self) -> About {
        About {
            name: "shared-tables",
            title: "share leaf tables of shared memory between spaces",
            reference: "D. McCracken, shared page tables (2005); K. Aziz, A. Yznaga, mshare (since 2022): patches for Linux",
            claim: "the series for mshare tells of a database server that had no memory for its clients' tables",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        self.counts.follow(moment);
    }

    fn answer(&mut self, _: &Whole<'_>) -> Result<Answer, String> {
        let counts = &self.counts;
        if counts.faults == 0 {
            return Err("it has no fault on shared memory".to_owned());
        }
        if counts.partial == counts.faults {
            let faults = several(counts.faults, "fault");
            return Err(format!("no area of shared memory with faults covers a whole table ({faults})"));
        }
        if counts.unknown > 0 && counts.unknown + counts.partial == counts.faults && counts.spared == 0 {
            return Err("it does not tell which programs map the same file: it lacks their names".to_owned());
        }
        let hugetlb = (counts.faults - counts.partial).saturating_sub(counts.made);
        let mut answer = Answer::default();
        for (name, value, unit) in [
            ("faults on shared memory", counts.faults, "faults"),
            ("faults spared", counts.spared, "faults"),
            ("faults spared by huge pages", hugetlb, "faults"),
            ("faults in areas without a whole table", counts.partial, "faults"),
            ("faults on files without a name", counts.unknown, "faults"),
            ("tables made today", counts.made, "tables"),
            ("tables made if shared", counts.shared_made, "tables"),
            ("tables at once today", counts.peak, "tables"),
            ("tables at once if shared", counts.shared_peak, "tables"),
        ] {
            answer.figure(name, value as f64, unit);
        }
        answer.saves(Unit::Fault, counts.spared as i64);
        answer.counted = format!(
            "{} of {} on shared memory ({:.0} %) are on pages that another space has in the same table; {} would be \
             made instead of {}, at most {} at once instead of {}.",
            Count(counts.spared),
            several(counts.faults, "fault"),
            100.0 * counts.spared as f64 / counts.faults as f64,
            several(counts.shared_made, "table"),
            Count(counts.made),
            Count(counts.shared_peak),
            Count(counts.peak),
        );
        answer.cost =
            "A flush of a shared table reaches all CPUs that run one of its spaces, and a change of \
                       permissions concerns them all."
                .to_owned();
        answer.when_not = format!(
            "{} of {} stay: {} of them lie in areas that cover no whole table.",
            Count(counts.faults - counts.spared),
            several(counts.faults, "fault"),
            Count(counts.partial),
        );
        answer.today = format!(
            "No release of Linux shares leaf tables. Huge pages (MAP_HUGETLB, SHM_HUGETLB, huge_pages = on of \
             PostgreSQL) need none: they spare {} here.",
            several(hugetlb, "fault"),
        );
        Ok(answer)
    }
}
