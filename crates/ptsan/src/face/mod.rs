//! The interface: the hooks, by what they are about, and two handles for them.
mod accesses;
mod barriers;
mod cpus;
mod expect;
mod frames;
mod hashed;
mod misuse;
mod operations;
mod recorded;
mod results;
mod session;
mod shared;
mod stores;
mod tables;

pub use barriers::Barrier;
pub use expect::{Expected, Tree};
pub use session::Session;
pub use shared::Shared;
pub use tables::Content;
