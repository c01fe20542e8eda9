//! Keeps the debts that are due when an operation ends: the flushes that CPUs owe, and runs of
//! entries that must agree.
//!
//! # The protocol
//!
//! 1. A store that takes a right away (it unmaps or remaps a page, restricts it, or unlinks a
//!    table) makes a *debt* of each CPU that may have cached the old entry.
//! 2. Only a later flush on that CPU that covers the entry pays it.
//! 3. When the operation ends, or the frame is used again, a debt that is left is a finding.
//!
//! ```text
//!  event      CPU 0                      CPU 1
//!  7          maps, runs in the space    runs in the space
//!  8          store: unmap ──> PageDebt { cpus: 0 and 1, since: 8 }
//!  9          flush ──> pays for CPU 0   (no flush)
//!  10         frame freed ─────────────> CPU 1 owes a flush: a finding, with the store of event 8
//! ```
//!
//! # Why
//!
//! This depends on no walk: the CPUs that could have walked matter, not those that did. A sanitizer
//! that waits for a stale translation to be used finds a bug only in the run in which it strikes,
//! because whether a TLB holds an entry is chance. A debt is there in every run.
mod cover;
mod debt;
mod debts;
mod mask;
mod runs;

pub(crate) use cover::Cover;
pub(crate) use debt::{GLOBAL, PageDebt, TableDebt, is_state};
pub(crate) use debts::Debts;
pub(crate) use mask::CpuMask;
pub(crate) use runs::{Run, Runs, Touched};
