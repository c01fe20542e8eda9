//! Models: small programs of two or three CPUs on the real code, of which the checker tries every
//! schedule (up to a number of preemptions) and every value that the memory model lets a load
//! return. `models/run` runs them.
//!
//! Each CPU's MMU is part of the model: it walks tables and keeps translations whenever that is
//! most harmful. Frames have an owner written into them, in a cell whose uses are checked: a CPU
//! that reaches a frame through an old translation while another has it already, or without an
//! order between the two, fails the model.
#![cfg(loom)]
#![allow(missing_docs, reason = "tests")]
mod broadcasts;
mod deferred;
mod detectors;
mod epoch;
mod faults;
mod highmem;
mod large;
mod lists;
mod lock;
mod machine;
mod mmu;
#[path = "../common/policy.rs"]
mod policy;
mod shootdown;
mod small;
mod tops;

use policy::At;
