//! The rules, one file for each way to go wrong. From the bottom up:
//!
//! * `look` reads memory as a walk without caches would, `explain` says why a CPU's flushes did not
//!   help;
//! * `held`, `linked` and `leftovers` check tables; `reached` applies them to a table that is
//!   reached;
//! * `contradiction` compares two entries; `break_before_make` compares what CPUs hold with what is
//!   stored;
//! * `stale` compares an answer of the caches with memory.
mod break_before_make;
mod contradiction;
mod explain;
mod hashed;
mod held;
mod leftovers;
mod linked;
mod look;
mod reached;
mod stale;

pub(crate) use stale::stale;
