//! Handles on a sanitizer: with its memory, for threads, for tests from seeds, for two stages.
mod pool;
mod seeds;
mod session;
mod session_frames;
mod shared;
mod shared_hooks;
mod shared_readers;
mod stages;
mod test;

pub use session::Session;
pub use shared::Shared;
pub use stages::GuestMemory;
pub use test::Test;
