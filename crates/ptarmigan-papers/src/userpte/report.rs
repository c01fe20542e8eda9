//! Rows, and the report made of them.
use ptarmigan_term::text::Text;
use serde::Serialize;
use std::fmt::Write;

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub case: String,
    pub contender: String,
    /// `null` where there is no such value: a sharing on a machine without high memory.
    pub value: Option<f64>,
    pub unit: &'static str,
    /// The standard deviation of the runs, where runs were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
}

pub(super) fn row(
    case: impl Into<String>,
    contender: impl Into<String>,
    value: f64,
    unit: &'static str,
) -> Row {
    let value = Some(value).filter(|value| value.is_finite());
    Row { case: case.into(), contender: contender.into(), value, unit, deviation: None }
}

/// A part of the benchmark: a text of at most 80 columns, and the same as rows.
pub(super) struct Part {
    pub text: Text,
    pub rows: Vec<Row>,
}

/// The report. In JSON: `{"schema": 1, "bench": "userpte", "rows": [{"case", "contender", "value",
/// "unit"}]}`.
#[derive(Serialize)]
pub(crate) struct UserPteBench {
    bench: &'static str,
    rows: Vec<Row>,
    #[serde(skip)]
    text: Text,
}

impl UserPteBench {
    pub(super) fn new(parts: Vec<Part>) -> Self {
        let (mut text, mut rows) = (Text::default(), Vec::new());
        for part in parts {
            if !text.is_empty() {
                // Writing to a text cannot fail.
                let _ = writeln!(text);
            }
            text.append(part.text);
            rows.extend(part.rows);
        }
        UserPteBench { bench: "userpte", rows, text }
    }

    /// Returns the tables.
    pub(crate) fn text(&self) -> Text {
        self.text.clone()
    }
}
