//! A policy's calls, for tests and models.
#![allow(dead_code, reason = "every test binary uses its own part")]
use ptarmigan::cpu::Pinned;
use ptarmigan::page::{Clean, Flushed, Unhooked};
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

/// A policy and a pin, for tests, which promise for each call below that returned pages came from
/// this policy.
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
    pub fn unhooked(&self, pages: &mut Unhooked) {
        // SAFETY: 1. as the type's text says.
        unsafe { self.0.unhooked(pages) };
    }
    pub fn flushed(&self, pages: Flushed) {
        // SAFETY: 1. as the type's text says.
        unsafe { self.0.flushed(pages) };
    }
}
