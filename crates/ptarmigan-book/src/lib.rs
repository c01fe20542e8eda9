//! Checks of the book, the documents and the READMEs. The tests are in `tests`; this is what they
//! share.
pub mod files;
pub mod markdown;
