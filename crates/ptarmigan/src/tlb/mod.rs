//! When the TLB has forgotten: spaces and their generations, gathers, invalidation.
//!
//! The protocol, which types enforce step by step (REQ-4, REQ-33):
//!
//! 1. A [`Gather`](crate::gather::Gather) collects what an operation unhooks: tables on a chain, data frames on another, and the range of
//!    addresses that changed.
//! 2. [`Gather::flush`](crate::gather::Gather::flush) raises the space's generation and has every CPU that may know any of it invalidate: those
//!    the space is active on, and lazy ones too when tables were unhooked (REQ-5).
//! 3. Only the result of that, [`Released`](crate::gather::Released), gives the pages to the policy and the allocator.
//!
//! Dropping a gather does all of it.
//!
//! [`Tlb`] has the rules of the second step: who is asked, what a CPU that is asked does, what lazy CPUs are spared, what
//! numbers tag a space. Below it are an [`Mmu`], which acts on the TLB of its own CPU alone, and an [`Ipi`], which gets
//! the attention of others.
mod asid;
mod config;
mod counts;
mod error;
mod hardware;
mod kernel;
mod mailbox;
mod parked;
mod plan;
mod readers;
mod request;
mod runs;
mod scope;
mod shootdown;
mod space;
mod state;
mod switch;

pub use config::TlbConfig;
pub use counts::FlushCounts;
pub use error::{TlbError, TlbRefusal};
pub use hardware::{Ipi, Mmu, Shootdown};
pub use parked::Parking;
pub use plan::CostModel;
pub use readers::{Readers, Reading};
pub use request::{Generation, Invalidation, NewEntry, Root, SpaceId, Ticket};
pub use runs::Runs;
pub use scope::Scope;
pub use space::SpaceTlb;
pub use state::Tlb;

pub(crate) use parked::{DataChains, Waiting};
pub(crate) use shootdown::FlushFlags;
