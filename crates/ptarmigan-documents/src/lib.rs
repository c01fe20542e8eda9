//! Checks the book, the documents and the READMEs. The tests are in `tests`; this is their common
//! part.
pub mod files;
pub mod markdown;
