//! Tests of the sanitizer in one executable: `cargo test -p ptsan --test all owed::` runs one
//! module of them. Tests of signals, of schedulers and of processes of their own are beside it.
mod adversary;
mod bounded;
mod break_before_make;
#[path = "../common/mod.rs"]
mod common;
mod contiguous;
mod deferred;
mod detects;
mod devices;
mod edges;
mod errata;
mod expect;
mod flood;
mod formats;
mod fuzz;
mod guests;
mod hashed;
mod invalid;
mod kinds;
mod leftovers;
mod levels;
mod locks;
mod operations;
mod owed;
mod pae;
mod random;
mod readers;
mod recorded;
mod reports;
mod smp;
mod stages;
mod state;
mod walkers;
