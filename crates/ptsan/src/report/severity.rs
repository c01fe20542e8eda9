//! Rates the possible harm of a finding.
use super::kind::Kind;
use super::rule::Rule;
use std::fmt;

/// The possible harm of a defect, the worst first.
/// ```
/// use ptsan::{Kind, Severity};
///
/// assert_eq!(Kind::FreeBeforeFlush.severity(), Severity::MemoryCorruption);
/// assert!(Severity::MemoryCorruption < Severity::Misuse); // the worst first
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Severity {
    /// A CPU reads or writes memory through a translation or a table that is no longer valid. Data
    /// of another program or of the kernel is corrupted or disclosed.
    MemoryCorruption,
    /// An access faults that should not, or the code under test answers something wrong.
    WrongAnswer,
    /// Memory is lost.
    Resource,
    /// The sanitizer was called wrongly. Its findings about the code under test may be wrong.
    Misuse,
}

impl Severity {
    /// All severities, the worst first.
    pub const ALL: [Self; 4] = [Self::MemoryCorruption, Self::WrongAnswer, Self::Resource, Self::Misuse];

    /// Returns the name that reports print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryCorruption => "memory-corruption",
            Self::WrongAnswer => "wrong-answer",
            Self::Resource => "resource",
            Self::Misuse => "misuse",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kind {
    /// Returns the worst that can follow from a finding of this kind. A rule that is not known to
    /// be harmless may corrupt memory.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Disagreement | Self::MalformedEntry => Severity::WrongAnswer,
            Self::Leak => Severity::Resource,
            Self::Misuse => Severity::Misuse,
            _ => Severity::MemoryCorruption,
        }
    }
}

/// Returns the possible harm of a broken rule: a stale entry that only faults does not corrupt
/// memory.
pub(super) const fn of(kind: Kind, rule: Rule) -> Severity {
    match rule {
        Rule::NotReloaded | Rule::UpgradeNotFlushed | Rule::DeniedTwice | Rule::InvalidKept => {
            Severity::WrongAnswer
        }
        _ => kind.severity(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_only_faults_corrupts_nothing() {
        assert_eq!(of(Kind::StaleUse, Rule::Unmapped), Severity::MemoryCorruption);
        assert_eq!(of(Kind::StaleUse, Rule::NotReloaded), Severity::WrongAnswer);
        assert_eq!(of(Kind::StaleUse, Rule::UpgradeNotFlushed), Severity::WrongAnswer);
        assert_eq!(of(Kind::StaleUse, Rule::DeniedTwice), Severity::WrongAnswer);
        assert_eq!(of(Kind::StaleUse, Rule::InvalidKept), Severity::WrongAnswer);
    }
}
