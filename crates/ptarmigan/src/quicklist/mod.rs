//! Known-state pages for tables.
//!
//! A table page goes round: taken from the allocator, cleared (and constructed, for root tables),
//! linked, unlinked with all its entries cleared, flushed from every TLB, and handed out again
//! **without** being cleared, because it still is in the state in which it was handed out first. A
//! [`Policy`] decides where it rests in between: [`Quicklists`], per-CPU magazines before a depot
//! per node, within a budget per node. With magazines of 0 pages they cache no page. The crate
//! `ptarmigan-linux` has Linux's policies, to compare with.
//!
//! Wrappers are a [`Layer`] around a policy, [`Layered`]: [`Charged`] charges pages to owners.
//!
//! Code that returns a page too early to any of them does not compile: a policy gets pages back as
//! [`Flushed`](crate::page::Flushed), and only a flush makes that out of
//! [`Unhooked`](crate::page::Unhooked). A model of code that took tables before the flush is
//! [`TakesUnhooked`].
mod auto;
mod charge;
mod check;
mod here;
mod layer;
mod magazines;
mod meminfo;
mod placement;
mod policy;
mod source;
mod tally;

pub use auto::{AutoCosts, AutoPlacement};
pub use charge::{Charge, Charged, Owner};
pub use check::{Check, CheckConfig, Checked, Event, Misuse, MisuseKind, Site, Unchecked};
pub use here::{Here, Returned};
pub use layer::{Layer, Layered};
pub use magazines::{ListsConfig, ListsError, MAGAZINE, Quicklists};
pub use meminfo::{Memory, NodeLines, NodeMemory};
pub use placement::Placement;
pub use policy::{Policy, PolicyOn, TakesUnhooked};
pub use source::Source;
pub use tally::{LevelCounts, LevelTally, NodeCounts, PolicyCounts, Tally};
