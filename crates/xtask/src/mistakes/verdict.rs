//! The result of the tests of a mistake.

/// The result of the tests of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Noticed,
    Survived,
    /// The tests did not end in the time.
    Hangs,
    /// It does not compile; the first error.
    Broken(String),
    /// Other tests than the one that may fail; all that do.
    Others(Vec<String>),
}
