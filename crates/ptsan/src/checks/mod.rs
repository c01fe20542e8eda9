//! The rules: each file finds one way to be wrong. From the bottom up:
//!
//! * `look` reads memory as a walk without caches would, `explain` says why a CPU's flushes were of no use;
//! * `held`, `linked` and `leftovers` are about tables; `reached` applies them where a table is come to;
//! * `contradiction` compares two entries, `break_before_make` what CPUs hold with what is stored;
//! * `stale` compares an answer of the caches with memory.
mod break_before_make;
mod contradiction;
mod explain;
mod held;
mod leftovers;
mod linked;
mod look;
mod reached;
mod stale;

pub(crate) use stale::stale;
