//! Where in the code under test a hook was called.
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

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFrame {
    /// The path of the function.
    pub symbol: String,
    /// File, line and column, if there is debug information.
    pub at: Option<String>,
}

impl TraceFrame {
    /// Returns file, line and column.
    pub(super) fn position(&self) -> Option<(&str, u32, Option<u32>)> {
        let at = self.at.as_deref()?;
        let (rest, last) = at.rsplit_once(':')?;
        let last = last.parse().ok()?;
        match rest.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?))) {
            Some((file, line)) => Some((file, line, Some(last))),
            None => Some((rest, last, None)),
        }
    }
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

/// Reads what [`Backtrace`] prints: lines `12: symbol`, each with or without a line
/// `at file:line:column` behind it.
pub(super) fn parse(printed: &str) -> Vec<TraceFrame> {
    let mut frames: Vec<TraceFrame> = Vec::new();
    for line in printed.lines().map(str::trim) {
        if let Some(at) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                last.at = Some(at.to_owned());
            }
        } else if let Some((number, symbol)) = line.split_once(": ")
            && number.bytes().all(|b| b.is_ascii_digit())
        {
            frames.push(TraceFrame { symbol: symbol.to_owned(), at: None });
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_with_and_without_a_column_and_a_drive() {
        let position = |at: &str| {
            let frame = TraceFrame { symbol: String::new(), at: Some(at.to_owned()) };
            frame.position().map(|(file, line, column)| (file.to_owned(), line, column))
        };
        assert_eq!(position("./src/a.rs:7:9"), Some(("./src/a.rs".to_owned(), 7, Some(9))));
        assert_eq!(position("a.rs:7"), Some(("a.rs".to_owned(), 7, None)));
        assert_eq!(position("C:\\a.rs:7:9"), Some(("C:\\a.rs".to_owned(), 7, Some(9))));
        assert_eq!(position("C:\\a.rs:7"), Some(("C:\\a.rs".to_owned(), 7, None)));
        assert_eq!(position("a.rs"), None);
    }
}
