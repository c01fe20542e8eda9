//! Slots for high memory on a hosted machine, and threads that sleep for them.
mod real;
mod sleeper;
mod store;

pub use real::{HighMemory, RealSlots};
pub use sleeper::Sleeper;
pub use store::StoreSlots;
