//! Code under test that runs on several CPUs, in all schedules of `loom` within a bound of
//! preemptions, and in all orders of atomic accesses that the memory model allows.
#[path = "schedules/format.rs"]
mod format;
#[path = "schedules/kernel.rs"]
mod kernel;

use kernel::{Mistake, run_all};
use loom::{sync, thread};
use ptsan::{Config, Kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the kernel in each schedule. Returns how many there are, and in how many something of the
/// kind is found.
fn explore(mistake: Mistake, kind: Kind) -> (u64, u64) {
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let into = Arc::clone(&counts);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    // A backtrace takes more stack than the 32 KiB that a thread has.
    let config = Config { backtraces: false, ..format::config(2) };
    model.check(move || {
        let san = run_all(config.clone(), mistake, 1);
        into.0.fetch_add(1, Ordering::Relaxed);
        into.1.fetch_add(u64::from(san.count(kind) > 0), Ordering::Relaxed);
        if mistake == Mistake::Nothing {
            san.assert_clean();
        }
    });
    let counts = (counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed));
    println!("{mistake:?}: {kind} in {} of {} schedules", counts.1, counts.0);
    counts
}

/// Checks that some schedules show the mistake, and that others do not.
#[track_caller]
fn found(mistake: Mistake, kind: Kind) {
    let (all, shown) = explore(mistake, kind);
    assert!(0 < shown && shown < all);
}

#[test]
fn the_right_code_is_silent_in_every_schedule() {
    let (all, _) = explore(Mistake::Nothing, Kind::FlushMissing);
    assert!(all > 1000, "{all} schedules are too few to show a race");
}

#[test]
fn a_link_that_two_cpus_store_at_once_is_lost() {
    found(Mistake::LinkOverwritten, Kind::Disagreement);
}

#[test]
fn an_entry_installed_in_a_table_that_was_freed_is_missing() {
    found(Mistake::LinkNotReadAgain, Kind::Disagreement);
}

#[test]
fn a_shootdown_that_reads_the_mask_first_misses_a_cpu() {
    found(Mistake::MaskReadFirst, Kind::FreeBeforeFlush);
}

#[test]
fn a_shootdown_without_a_fence_misses_a_cpu() {
    found(Mistake::NoFence, Kind::FreeBeforeFlush);
}

#[test]
fn a_table_is_freed_before_another_cpu_has_flushed_its_own_page() {
    found(Mistake::OnePageFlushed, Kind::FreeBeforeFlush);
}
