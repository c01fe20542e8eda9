//! Where raw events come from, and where they wait until the end of the recording.
pub(crate) mod merge;
pub(crate) mod perf;
pub(crate) mod spill;
pub(crate) mod tracefs;
