//! Replays runs that were recorded elsewhere: who called, and how events are counted.
use crate::report::{Recorded, Trace};
use crate::state::Sanitizer;

impl Sanitizer {
    /// Takes these callers for those of the hooks that follow, in place of backtraces, until it is
    /// called again. `None` goes back to backtraces.
    ///
    /// For programs that replay a recording: the stack of the program does not show the code under
    /// test, and the recording does. Findings of different callers have different causes. With an
    /// empty [`Trace`], the callers are unknown, and CPU, space and note tell causes apart.
    ///
    /// Without [`Config::backtraces`](crate::Config::backtraces), findings name no callers.
    ///
    /// ```
    /// use ptsan::{Arch, Config, Sanitizer, Trace, TraceFrame};
    ///
    /// let mut san = Sanitizer::new(Config::new(Arch::x86_64()));
    /// for (cpu, function) in [(7, "unmap"), (8, "unmap"), (9, "exit")] {
    ///     let caller = TraceFrame { symbol: function.to_owned(), at: None };
    ///     san.called_from(Some(Trace::new(vec![caller])));
    ///     san.leave(cpu); // there is no such CPU
    /// }
    /// let counts: Vec<u64> = san.findings().iter().map(|f| f.count).collect();
    /// assert_eq!(counts, [2, 1]);
    /// assert!(san.to_string().contains("found in\n    unmap"));
    /// ```
    pub fn called_from(&mut self, callers: Option<Trace>) {
        self.reports.called_from(callers);
    }

    /// Names the events of all findings as a recording does: `unit` in place of `event`, and
    /// numbers of its own. `look` gets the index of a finding in [`Sanitizer::findings`] and the
    /// number of an event, of those of [`Finding::events`](crate::Finding::events) and
    /// [`Finding::event`](crate::Finding::event). An event for which it returns `None` was before
    /// all that the caller knows.
    ///
    /// Call it once, when the run has ended.
    pub fn name_events(&mut self, unit: &'static str, look: impl Fn(usize, u64) -> Option<Recorded>) {
        self.reports.name_events(unit, look);
    }
}
