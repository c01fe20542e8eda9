//! Rows, and the report made of them.
use ptarmigan_term::text::{Text, TextTable};
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
    text: Text,
}

impl KmapBench {
    pub(super) fn new(parts: Vec<Part>) -> Self {
        let mut text = Text::default();
        for part in &parts {
            // Writing to a text cannot fail.
            let _ = part.write(&mut text);
        }
        let rows = parts.into_iter().flat_map(|part| part.rows).collect();
        KmapBench { bench: "kmap", rows, text }
    }

    /// Returns the tables, at most 80 columns wide.
    pub(crate) fn text(&self) -> Text {
        self.text.clone()
    }
}

impl Part {
    fn write(&self, text: &mut Text) -> std::fmt::Result {
        if !text.is_empty() {
            writeln!(text)?;
        }
        writeln!(text, "{}", self.title)?;
        let mut table = TextTable::new(&["case", "contender", "value", "unit"], &[-34, -18, 11, -4]);
        let mut last = "";
        for row in &self.rows {
            if !last.is_empty() && last != row.case {
                table.gap();
            }
            last = &row.case;
            let min = row.min.map_or(String::new(), |min| format!(" (min {min:.2})"));
            let value = format!("{:.2}", row.value);
            table.row(&[&row.case, &row.contender, &value, &format_args!("{}{min}", row.unit)]);
        }
        text.table(table);
        self.notes.iter().try_for_each(|note| writeln!(text, "{note}"))
    }
}
