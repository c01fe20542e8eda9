//! Five levels of tables in place of four: each space has one table more.
use crate::price::{About, Answer, Moment, Row, Unit, Whole, percent};
use ptarmigan_term::words::several;

/// Counts spaces.
pub struct FiveLevels;

impl Row for FiveLevels {
    fn about(&self) -> About {
        About {
            name: "five-levels",
            title: "use five levels of tables",
            reference: "K. Shutemov, 5-level paging, Linux 4.14 (2017)",
            claim: "address space of 128 PiB in place of 128 TiB; no gain in time",
        }
    }

    fn event(&mut self, _: &Moment<'_>) {}

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let ((made, peak), leaves) = (whole.all_tables(), whole.tables[0]);
        let (spaces, at_once) = whole.spaces;
        let mut answer = Answer::default();
        answer.figure("tables made more", spaces as f64, "tables");
        answer.figure("tables at once more", at_once as f64, "tables");
        answer.figure("of all tables made", percent(spaces, made), "%");
        answer.figure("of leaf tables made", percent(spaces, leaves), "%");
        answer.figure("of tables at once", percent(at_once, peak), "%");
        answer.saves(Unit::Clear, -(spaces as i64));
        answer.counted = format!(
            "{} more would be made, one a space, beside {}: {:.1} % more.",
            several(spaces, "table"),
            several(made, "table"),
            percent(spaces, made),
        );
        answer.cost =
            format!("At most {} at once, and one more read where a walk misses.", several(at_once, "table"));
        answer.when_not = format!(
            "No program gains that needs less than 128 TiB of addresses: each of {} would pay for a table.",
            several(spaces, "space"),
        );
        answer.today = "On by itself where the CPU has it (x86-64 since Linux 4.14); boot with \
                        no5lvl to have four levels."
            .to_owned();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::tests::{END, START, answer, map, write};
    use ptarmigan_trace::{CloneKind, Kind};

    #[test]
    fn each_space_has_one_table_more() {
        let fork = |child| Kind::Clone { child, kind: CloneKind::Fork };
        let mut events = vec![(0, map(START, 8)), (0, write(START))];
        for child in 1..4 {
            // Two copies are there at once, the third comes later.
            events.push((0, fork(child)));
            if child > 1 {
                events.push((child - 1, END));
            }
        }
        events.extend([(3, END), (0, END)]);
        let found = answer(&events, FiveLevels).unwrap();
        let value = |name: &str| found.figures.iter().find(|f| f.name == name).unwrap().value;
        assert_eq!([value("tables made more"), value("tables at once more")], [4.0, 3.0]);
        // A space of this size has four tables, one of each level.
        assert_eq!([value("of all tables made"), value("of leaf tables made")], [25.0, 100.0]);
        assert!(found.when_not.contains("4 spaces"), "{}", found.when_not);
        assert_eq!(found.savings.len(), 1);
        assert_eq!((found.savings[0].unit, found.savings[0].count), (Unit::Clear, -4));
    }
}
