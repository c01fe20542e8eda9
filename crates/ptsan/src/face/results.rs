//! The results of a run.
use crate::memory::Memory;
use crate::report::{Allow, Finding, Format, Kind, Place, Report, Rule, Summary};
use crate::state::{Sanitizer, Stats, details_of};
use std::fmt;

impl Sanitizer {
    /// Ends the run: tables that were not freed are leaks, and the report lists allowed findings
    /// that did not occur.
    pub fn finish(&mut self) {
        self.finish_run(|_| ());
    }

    /// Ends the run as [`Sanitizer::finish`] does, and reports the flushes that CPUs owe
    /// ([`Sanitizer::flushes_done`]).
    pub fn finish_with(&mut self, memory: &(impl Memory + ?Sized)) {
        self.finish_run(|s| s.all_due(memory));
    }

    fn finish_run(&mut self, last: impl FnOnce(&mut Self)) {
        self.hook(|s| {
            last(s);
            s.end_deferred();
            s.reports.finish();
            for f in s.frames.allocated() {
                let place = Place { frame: Some(f.phys), level: f.level, ..Place::default() };
                let mut details = || details_of(Some(f), format!("{} bytes", f.size));
                s.reports.add(s.event, (Kind::Leak, Rule::StillAllocated), place, None, &mut details);
            }
        });
    }

    /// Returns the findings kept, one for each cause, in the order in which they were made.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.reports.mark_read();
        self.reports.findings()
    }

    /// Returns the number of findings of a kind, repetitions included.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.reports.mark_read();
        self.reports.count(kind)
    }

    /// Returns the number of findings.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reports.mark_read();
        self.reports.total()
    }

    /// Returns the counts of the run, and how to repeat it.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.reports.mark_read();
        self.reports.summary()
    }

    /// Returns the report in a format, whatever `PTSAN_FORMAT` says.
    #[must_use]
    pub fn report_as(&self, format: Format) -> Report<'_> {
        self.reports.mark_read();
        Report::new(&self.reports, format)
    }

    /// Returns the number of allowed findings
    /// ([`Config::suppressions`](crate::Config::suppressions)), which count nowhere else.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        self.reports.allowed()
    }

    /// Returns the allowances that were not needed so far.
    pub fn unused_suppressions(&self) -> impl Iterator<Item = &Allow> {
        self.reports.unused()
    }

    /// Returns the number of tables that are allocated now.
    #[must_use]
    pub fn live_tables(&self) -> u64 {
        self.frames.live
    }

    /// Returns the number of the last hook call.
    #[must_use]
    pub fn event(&self) -> u64 {
        self.event
    }

    /// Returns counts of the work done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { debts_dropped: self.debts.dropped(), ..self.stats }
    }

    /// Checks that there are no findings.
    ///
    /// # Panics
    /// Panics if there is a finding, with the report as the message.
    /// ```
    /// use ptsan::{Arch, Config, Content, Sanitizer};
    ///
    /// let mut san = Sanitizer::new(Config { cpus: 2, keep: 8, ..Config::new(Arch::x86_64()) });
    /// let memory = vec![0u8; 1 << 16];
    /// san.table_allocated(&memory, 0x1000, 4096, None, Content::Zero);
    /// san.table_freed(&memory, 0x1000, 4096);
    /// san.finish();
    /// san.assert_clean();
    /// ```
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.total() == 0, "{self}");
    }
}

/// Prints the report in the format that the environment variable `PTSAN_FORMAT` chooses: see
/// [`Format`].
impl fmt::Display for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reports.mark_read();
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
            .field("findings", &self.reports.total())
            .finish_non_exhaustive()
    }
}
