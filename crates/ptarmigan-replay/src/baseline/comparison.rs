//! Figures of now beside those of a baseline.
use super::figures::{EVENTS, Figure};
use ptarmigan_term::print;
use ptarmigan_term::text::{Text, TextTable};
use ptarmigan_term::{Failure, figure};
use serde::Serialize;
use std::fmt::{Display, Write};

/// The comparison. As JSON it is the field `comparison` of a document.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Name of the baseline.
    baseline: String,
    figures: Vec<Compared>,
    /// Figures of the baseline that this run does not have.
    only_before: usize,
    /// Figures of this run that the baseline does not have.
    only_now: usize,
}

/// A report for JSON, with a comparison if one was asked for.
#[derive(Serialize)]
pub struct WithComparison<'a, T> {
    /// The report, whose fields stand at the top of the document.
    #[serde(flatten)]
    pub report: &'a T,
    /// The comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<&'a Comparison>,
}

/// A figure that both have.
#[derive(Clone, Debug, Serialize)]
struct Compared {
    of: String,
    what: String,
    unit: String,
    before: f64,
    now: f64,
    /// `now` divided by `before`; absent if `before` is 0.
    ratio: Option<f64>,
}

impl Comparison {
    /// Compares the figures that both have.
    ///
    /// # Errors
    /// If they share no figure, or are of different recordings with one name.
    pub fn of(name: &str, before: &[Figure], now: &[Figure]) -> Result<Self, Failure> {
        let same = |a: &Figure, b: &Figure| a.of == b.of && a.what == b.what && a.unit == b.unit;
        let mut figures = Vec::new();
        for figure in now {
            if let Some(old) = before.iter().find(|old| same(old, figure)) {
                if figure.what == EVENTS {
                    if old.value != figure.value {
                        return Err(other_recording(name, old, figure));
                    }
                    continue;
                }
                let Figure { of, what, value: now, unit } = figure.clone();
                let ratio = (old.value != 0.0).then(|| now / old.value);
                figures.push(Compared { of, what, unit, before: old.value, now, ratio });
            }
        }
        if figures.is_empty() {
            let of = |figures: &[Figure]| figures.first().map_or("nothing".to_owned(), |one| one.of.clone());
            return Err(Failure::new(format!(
                "baseline {name} has no figure of this run: it is of {}, this run is of {}",
                of(before),
                of(now)
            )));
        }
        let only_before = before.iter().filter(|old| !now.iter().any(|one| same(old, one))).count();
        let only_now = now.iter().filter(|one| !before.iter().any(|old| same(old, one))).count();
        Ok(Comparison { baseline: name.to_owned(), figures, only_before, only_now })
    }

    /// Prints the table. Figures that have become worse are red on a terminal with colour and 80
    /// columns.
    ///
    /// # Errors
    /// As [`print::report`].
    pub fn print(&self) -> Result<(), Failure> {
        print::report(&self.text())
    }

    /// Returns a table of at most 80 columns.
    fn text(&self) -> Text {
        let label = |one: &Compared| {
            let what = if one.what == "value" { &one.unit } else { &one.what };
            format!("{} {what}", one.of)
        };
        let width =
            self.figures.iter().map(|one| label(one).chars().count()).max().unwrap_or(0).clamp(20, 49);
        let mut text = Text::default();
        // Writing to a text cannot fail.
        let _ = writeln!(text);
        text.heading(format_args!("against baseline {}", self.baseline));
        let mut table =
            TextTable::new(&["figure", "before", "now", "change"], &[-(width as isize), 10, 10, 8]);
        for one in &self.figures {
            let change = one.ratio.map_or("-".to_owned(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0));
            let cells: [&dyn Display; 4] =
                [&label(one), &figure(one.before, &one.unit), &figure(one.now, &one.unit), &change];
            table.row_if_bad(&cells, one.is_worse());
        }
        text.table(table);
        if self.only_before + self.only_now > 0 {
            let _ = writeln!(
                text,
                "not compared: {} figures of the baseline alone, {} of this run alone",
                self.only_before, self.only_now
            );
        }
        let _ = writeln!(text, "Counts are exact. Times vary from run to run: repeat both before you");
        let _ = writeln!(text, "believe a small change.");
        text
    }
}

impl Compared {
    /// Returns whether the figure has become worse: more time or more memory, or less speed.
    fn is_worse(&self) -> bool {
        let less_is_better = self.unit.starts_with("ns")
            || matches!(
                self.unit.as_str(),
                "us" | "ms" | "s" | "bytes" | "KiB" | "findings" | "instructions"
            )
            || self.what == "misses";
        (less_is_better && self.now > self.before) || (self.unit.ends_with("/s") && self.now < self.before)
    }
}

fn other_recording(name: &str, old: &Figure, now: &Figure) -> Failure {
    Failure::new(format!(
        "baseline {name} is of another recording of {}: {} events, this one has {}",
        now.of, old.value, now.value
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(of: &str, value: f64, unit: &str) -> Figure {
        Figure { of: of.into(), what: "value".into(), value, unit: unit.into() }
    }

    #[test]
    fn what_both_have_is_compared_and_the_rest_is_counted() {
        let before = [made("map/a", 2.0, "ns"), made("map/gone", 1.0, "ns")];
        let now = [made("map/a", 3.0, "ns"), made("map/new", 1.0, "ns"), made("map/new2", 1.0, "ns")];
        let comparison = Comparison::of("old", &before, &now).unwrap();
        assert_eq!((comparison.figures.len(), comparison.only_before, comparison.only_now), (1, 1, 2));
        let text = comparison.text().to_string();
        assert!(text.contains("+50.0 %") && text.contains("not compared: 1"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80) && !text.contains('\x1b'), "{text}");
        assert!(comparison.text().fitted(None, true).contains("\x1b[1;31mmap/a"));
    }

    #[test]
    fn a_recording_with_other_events_is_refused() {
        let of =
            |events| [Figure { what: EVENTS.into(), ..made("make", events, "events") }, made("a", 1.0, "ns")];
        let error = Comparison::of("old", &of(5.0), &of(6.0)).unwrap_err();
        assert!(error.message().contains("another recording of make: 5 events, this one has 6"));
        assert_eq!(Comparison::of("old", &of(5.0), &of(5.0)).unwrap().figures.len(), 1);
    }

    #[test]
    fn nothing_in_common_is_an_error_that_names_both() {
        let error = Comparison::of("old", &[made("a", 1.0, "ns")], &[made("b", 1.0, "ns")]).unwrap_err();
        assert!(error.message().contains("it is of a, this run is of b"), "{}", error.message());
    }

    #[test]
    fn a_baseline_of_zero_has_no_ratio() {
        let comparison = Comparison::of("old", &[made("a", 0.0, "ns")], &[made("a", 1.0, "ns")]).unwrap();
        assert!(comparison.figures[0].ratio.is_none());
        assert!(comparison.text().to_string().lines().any(|line| line.ends_with(" -")));
    }
}
