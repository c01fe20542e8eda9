//! Rows, and the report made of them.
use serde::Serialize;
use std::fmt::Write as _;

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KmapRow {
    pub case: String,
    pub contender: String,
    pub value: f64,
    pub unit: &'static str,
    /// The least of the rounds, where rounds were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
}

pub(super) fn row(
    case: impl Into<String>,
    contender: impl Into<String>,
    value: f64,
    unit: &'static str,
) -> KmapRow {
    KmapRow { case: case.into(), contender: contender.into(), value, unit, min: None }
}

/// A part of the benchmark.
pub(super) struct Part {
    pub title: String,
    pub rows: Vec<KmapRow>,
    pub notes: Vec<String>,
}

/// The report. In JSON: `{"schema": 1, "bench": "kmap", "rows": [{"case", "contender", "value",
/// "unit"}]}`.
#[derive(Serialize)]
pub(crate) struct KmapBench {
    bench: &'static str,
    rows: Vec<KmapRow>,
    #[serde(skip)]
    text: String,
}

impl KmapBench {
    pub(super) fn new(parts: Vec<Part>) -> Self {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = parts.iter().try_for_each(|part| part.write(&mut text));
        let rows = parts.into_iter().flat_map(|part| part.rows).collect();
        KmapBench { bench: "kmap", rows, text }
    }

    /// Returns the tables, at most 80 columns wide.
    pub(crate) fn plain(&self) -> String {
        self.text.clone()
    }
}

impl Part {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        if !text.is_empty() {
            writeln!(text)?;
        }
        writeln!(text, "{}", self.title)?;
        writeln!(text, "{:<34} {:<18} {:>11} unit", "case", "contender", "value")?;
        let mut last = "";
        for row in &self.rows {
            if !last.is_empty() && last != row.case {
                writeln!(text)?;
            }
            last = &row.case;
            write!(text, "{:<34} {:<18} {:>11.2} {}", row.case, row.contender, row.value, row.unit)?;
            row.min.map_or(Ok(()), |min| write!(text, " (min {min:.2})"))?;
            writeln!(text)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(text, "{note}"))
    }
}
