//! Code under test that runs on several CPUs, in schedules of `shuttle`: each follows from a seed.
#[path = "schedules/format.rs"]
mod format;
#[path = "schedules/kernel.rs"]
mod kernel;

use kernel::{Mistake, run_all};
use ptsan::{Adversary, Config, Kind, Sanitizer, Shared, Test};
use shuttle::scheduler::RandomScheduler;
use shuttle::{Runner, sync, thread};
use std::sync::{Arc, OnceLock};

/// The number of schedules in which a mistake has to show.
const ENOUGH: u64 = 500;

/// Runs the kernel once, in the order that follows from the seed.
fn run(seed: u64, config: Config, mistake: Mistake) -> Shared {
    let result = Arc::new(OnceLock::new());
    let mut settings = shuttle::Config::new();
    // A backtrace takes more stack than the 60 KiB that a task has.
    settings.stack_size = 1 << 20;
    // It has one order of atomic accesses. Others are the matter of `loom`.
    settings.silence_warnings = true;
    let into = Arc::clone(&result);
    Runner::new(RandomScheduler::new_from_seed(seed, 1), settings)
        .run(move || drop(into.set(run_all(config.clone(), mistake, 3))));
    result.get().expect("the run has ended").clone()
}

#[test]
fn the_right_code_is_silent_in_all_schedules() {
    let adversary = Some(Adversary::new(0));
    Test::with(Config { adversary, ..format::config(4) })
        .seeds(0..ENOUGH)
        .each(|seed, config| run(seed, config, Mistake::Nothing).assert_clean());
}

/// Checks that a schedule shows the mistake, that another does not, and that the same seed finds
/// the same again.
#[track_caller]
fn found(mistake: Mistake, shows: impl Fn(&Sanitizer) -> bool) {
    let at = |seed| run(seed, format::config(3), mistake);
    let seed = (0..ENOUGH).find(|&seed| shows(&at(seed).lock()));
    let seed = seed.unwrap_or_else(|| panic!("no schedule shows {mistake:?}"));
    println!("{mistake:?}: the schedule of seed {seed} shows it");
    assert_eq!(at(seed).lock().findings(), at(seed).lock().findings());
    assert!((0..ENOUGH).any(|seed| at(seed).total() == 0), "it takes no race to show {mistake:?}");
}

#[test]
fn a_report_names_callers_of_the_task_without_the_scheduler() {
    let san = (0..ENOUGH).map(|seed| run(seed, format::config(3), Mistake::MaskReadFirst));
    let san = san.into_iter().find(|san| san.total() > 0).expect("a schedule shows it");
    let frames = san.lock().findings()[0].trace.as_ref().expect("a trace").frames();
    let symbols: Vec<_> = frames.iter().map(|f| f.symbol.as_str()).collect();
    assert!(symbols[0].contains("Kernel"), "{symbols:?}");
    assert!(symbols.iter().any(|s| s.contains("Kernel::run") || s.contains("Kernel>::run")), "{symbols:?}");
    assert!(symbols.iter().all(|s| s.starts_with("schedules_shuttle") || s.starts_with('<')), "{symbols:?}");
}

#[test]
fn a_link_that_two_cpus_store_at_once_is_lost() {
    found(Mistake::LinkOverwritten, |san| san.count(Kind::Leak) > 0 && san.count(Kind::Disagreement) > 0);
}

#[test]
fn an_entry_installed_in_a_table_that_was_freed_is_missing() {
    found(Mistake::LinkNotReadAgain, |san| san.count(Kind::Disagreement) > 0);
}

#[test]
fn a_shootdown_that_reads_the_mask_first_misses_a_cpu() {
    found(Mistake::MaskReadFirst, |san| san.count(Kind::FreeBeforeFlush) > 0);
}

#[test]
fn a_table_is_freed_before_another_cpu_has_flushed_its_own_page() {
    found(Mistake::OnePageFlushed, |san| san.count(Kind::FreeBeforeFlush) > 0);
}

/// A thread that waits for a lock that it holds would wait for ever.
#[test]
#[should_panic(expected = "a task was switched while it held the sanitizer")]
fn a_guard_kept_across_a_switch_ends_the_run() {
    let body = || {
        let san = Shared::scheduled(format::config(1), || ());
        let other = san.clone();
        let other = thread::spawn(move || drop(other.lock()));
        let guard = san.lock();
        let _ = other.join();
        drop(guard);
    };
    shuttle::check_random(body, 1);
}
