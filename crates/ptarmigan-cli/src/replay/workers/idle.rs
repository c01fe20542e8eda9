//! What a CPU does that has nothing to run.
use crate::measure::clock::thread_time;
use ptarmigan::cpu::Pinned;
use ptarmigan::table::Machine;
use std::time::Duration;

/// Does an idle CPU's work: up to `budget` frames are cleared ahead. The processor time it took.
#[inline(never)] // so that profilers tell it from what surrounds it
pub fn clear_ahead<M: Machine>(m: &M, pin: &Pinned<'_>, budget: u32) -> Duration {
    let start = thread_time();
    m.clear_ahead(pin, budget);
    thread_time() - start
}
