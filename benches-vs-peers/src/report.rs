//! Samples, and the rows made of them.

use std::fmt::Write as _;

use serde::Serialize;

use crate::contender::Case;

/// One line of the result.
#[derive(Serialize)]
pub struct Row {
    /// The case.
    pub case: &'static str,
    /// Who; ways that were not a contender's fastest carry a suffix.
    pub contender: String,
    /// The median over the rounds.
    pub value: f64,
    /// The unit of `value` and `min`.
    pub unit: &'static str,
    /// The fastest round.
    pub min: f64,
}

/// The JSON document.
#[derive(Serialize)]
pub struct Document {
    /// Which benchmark.
    pub bench: &'static str,
    /// Its rows.
    pub rows: Vec<Row>,
}

struct Series {
    case: Case,
    contender: &'static str,
    way: &'static str,
    samples: Vec<f64>,
}

impl Series {
    /// The median and the minimum.
    fn summary(&self) -> (f64, f64) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        (median, sorted[0])
    }
}

/// Everything measured so far.
#[derive(Default)]
pub struct Samples {
    series: Vec<Series>,
}

impl Samples {
    /// Adds one round's nanoseconds per page.
    pub fn add(&mut self, case: Case, contender: &'static str, way: &'static str, ns: f64) {
        let known = |s: &&mut Series| s.case == case && s.contender == contender && s.way == way;
        match self.series.iter_mut().find(known) {
            Some(series) => series.samples.push(ns),
            None => self.series.push(Series { case, contender, way, samples: vec![ns] }),
        }
    }

    /// The rows: by case, then in the order of the contenders. Of several ways the one with the lowest median
    /// stands for the contender.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for case in Case::ALL {
            for series in self.series.iter().filter(|s| s.case == case) {
                let (value, min) = series.summary();
                let beaten = self
                    .series
                    .iter()
                    .any(|s| s.case == case && s.contender == series.contender && s.summary().0 < value);
                let contender = if beaten {
                    format!("{}-{}", series.contender, series.way)
                } else {
                    series.contender.to_string()
                };
                rows.push(Row { case: case.name(), contender, value, unit: "ns/page", min });
            }
        }
        rows
    }
}

/// The rows as a table of at most 80 columns.
pub fn plain(rows: &[Row]) -> String {
    let mut text = format!("{:<12} {:<36} {:>10} {:>10}  unit\n", "case", "contender", "median", "min");
    let mut last = "";
    for row in rows {
        if !last.is_empty() && last != row.case {
            text.push('\n');
        }
        last = row.case;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<12} {:<36} {:>10.2} {:>10.2}  {}",
            row.case, row.contender, row.value, row.min, row.unit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_way_stands_for_its_contender() {
        let mut samples = Samples::default();
        for ns in [9.0, 1.0, 2.0] {
            samples.add(Case::ForkShape, "a", "slow", ns + 10.0);
            samples.add(Case::ForkShape, "a", "quick", ns);
        }
        let rows = samples.rows();
        assert_eq!(rows.iter().map(|r| r.contender.as_str()).collect::<Vec<_>>(), ["a-slow", "a"]);
        assert_eq!((rows[1].value, rows[1].min), (2.0, 1.0));
    }

    #[test]
    fn the_median_of_an_even_number_of_rounds_lies_between() {
        let mut samples = Samples::default();
        for ns in [4.0, 1.0] {
            samples.add(Case::Map, "a", "", ns);
        }
        assert_eq!(samples.rows()[0].value, 2.5);
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let row = Row {
            case: "unmap-range",
            contender: "page_table_multiarch-cleanup-range".into(),
            value: 123_456.789,
            unit: "ns/page",
            min: 123_456.789,
        };
        assert!(plain(&[row]).lines().all(|line| line.len() <= 80));
    }
}
