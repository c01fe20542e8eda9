//! Where in the code under test a hook was called.
use super::caller::{TraceFrame, parse};
use super::trim::trimmed;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::sync::Arc;

/// The callers of a hook, without the functions of the sanitizer, of the standard library and of
/// test harnesses.
///
/// Names are looked up on demand: taking a trace costs microseconds, reading it milliseconds.
#[derive(Clone)]
pub struct Trace(Callers);

#[derive(Clone)]
enum Callers {
    Taken(Arc<Backtrace>),
    Given(Arc<[TraceFrame]>),
}

impl Trace {
    pub(crate) fn capture() -> Self {
        Self(Callers::Taken(Arc::new(Backtrace::force_capture())))
    }

    /// Makes a trace of callers that are known by other means than a backtrace, innermost first:
    /// see [`Sanitizer::called_from`](crate::Sanitizer::called_from). None of them is left out.
    #[must_use]
    pub fn new(callers: Vec<TraceFrame>) -> Self {
        Self(Callers::Given(callers.into()))
    }

    /// Returns a number that stands for the callers, if they were given. Clones have the same.
    pub(super) fn identity(&self) -> Option<usize> {
        match &self.0 {
            Callers::Taken(_) => None,
            Callers::Given(callers) => Some(Arc::as_ptr(callers).addr()),
        }
    }

    /// Returns the callers, innermost first. The list is empty where the platform has no
    /// backtraces.
    #[must_use]
    pub fn frames(&self) -> Vec<TraceFrame> {
        match &self.0 {
            Callers::Given(callers) => callers.to_vec(),
            Callers::Taken(taken) if taken.status() == BacktraceStatus::Captured => {
                trimmed(parse(&taken.to_string()))
            }
            Callers::Taken(_) => Vec::new(),
        }
    }
}

/// Two findings do not differ by their traces: a trace says where a finding was made, not what it
/// is.
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
