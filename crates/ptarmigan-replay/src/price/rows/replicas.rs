//! A copy of all tables on each node: the price of it. The gain, walks of the node's own memory,
//! cannot be counted, as a recording has no walks.
use crate::linux::PAGE;
use crate::price::{About, Answer, Effect, Moment, Row, Unit, Whole, percent};
use foldhash::HashMap;
use ptarmigan::space::Done;
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count};

/// Nodes of the machine that is priced.
const NODES: u64 = 2;

/// Counts stores to entries of leaf tables.
#[derive(Default)]
pub struct Replicas {
    /// Entries by space, to be cleared at its end.
    entries: HashMap<u32, u64>,
    set: u64,
    changed: u64,
    cleared: u64,
}

impl Replicas {
    fn came(&mut self, space: u32, pages: u64) {
        *self.entries.entry(space).or_default() += pages;
        self.set += pages;
    }

    fn went(&mut self, space: u32, pages: u64) {
        let entries = self.entries.entry(space).or_default();
        *entries = entries.saturating_sub(pages);
        self.cleared += pages;
    }
}

impl Row for Replicas {
    fn about(&self) -> About {
        About {
            name: "replicas",
            title: "keep a copy of all tables on each node (Mitosis, numaPTE): the price only",
            reference: "Achermann et al., Mitosis, ASPLOS 2020; numaPTE (2024)",
            claim: "Mitosis: up to 1.34x on large memory; numaPTE: munmap up to 40x against copies \
                    everywhere",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        let Some(space) = moment.space else { return };
        let (mut copy, mut came, mut replaced) = (None, false, false);
        for effect in moment.effects {
            match *effect {
                Effect::Served(done) => replaced = matches!(done, Done::Copied | Done::Reused),
                Effect::Mapped { pages, .. } => {
                    came = true;
                    self.came(space, pages);
                }
                Effect::Unmapped { pages, .. } => self.went(space, pages),
                Effect::Moved { pages, .. } => {
                    self.went(space, pages);
                    self.came(space, pages);
                }
                Effect::Forked { child } => copy = Some(child),
                Effect::TableCopied { entries, .. } => {
                    self.came(copy.unwrap_or(space), entries.into());
                }
                Effect::Ended => self.cleared += self.entries.remove(&space).unwrap_or(0),
                _ => {}
            }
        }
        self.changed += u64::from(replaced && !came);
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let (made, peak) = whole.all_tables();
        let others = NODES - 1;
        let stores = self.set + self.changed + self.cleared;
        let mut answer = Answer::default();
        answer.figure("tables made more on 2 nodes", (made * others) as f64, "tables");
        answer.figure("tables at once more on 2 nodes", (peak * others) as f64, "tables");
        answer.figure("stores more on 2 nodes", (stores * others) as f64, "stores");
        answer.figure("stores that set", (self.set * others) as f64, "stores");
        answer.figure("stores that change", (self.changed * others) as f64, "stores");
        answer.figure("stores that clear", (self.cleared * others) as f64, "stores");
        answer.saves(Unit::Clear, -((made * others) as i64));
        answer.counted = format!(
            "The price on {NODES} nodes: {} more and {} more to leaf tables ({} set, {} change, {} clear).",
            several(made * others, "table"),
            several(stores * others, "store"),
            Count(self.set),
            Count(self.changed),
            Count(self.cleared),
        );
        answer.cost = format!("{} more of tables, at most.", Bytes((peak * others) << PAGE));
        answer.when_not = format!(
            "{:.0} % of the stores set or clear entries: a program that maps and ends pays for each twice, \
             and gains only by walks, which a recording does not have.",
            percent(self.set + self.cleared, stores),
        );
        answer.today = "Not in Linux: patches by the authors, and openEuler for AArch64 (25.03).".to_owned();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::tests::{END, START, answer, map, write};
    use ptarmigan_trace::{CloneKind, Kind};

    #[test]
    fn each_store_is_made_on_each_node() {
        let events = [
            (0, map(START, 8)),
            (0, write(START)),
            (0, write(START + 1)),
            (0, Kind::Clone { child: 1, kind: CloneKind::Fork }),
            (1, write(START)),
            (1, Kind::Munmap { start: START + 1, pages: 7 }),
            (1, END),
            (0, END),
        ];
        let found = answer(&events, Replicas::default()).unwrap();
        let values: Vec<f64> = found.figures.iter().map(|figure| figure.value).collect();
        // Two pages, and two of the copy; one is copied. All four are cleared. Each space has four
        // tables.
        assert_eq!(values, [8.0, 8.0, 9.0, 4.0, 1.0, 4.0]);
        assert!(found.when_not.starts_with("89 % of the stores"), "{}", found.when_not);
        assert_eq!((found.savings[0].unit, found.savings[0].count), (Unit::Clear, -8));
    }
}
