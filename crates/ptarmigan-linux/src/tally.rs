//! Keeps the counts of CPUs apart.
use ptarmigan::quicklist::Tally;

/// One CPU's counts, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Lines(pub Tally);
