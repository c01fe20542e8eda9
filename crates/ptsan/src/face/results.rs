//! What a run came to.
use crate::report::{Allow, Finding, Kind, Place, Rule};
use crate::state::{Sanitizer, Stats, details_of};
use std::fmt;

impl Sanitizer {
    /// The run is over: tables that were not given back are leaks, and the report lists allowed findings that were not
    /// seen.
    pub fn finish(&mut self) {
        self.hook(|s| {
            s.reports.finish();
            for f in s.frames.allocated() {
                let place = Place { frame: Some(f.phys), level: f.level, ..Place::default() };
                let details = || details_of(Some(f), format!("{} bytes", f.size));
                s.reports.add(s.event, (Kind::Leak, Rule::StillAllocated), place, details);
            }
        });
    }

    /// The findings kept, in the order in which they were made.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.reports.findings()
    }

    /// How many findings of a kind there were, repetitions included.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.reports.count(kind)
    }

    /// How many findings there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reports.total()
    }

    /// How many findings were allowed ([`Config::suppressions`]); they count nowhere else.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        self.reports.allowed()
    }

    /// What was allowed and not seen so far.
    pub fn unused_suppressions(&self) -> impl Iterator<Item = &Allow> {
        self.reports.unused()
    }

    /// How many tables are allocated now.
    #[must_use]
    pub fn live_tables(&self) -> u64 {
        self.frames.live
    }

    /// Number of the last hook call.
    #[must_use]
    pub fn event(&self) -> u64 {
        self.event
    }

    /// Work done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Nothing was found.
    ///
    /// # Panics
    /// If something was, with the report as the message.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.total() == 0, "{self}");
    }
}

impl fmt::Display for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reports.fmt(f)
    }
}

impl fmt::Debug for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sanitizer")
            .field("arch", &self.config.arch.name)
            .field("cpus", &self.cpus.len())
            .field("event", &self.event)
            .field("live_tables", &self.frames.live)
            .field("findings", &self.total())
            .finish_non_exhaustive()
    }
}
