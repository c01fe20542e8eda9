//! The work of an idle CPU.
use crate::measure::clock::thread_time;
use ptarmigan::cpu::Pinned;
use ptarmigan::table::Machine;
use std::time::Duration;

/// Clears up to `budget` frames ahead of need. Returns the processor time spent.
#[inline(never)] // so that profilers tell it from what surrounds it
pub fn clear_ahead<M: Machine>(m: &M, pin: &Pinned<'_>, budget: u32) -> Duration {
    let start = thread_time();
    m.clear_ahead(pin, budget);
    thread_time() - start
}
