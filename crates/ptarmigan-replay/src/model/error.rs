//! Errors of a cost model.
use std::fmt;

/// Why a cost model cannot be used.
#[derive(Debug)]
pub struct ModelError {
    /// The file, or the name that was given.
    pub file: String,
    /// Its error.
    pub problem: Problem,
}

/// The error.
#[derive(Debug)]
pub enum Problem {
    /// It cannot be read, and is not one of these shipped models either.
    Unreadable {
        /// Why it cannot be read.
        error: std::io::Error,
        /// The names of the shipped models.
        shipped: String,
    },
    /// It is not JSON, or has other fields than the schema. The text names the place.
    Malformed(serde_json::Error),
    /// A field has to be there.
    Missing {
        /// Its path.
        field: String,
        /// Its allowed values.
        allowed: String,
    },
    /// A field has a value that it may not have.
    NotAllowed {
        /// Its path.
        field: String,
        /// Its value.
        found: String,
        /// Its allowed values.
        allowed: String,
    },
}

impl Problem {
    /// Adds the file's name.
    pub fn at(self, file: &str) -> ModelError {
        ModelError { file: file.to_owned(), problem: self }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        match &self.problem {
            Problem::Unreadable { error, shipped } => {
                write!(f, "cost model {file}: {error}; give a file, or one of {shipped}")
            }
            Problem::Malformed(error) => write!(f, "cost model {file}: {error}"),
            Problem::Missing { field, allowed } => {
                write!(f, "cost model {file}: {field} is missing; it is {allowed}")
            }
            Problem::NotAllowed { field, found, allowed } => {
                write!(f, "cost model {file}: {field} is {found}; it must be {allowed}")
            }
        }
    }
}

impl std::error::Error for ModelError {}
