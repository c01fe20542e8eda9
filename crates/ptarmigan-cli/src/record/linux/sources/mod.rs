//! Collects raw events from their sources, and keeps them until the end of the recording.
pub(crate) mod merge;
pub(crate) mod perf;
pub(crate) mod spill;
pub(crate) mod tracefs;
