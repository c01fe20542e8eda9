//! The rules, one file for each way to go wrong. From the bottom up:
//!
//! * `look` reads memory as a walk without caches would, `explain` says why a CPU's flushes did not
//!   help;
//! * `levels` passes levels down to tables that were built before they were reachable;
//! * `held`, `linked` and `leftovers` check tables; `reached` applies them to a table that is
//!   reached;
//! * `contradiction` compares two entries; `break_before_make` compares cached entries with stores;
//! * `owe` says which CPUs owe a flush for rights that a store took away, `due` reports those that
//!   have not paid in time; `contiguous` compares the entries of a run;
//! * `stale` compares an answer of the caches with memory.
mod break_before_make;
mod contiguous;
mod contradiction;
mod entry_change;
mod explain;
mod hardware_bits;
mod hashed;
mod held;
mod leftovers;
mod levels;
mod linked;
mod locks;
mod look;
mod mapped;
mod overdue;
mod reached;
mod readers;
mod stale;

pub(crate) use entry_change::{Change, takes_away};
pub(crate) use stale::stale;
