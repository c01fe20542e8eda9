//! Makes JSON documents. Each has the number of its schema; `json.md` of the command describes
//! them.
use serde::Serialize;

/// The schema of a new document. It changes when a field goes, or comes to mean something else. New
/// fields do not change it.
const SCHEMA: u32 = 1;

/// A document: the number first, then the fields of the body.
#[derive(Serialize)]
pub struct Document<T> {
    schema: u32,
    #[serde(flatten)]
    body: T,
}

impl<T: Serialize> Document<T> {
    /// Creates a document of `body`, which serialises as a map.
    pub fn new(body: T) -> Self {
        Document { schema: SCHEMA, body }
    }

    /// Creates a document of `body` whose fields have changed since schema 1.
    pub fn with_schema(schema: u32, body: T) -> Self {
        Document { schema, body }
    }

    /// Returns the document on one line, with a newline.
    ///
    /// # Errors
    /// If JSON cannot represent a value.
    pub fn line(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Returns the document as many indented lines.
    ///
    /// # Errors
    /// If JSON cannot represent a value.
    pub fn pretty(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}
