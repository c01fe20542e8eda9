//! Rows, and the report made of them.
use serde::Serialize;

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
    pub text: String,
    pub rows: Vec<Row>,
}

/// The report. In JSON: `{"schema": 1, "bench": "userpte", "rows": [{"case", "contender", "value",
/// "unit"}]}`.
#[derive(Serialize)]
pub(crate) struct UserPteBench {
    bench: &'static str,
    rows: Vec<Row>,
    #[serde(skip)]
    text: String,
}

impl UserPteBench {
    pub(super) fn new(parts: Vec<Part>) -> Self {
        let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
        let text = texts.join("\n");
        let rows = parts.into_iter().flat_map(|part| part.rows).collect();
        UserPteBench { bench: "userpte", rows, text }
    }

    /// Returns the tables.
    pub(crate) fn plain(&self) -> String {
        self.text.clone()
    }
}
