//! Models: small programs of two or three CPUs on the real code, of which the checker tries every
//! schedule (up to a number of preemptions) and every value that the memory model lets a load
//! return. `models/run` runs them.
//!
//! What each CPU's MMU does is part of the model: it walks tables and keeps what it finds whenever
//! that is most harmful. Frames have an owner written into them, in a cell whose uses are checked:
//! who reaches a frame through an old translation while another has it already, or without an order
//! between the two, fails the model.
#![cfg(loom)]
#![allow(missing_docs, reason = "tests")]
use ptarmigan::cpu::Pinned;
use ptarmigan::page::Clean;
use ptarmigan::quicklist::{Policy, PolicyOn};
use std::ops::Deref;

/// A policy's calls.
pub trait At: Policy + Sized {
    #[track_caller]
    fn at<'a>(&'a self, pin: &'a Pinned<'a>) -> TestedOn<'a, Self> {
        TestedOn(PolicyOn::new(self, pin).expect("a CPU that the policy was made for"))
    }
}

impl<P: Policy> At for P {}

/// A policy and a pin, for tests, which promise for each call below that what they give back came
/// from this policy.
pub struct TestedOn<'a, P>(PolicyOn<'a, P>);

impl<'a, P> Deref for TestedOn<'a, P> {
    type Target = PolicyOn<'a, P>;
    fn deref(&self) -> &PolicyOn<'a, P> {
        &self.0
    }
}

impl<P: Policy> TestedOn<'_, P> {
    pub fn free_unlinked(&self, page: Clean) {
        // SAFETY: 1. as the type's text says.
        unsafe { self.0.free_unlinked(page) };
    }
}

mod broadcasts;
mod detectors;
mod epoch;
mod faults;
mod lists;
mod lock;
mod machine;
mod mmu;
mod shootdown;
mod small;
mod tops;
