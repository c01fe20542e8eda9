//! Findings: what they are, how they are counted, how they print.
mod allow;
mod event;
mod finding;
mod kind;
mod reports;
mod rule;
mod trace;
mod wrap;

pub use allow::{Allow, SuppressionError, Suppressions};
pub use event::{Happened, HistoryEvent};
pub(crate) use finding::Details;
pub use finding::{Finding, Origins, Place};
pub use kind::Kind;
pub(crate) use reports::Reports;
pub use rule::Rule;
pub use trace::{Trace, TraceFrame};
