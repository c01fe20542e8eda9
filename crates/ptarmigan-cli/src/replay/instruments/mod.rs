//! What a replay is measured and checked with.
pub mod counters;
pub mod levels;
pub mod measured;
pub mod sanitize;
pub mod speed;
pub mod stream;
pub mod zero;
