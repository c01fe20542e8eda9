//! The instruments of a replay: counters, timers, the sanitizer.
pub mod causes;
pub mod counters;
pub mod levels;
pub mod measured;
pub mod sanitize;
pub mod speed;
pub mod stream;
pub mod zero;
