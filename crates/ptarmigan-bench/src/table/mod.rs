//! `bench table`: page-table operations, in nanoseconds per page.
pub mod contender;
mod harness;
mod ours;
pub mod peer_pool;
mod yardstick;

pub use harness::run;
pub use ours::LibraryTree;
pub use yardstick::{TableYardstick, ZeroingYardstick};
