//! `bench table` and `bench faults`: page-table operations and faults, in nanoseconds per page.
pub mod contender;
pub(super) mod faults;
mod harness;
mod ours;
pub mod peer_pool;
mod yardstick;

pub use harness::{policies, run};
pub use ours::LibraryTree;
pub use yardstick::{TableYardstick, ZeroingYardstick};
