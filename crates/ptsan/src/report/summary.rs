//! The run in a few lines.
use super::severity::Severity;
use super::wrap;
use std::fmt;

/// Counts the findings of a run.
/// ```
/// use ptsan::{Arch, Session, Severity};
///
/// let mut s = Session::new(Arch::x86_64(), vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.sanitizer.finish();                                   // nobody freed it
/// let summary = s.sanitizer.summary();
/// assert_eq!((summary.total(), summary.count(Severity::Resource)), (1, 1));
/// assert_eq!(summary.to_string(), "summary: 1 resource, 1 cause");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The findings of each severity, repetitions included, in the order of [`Severity::ALL`].
    pub by_severity: [u64; Severity::ALL.len()],
    /// The causes that are kept: the findings of
    /// [`Sanitizer::findings`](crate::Sanitizer::findings).
    pub causes: u64,
    /// Findings that belong to no cause that is kept.
    pub not_kept: u64,
    /// Findings that a list of known ones allows, which count nowhere else.
    pub allowed: u64,
    /// The seed of the adversary, if there is one.
    pub seed: Option<u64>,
    /// The test in whose thread the sanitizer was made, as the test harness names it.
    pub test: Option<String>,
}

impl Summary {
    /// Returns the number of findings.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_severity.iter().sum()
    }

    /// Returns the number of findings of a severity.
    #[must_use]
    pub const fn count(&self, severity: Severity) -> u64 {
        self.by_severity[severity as usize]
    }

    /// Returns how to repeat the adversary's choices, if there were any.
    #[must_use]
    pub fn replay(&self) -> Option<String> {
        self.seed.map(|seed| replay(seed, self.test.as_deref()))
    }

    /// Returns the counts in one sentence.
    pub(super) fn counts(&self) -> String {
        let severities = Severity::ALL.into_iter().filter(|s| self.count(*s) > 0);
        let mut parts: Vec<_> = severities.map(|s| format!("{} {s}", self.count(s))).collect();
        if parts.is_empty() {
            parts.push("no findings".to_owned());
        } else {
            parts.push(format!("{} {}", self.causes, if self.causes == 1 { "cause" } else { "causes" }));
        }
        if self.not_kept > 0 {
            parts.push(format!("{} not kept", self.not_kept));
        }
        if self.allowed > 0 {
            parts.push(format!("{} allowed", self.allowed));
        }
        parts.join(", ")
    }
}

/// Returns how to repeat the choices that follow from a seed.
pub(crate) fn replay(seed: u64, test: Option<&str>) -> String {
    match test {
        Some(test) => format!("PTSAN_SEED={seed:#x} cargo test -- --exact {test}"),
        None => format!("PTSAN_SEED={seed:#x} repeats the adversary's choices"),
    }
}

impl fmt::Display for Summary {
    /// Prints the counts, and how to repeat the run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wrap::words(f, 0, 0, &format!("summary: {}", self.counts()))?;
        match self.replay().filter(|_| self.total() > 0) {
            Some(replay) => wrap::line(f, 2, &format!("replay: {replay}")),
            None => Ok(()),
        }
    }
}
