//! What a CPU does that has nothing to run.
use crate::measure::clock::thread_time;
use ptarmigan::machine::{Machine, On};
use std::time::Duration;

/// Does an idle CPU's work: up to `budget` frames are cleared ahead. The processor time it took.
#[inline(never)] // so that profilers tell it from what surrounds it
pub fn clear_ahead<M: Machine>(on: On<'_, M>, budget: u32) -> Duration {
    let start = thread_time();
    on.clear_ahead(budget);
    thread_time() - start
}
