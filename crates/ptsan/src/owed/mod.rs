//! Keeps the debts that are due when an operation ends: the flushes that CPUs owe, and runs of
//! entries that must agree.
//!
//! A store that takes a right away (it unmaps or remaps a page, restricts it, or unlinks a table)
//! makes a *debt* of each CPU that may have cached the old entry. Only a later flush on that CPU
//! that covers the entry pays it. This depends on no walk: the CPUs that could have walked matter,
//! not those that did.
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
