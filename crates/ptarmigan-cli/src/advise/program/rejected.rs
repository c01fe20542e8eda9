//! Changes that are not advised, and regions that are left out.
use super::super::advice::{Rejected, To, Verdict};

/// The number of full regions that are left out, and why.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unfit {
    /// Of programs that fork and write.
    pub(super) forked: u64,
    /// Of programs that start others.
    pub(super) wrappers: u64,
    /// Of which `mprotect` changes parts.
    pub(super) protected: u64,
    /// Of programs that wait for each page.
    pub(super) awaited: u64,
    /// Of programs that turn huge pages off.
    pub(super) disabled: u64,
}

/// Says that a change was looked at and is not advised.
pub(super) fn not(kind: &'static str, reason: String) -> Verdict {
    Verdict::Not(Rejected { kind, to: To::of(kind), measured: true, reason })
}
