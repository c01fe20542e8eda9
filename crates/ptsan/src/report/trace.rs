//! Takes and names the callers of a hook.
use super::caller::{TraceFrame, parse};
use super::harness::Harness;
use super::trim::trimmed;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::sync::Arc;

/// The callers of a hook, without the functions of the sanitizer, of the standard library, of test
/// runners, and of the harness ([`Config::harness`](crate::Config::harness)).
///
/// Names are looked up on demand: taking a trace costs microseconds, reading it milliseconds.
#[derive(Clone)]
pub struct Trace {
    callers: Callers,
    harness: Arc<Harness>,
}

#[derive(Clone)]
enum Callers {
    Taken(Arc<Backtrace>),
    Given(Arc<[TraceFrame]>),
}

impl Trace {
    /// Takes the callers of the hook that runs now.
    pub(super) fn capture(harness: Arc<Harness>) -> Self {
        Self { callers: Callers::Taken(Arc::new(Backtrace::force_capture())), harness }
    }

    /// Makes a trace of callers that are known by other means than a backtrace, innermost first:
    /// see [`Sanitizer::called_from`](crate::Sanitizer::called_from). Only those that are marked as
    /// harness are left out.
    #[must_use]
    pub fn new(callers: Vec<TraceFrame>) -> Self {
        Self { callers: Callers::Given(callers.into()), harness: Arc::default() }
    }

    /// Sets the harness.
    pub(super) fn without(self, harness: Arc<Harness>) -> Self {
        Self { harness, ..self }
    }

    /// Returns a number that stands for the callers, if they were given. Clones have the same.
    pub(super) fn identity(&self) -> Option<usize> {
        match &self.callers {
            Callers::Taken(_) => None,
            Callers::Given(callers) => Some(Arc::as_ptr(callers).addr()),
        }
    }

    /// Returns the callers, innermost first. If all of them are harness, they are returned. The
    /// list is empty where the platform has no backtraces.
    #[must_use]
    pub fn frames(&self) -> Vec<TraceFrame> {
        self.harness.outside(self.with_harness())
    }

    /// Returns the callers together with those of the harness.
    pub(super) fn with_harness(&self) -> Vec<TraceFrame> {
        match &self.callers {
            Callers::Given(callers) => callers.to_vec(),
            Callers::Taken(taken) if taken.status() == BacktraceStatus::Captured => {
                trimmed(parse(&taken.to_string()))
            }
            Callers::Taken(_) => Vec::new(),
        }
    }
}

/// Two findings do not differ by their traces: a trace names the place of a finding, not the
/// defect.
impl PartialEq for Trace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Trace {}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}
