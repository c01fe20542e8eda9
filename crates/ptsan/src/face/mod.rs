//! The interface: the hooks, by what they are about, and handles for them.
mod accesses;
mod barriers;
mod cpus;
mod expect;
mod frames;
mod hashed;
mod misuse;
mod operations;
mod pool;
mod recorded;
mod results;
mod seeds;
mod session;
mod shared;
mod shared_hooks;
mod stages;
mod stores;
mod tables;
mod test;

pub use barriers::Barrier;
pub use expect::{Expected, Tree};
pub use session::Session;
pub use shared::Shared;
pub use stages::GuestMemory;
pub use tables::Content;
pub use test::Test;
