//! The work of an idle CPU.
use ptarmigan::machine::{Machine, On};
use ptarmigan_bench::clock::thread_time;
use std::time::Duration;

/// Clears up to `budget` frames ahead of need. Returns the processor time spent.
#[inline(never)] // so that profilers tell it from what surrounds it
pub fn clear_ahead<M: Machine>(on: On<'_, M>, budget: u32) -> Duration {
    let start = thread_time();
    on.clear_ahead(budget);
    thread_time() - start
}
