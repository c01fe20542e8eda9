//! When the TLB has forgotten: spaces and their generations, gathers, invalidation.
//!
//! The protocol, which types enforce step by step (REQ-4, REQ-33):
//!
//! 1. A [`Gather`] collects what an operation unhooks: tables on a chain, data frames on another, and the range of
//!    addresses that changed.
//! 2. [`Gather::flush`] raises the space's generation and has every CPU that may know any of it invalidate: those
//!    the space is active on, and lazy ones too when tables were unhooked (REQ-5).
//! 3. Only the result of that, [`Released`], gives the pages to the policy and the allocator.
//!
//! Dropping a gather does all of it.
mod gather;
mod space;

pub use gather::{Gather, GatherParts, Released};
pub use space::{FlushCounts, Generation, Invalidation, Scope, Shootdown, SpaceId, SpaceTlb, Ticket, Tlb};
