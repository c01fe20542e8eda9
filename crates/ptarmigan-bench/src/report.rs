//! Samples, and the report made of them.

use std::fmt::Write as _;

use serde::Serialize;

use crate::json::Document;
use crate::stats::median;
use ptarmigan_term::figure;
use ptarmigan_term::text::{Text, TextTable};

/// One row of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The case.
    pub case: &'static str,
    /// The contender. A variant that is not the contender's fastest has its name as a suffix.
    pub contender: String,
    /// The median of the rounds.
    pub value: f64,
    /// The unit of `value` and `min`.
    pub unit: &'static str,
    /// The fastest round.
    pub min: f64,
}

/// The report of one benchmark. In JSON it is one document: `{"schema": 1, "bench": …, "rows":
/// [{"case", "contender", "value", "unit", "min"}]}`, with `"arch"` if that is not the usual one.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// The machine whose format the tables have, if the benchmark was asked for another than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// The contender that ratios are computed against.
    #[serde(skip)]
    pub reference: &'static str,
    /// Lines below the table in the text.
    #[serde(skip)]
    pub notes: Vec<String>,
}

struct Series {
    case: &'static str,
    contender: &'static str,
    way: &'static str,
    samples: Vec<f64>,
}

/// All samples so far.
#[derive(Default)]
pub struct Samples {
    series: Vec<Series>,
}

impl Samples {
    /// Adds the value of one round. `way` names one of several variants of a contender in the same
    /// case, or is empty.
    pub fn add(&mut self, case: &'static str, contender: &'static str, way: &'static str, value: f64) {
        let known = |s: &&mut Series| s.case == case && s.contender == contender && s.way == way;
        match self.series.iter_mut().find(known) {
            Some(series) => series.samples.push(value),
            None => self.series.push(Series { case, contender, way, samples: vec![value] }),
        }
    }

    /// Returns the rows by case, with cases and contenders in order of appearance. The variant with
    /// the lowest median stands for its contender.
    pub fn rows(&self, unit: &'static str) -> Vec<Row> {
        let mut cases = Vec::new();
        for series in &self.series {
            if !cases.contains(&series.case) {
                cases.push(series.case);
            }
        }
        let mut rows = Vec::new();
        for case in cases {
            for series in self.series.iter().filter(|s| s.case == case) {
                let value = median(series.samples.iter().copied());
                let min = series.samples.iter().copied().fold(f64::INFINITY, f64::min);
                let beaten = self.series.iter().any(|s| {
                    s.case == case
                        && s.contender == series.contender
                        && median(s.samples.iter().copied()) < value
                });
                let contender = if beaten {
                    format!("{}-{}", series.contender, series.way)
                } else {
                    series.contender.to_string()
                };
                rows.push(Row { case, contender, value, unit, min });
            }
        }
        rows
    }
}

impl BenchReport {
    /// Returns the value of a row.
    pub fn value(&self, case: &str, contender: &str) -> Option<f64> {
        self.rows.iter().find(|r| r.case == case && r.contender == contender).map(|r| r.value)
    }

    /// Returns the JSON document, with a newline.
    ///
    /// # Errors
    ///
    /// If JSON cannot represent a value.
    pub fn json(&self) -> Result<String, String> {
        Document::new(self).line().map_err(|e| format!("report: {e}"))
    }

    /// Returns a table of at most 80 columns. Ratios are those of the medians to the reference's in
    /// the same case.
    pub fn text(&self) -> Text {
        // Long names of cases take columns from the contenders.
        let cases = self.rows.iter().map(|r| r.case.len()).max().unwrap_or(0).clamp(12, 24) as isize;
        let names = ["case", "contender", "median", "min", "ratio"];
        let mut table = TextTable::new(&names, &[-cases, cases - 46, 9, 9, 8]);
        let mut last = "";
        for row in &self.rows {
            if !last.is_empty() && last != row.case {
                table.gap();
            }
            last = row.case;
            let ratio = match self.value(row.case, self.reference) {
                Some(reference) if row.value < reference / 10.0 => {
                    format!("{:.4}x", row.value / reference)
                }
                Some(reference) => format!("{:.2}x", row.value / reference),
                None => "-".to_string(),
            };
            let [value, min] = [row.value, row.min].map(|value| figure(value, row.unit));
            table.row(&[&row.case, &row.contender, &value, &min, &ratio]);
        }
        let mut text = Text::default();
        text.table(table);
        // Writing to a text cannot fail.
        if let Some(row) = self.rows.first() {
            let unit = match row.unit.split_once('/') {
                Some((_, each)) => format!("of each {each}"),
                None => format!("in {}", row.unit),
            };
            let _ = writeln!(text, "\n{unit}; ratio of the medians to {}", self.reference);
        }
        if let Some(arch) = &self.arch {
            let _ = writeln!(text, "tables of {arch}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_way_stands_for_its_contender() {
        let mut samples = Samples::default();
        for ns in [9.0, 1.0, 2.0] {
            samples.add("map", "a", "slow", ns + 10.0);
            samples.add("map", "a", "quick", ns);
        }
        let rows = samples.rows("ns/page");
        assert_eq!(rows.iter().map(|r| r.contender.as_str()).collect::<Vec<_>>(), ["a-slow", "a"]);
        assert_eq!((rows[1].value, rows[1].min), (2.0, 1.0));
    }

    #[test]
    fn the_median_of_an_even_number_of_rounds_lies_between() {
        assert_eq!(median([4.0, 1.0]), 2.5);
    }

    fn report() -> BenchReport {
        let row = |contender: &str, value| Row {
            case: "unmap-range",
            contender: contender.into(),
            value,
            unit: "ns/page",
            min: value,
        };
        BenchReport {
            bench: "table",
            arch: None,
            rows: vec![row("page_table_multiarch-cleanup-range", 123_456.789), row("yardstick", 2.0)],
            reference: "yardstick",
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_table_fits_a_terminal() {
        assert!(report().text().to_string().lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn the_document_has_a_schema_a_name_and_rows_only() {
        let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(json["bench"], "table");
        assert_eq!(json["rows"][1]["contender"], "yardstick");
        assert_eq!(json["rows"][1]["value"], 2.0);
        assert_eq!(json.as_object().map(|o| o.len()), Some(3));
    }
}
