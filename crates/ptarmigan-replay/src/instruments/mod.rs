//! The instruments of a replay: counters, timers, the sanitizer.
pub mod classes;
pub mod counters;
pub mod levels;
pub mod lives;
pub mod measured;
pub mod peaks;
pub mod sanitize;
pub mod speed;
pub mod stream;
pub mod zero;
