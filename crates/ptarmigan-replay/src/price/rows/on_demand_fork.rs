//! A fork that shares leaf tables: a table is copied at the first write, new entry or call for a
//! part of it, while another space has it.
//!
//! ```text
//! fork:   parent ─┐                 write by the child:  parent ── table, pages protected
//!         child  ─┴─ one table                           child  ── its copy, pages protected
//!                                   end of the child:    parent ── table, pages as before the fork
//! ```
//!
//! The entry above a shared table is write-protected. Once no other space has the table, one fault
//! lifts that for all of its pages, and the faults that a fork of today causes for the others are
//! spared. Pages of a table that was copied are protected one by one, as today, on both sides. A
//! table that moves is copied. Tables and entries are those that a fork copies today.
mod counts;
mod sharing;
#[cfg(test)]
mod tests;

use crate::price::{About, Answer, Moment, Row, Unit, Whole};
use counts::Counts;
use ptarmigan_term::{Count, words::several};

/// Shares leaf tables at forks.
#[derive(Default)]
pub struct OnDemandFork {
    counts: Counts,
}

impl Row for OnDemandFork {
    fn about(&self) -> About {
        About {
            name: "on-demand-fork",
            title: "share leaf tables at fork until a write",
            reference: "K. Zhao, S. Gong, P. Fonseca, On-demand-fork, EuroSys 2021",
            claim: "a fork with 1 GB of memory is up to 65 times as fast, the authors measured",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        self.counts.follow(moment);
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let counts = &self.counts;
        let ([tables, entries], [later, moved]) = (counts.forked, counts.copied);
        if tables == 0 {
            return Err(format!(
                "none of its {} copies a leaf table with pages",
                several(whole.forks, "fork")
            ));
        }
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / (whole as f64).max(1.0);
        let mut answer = Answer::default();
        for (name, value, unit) in [
            ("tables copied by forks", tables, "tables"),
            ("entries copied by forks", entries, "entries"),
            ("tables copied later", later, "tables"),
            ("entries copied later", moved, "entries"),
            ("copied at a write", counts.by[0], "tables"),
            ("copied for a new entry", counts.by[1], "tables"),
            ("copied at a call", counts.by[2], "tables"),
            ("faults on protected pages", counts.protections, "faults"),
            ("faults spared", counts.spared, "faults"),
            ("faults that lift the protection of a table", counts.lifted, "faults"),
        ] {
            answer.figure(name, value as f64, unit);
        }
        answer.saves(Unit::ForkedEntry, entries as i64 - moved as i64);
        answer.saves(Unit::Fault, counts.spared as i64);
        let [write, new, call] = counts.by.map(Count);
        answer.counted = format!(
            "Forks copy {} with {}. {} of these tables ({:.0} %) are copied after all: {write} at a write, {new} for \
             a new entry, {call} at a call. {} of {} on write-protected pages are spared.",
            several(tables, "leaf table"),
            several(entries, "page"),
            Count(later),
            percent(later, tables),
            Count(counts.spared),
            several(counts.protections, "fault"),
        );
        answer.cost = format!(
            "{} with {} are copied in faults instead of forks; the protection above a table takes {}.",
            several(later, "table"),
            several(moved, "page"),
            several(counts.lifted, "fault"),
        );
        answer.when_not = format!(
            "{:.0} % of the entries are copied all the same, later: {} of {} never are.",
            percent(moved, entries),
            Count(entries.saturating_sub(moved)),
            Count(entries),
        );
        answer.today =
            "No release of Linux has it. Where children start a program, vfork or posix_spawn copies no \
                        table at all."
                .to_owned();
        Ok(answer)
    }
}
