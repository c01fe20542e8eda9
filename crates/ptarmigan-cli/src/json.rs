//! JSON documents. Each has the number of its schema; `docs/json.md` describes them.
use crate::baseline::Comparison;
use crate::error::{Context, Failure};
use serde::Serialize;

/// The schema of all documents. It changes when a field goes, or comes to mean something else. New
/// fields do not change it.
pub const SCHEMA: u32 = 1;

/// A document: the number first, then the fields of `body`.
#[derive(Serialize)]
pub(crate) struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    body: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
}

impl<'a, T: Serialize> Document<'a, T> {
    /// Creates a document of `body`, which serialises as a map.
    pub(crate) fn new(body: &'a T) -> Self {
        Document { schema: SCHEMA, body, comparison: None }
    }

    /// Adds a comparison with a baseline.
    pub(crate) fn compared(self, comparison: Option<&'a Comparison>) -> Self {
        Document { comparison, ..self }
    }

    /// Returns the document on one line, with a newline.
    ///
    /// # Errors
    /// If JSON cannot represent a value.
    pub(crate) fn line(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string(self).context("report")? + "\n")
    }

    /// Returns the document as many indented lines.
    ///
    /// # Errors
    /// If JSON cannot represent a value.
    pub(crate) fn pretty(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string_pretty(self).context("report")? + "\n")
    }
}
