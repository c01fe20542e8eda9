//! A policy of one's own cannot lose, double or misuse a page, and its failures are one line.
use super::*;
use crate::counted::CountedMachine;
use crate::instruments::sanitize::Sanitized;
use crate::platform::{Platform, WalkingMmu};
use crate::workers::watch::watches;
use ptarmigan_bench::clock::Clock;
use ptarmigan_ptsan::Watchable;
use ptsan::{Adversary, Config};
use std::sync::{Arc, Mutex};

const MEMORY: u64 = 256 << 20;

fn fixture() -> Trace {
    Trace::open("fixture".as_ref()).expect("a shipped recording")
}

/// A policy made of two functions and the pages that it keeps.
struct Made<A, F>(Vec<Page>, A, F);

impl<A, F> TablePolicy for Made<A, F>
where
    A: FnMut(&mut Vec<Page>, u8) -> Option<Page> + Send,
    F: FnMut(&mut Vec<Page>, Page) -> Option<Page> + Send,
{
    fn name(&self) -> &str {
        "made"
    }
    fn alloc(&mut self, level: u8, _: usize) -> Option<Page> {
        (self.1)(&mut self.0, level)
    }
    fn free(&mut self, page: Page, _: u8, _: usize) -> Option<Page> {
        (self.2)(&mut self.0, page)
    }
}

fn run<A, F>(alloc: A, free: F) -> Result<PolicyResult, Failure>
where
    A: FnMut(&mut Vec<Page>, u8) -> Option<Page> + Send + 'static,
    F: FnMut(&mut Vec<Page>, Page) -> Option<Page> + Send + 'static,
{
    let options = PolicyOptions { memory: MEMORY, ..PolicyOptions::default() };
    run_with(fixture(), Box::new(Made(Vec::new(), alloc, free)), &options)
}

fn first_that_serves(kept: &mut Vec<Page>, level: u8) -> Option<Page> {
    let found = kept.iter().position(|page| page.serves(level))?;
    Some(kept.remove(found))
}

fn keep(kept: &mut Vec<Page>, page: Page) -> Option<Page> {
    kept.push(page);
    None
}

#[test]
fn a_policy_that_keeps_all_takes_no_page_twice() {
    let all = run(first_that_serves, keep).expect("a replay");
    let library = SoloTrace::new(fixture()).count(&CountedMachine::usual(MEMORY), Clock::calibrate());
    let library = library.expect("a replay");
    assert_eq!((all.allocs(), all.peak_tables), (library.made, library.peak));
    assert_eq!(all.table_events(), 2 * all.allocs(), "all tables are gone at the end");
    let taken: u64 = all.levels.0.iter().map(|(_, level)| level.taken).sum();
    assert_eq!((all.hits() + taken, all.kept_at_end), (all.allocs(), taken));
    assert!(taken <= all.peak_tables + 1, "a page is taken only where roots cannot serve others");
    assert_eq!(all.peak_kept, all.kept_at_end);
}

#[test]
fn pages_given_up_dropped_or_forgotten_are_all_free_at_the_end() {
    let given = run(|_, _| None, |_, page| Some(page)).expect("a replay");
    let dropped = run(|_, _| None, |_, _| None).expect("a replay");
    for one in [&given, &dropped] {
        assert_eq!((one.hits(), one.kept_at_end, one.peak_kept), (0, 0, 0));
        assert!(one.levels.0.iter().all(|(_, level)| level.given == level.taken));
    }
    let forget = |_: &mut Vec<Page>, page| {
        std::mem::forget(page);
        None
    };
    let forgotten = run(|_, _| None, forget).expect("a replay");
    assert_eq!(forgotten.kept_at_end, given.allocs());
}

#[test]
fn a_policy_that_does_anything_keeps_the_balance() {
    for seed in 0..4 {
        let (mut rng, mut other) = (fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed));
        let alloc = move |kept: &mut Vec<Page>, level| match rng.u8(0..4) {
            0 => None,
            1 if !kept.is_empty() => {
                drop(kept.swap_remove(rng.usize(0..kept.len())));
                first_that_serves(kept, level)
            }
            _ => first_that_serves(kept, level),
        };
        let free = move |kept: &mut Vec<Page>, page| match other.u8(0..4) {
            0 => Some(page),
            1 => None,
            2 if !kept.is_empty() => {
                let at = other.usize(0..kept.len());
                Some(std::mem::replace(&mut kept[at], page))
            }
            _ => keep(kept, page),
        };
        let result = run(alloc, free).expect("a replay");
        let sum = |of: fn(&OwnLevel) -> u64| result.sum(of);
        assert_eq!(sum(|level| level.taken), sum(|level| level.given) + result.kept_at_end, "{seed}");
        assert!(result.hits() > 0 && result.hits() + sum(|level| level.taken) == result.allocs(), "{seed}");
    }
}

fn failure(of: Result<PolicyResult, Failure>) -> String {
    of.err().expect("a failure").message().to_owned()
}

#[test]
fn a_panic_costs_one_line_at_the_first_call_and_later() {
    for last in [1, 50] {
        let mut calls = 0;
        let alloc = move |kept: &mut Vec<Page>, level| {
            calls += 1;
            assert!(calls < last, "call {calls} is too much");
            first_that_serves(kept, level)
        };
        let line = failure(run(alloc, keep));
        assert!(line.contains(": policy made: alloc of level "), "{line}");
        assert!(
            line.contains(&format!("panicked: call {last} is too much (")) && !line.contains('\n'),
            "{line}"
        );
    }
    let line = failure(run(|_, _| None, |_, _| panic!("no room")));
    assert!(line.contains("policy made: free of level ") && line.contains("panicked: no room"), "{line}");
}

struct FailsLate;

impl TablePolicy for FailsLate {
    fn name(&self) -> &str {
        "late"
    }
    fn alloc(&mut self, _: u8, _: usize) -> Option<Page> {
        None
    }
    fn free(&mut self, page: Page, _: u8, _: usize) -> Option<Page> {
        Some(page)
    }
}

impl Drop for FailsLate {
    fn drop(&mut self) {
        panic!("not yet");
    }
}

#[test]
fn a_panic_at_the_end_is_a_failure_too() {
    let options = PolicyOptions { memory: MEMORY, ..PolicyOptions::default() };
    let line = failure(run_with(fixture(), Box::new(FailsLate), &options));
    assert!(line.contains("policy late: its drop panicked: not yet"), "{line}");
}

#[test]
fn a_page_that_cannot_be_the_table_is_refused() {
    let alloc = |kept: &mut Vec<Page>, level| {
        let found = kept.iter().position(|page| !page.serves(level))?;
        Some(kept.remove(found))
    };
    let line = failure(run(alloc, keep));
    assert!(
        line.contains("policy made: alloc of level ") && line.contains("returned a page of level"),
        "{line}"
    );
}

#[test]
fn a_page_of_another_replay_is_refused() {
    let stolen = Arc::new(Mutex::new(None));
    let steal = Arc::clone(&stolen);
    let first = run(|_, _| None, move |_, page| steal.lock().expect("no panic").replace(page));
    first.expect("a replay");
    assert!(stolen.lock().expect("no panic").is_some());
    let line = failure(run(move |_, _| stolen.lock().expect("no panic").take(), keep));
    assert!(line.ends_with("policy made: it returned a page of another replay"), "{line}");
}

#[test]
fn memory_that_is_too_small_is_an_error() {
    let replay = |memory| {
        let options = PolicyOptions { memory, ..PolicyOptions::default() };
        let trace = Trace::open("rustc".as_ref()).expect("a shipped recording");
        failure(run_with(trace, Box::new(Made(Vec::new(), first_that_serves, keep)), &options))
    };
    assert_eq!(replay(0), "memory: out of range: 1M to 8T");
    let line = replay(1 << 20);
    assert!(line.contains("got no memory at event ") && !line.contains("policy"), "{line}");
}

#[test]
fn the_sanitizer_finds_no_page_that_comes_back_too_early() {
    let solo = SoloTrace::new(fixture());
    let setup = solo.on(MEMORY);
    let fresh = setup.fresh().expect("a host");
    let config = Config {
        cpus: setup.job.cpus(),
        eager_walkers: true,
        adversary: Some(Adversary { seed: 1, rate: 60 }),
        ..Config::new(X86_64::arch())
    };
    let sanitized = Sanitized::new(setup.platform.sanitizer(fresh.host(), config).expect("a sanitizer"));
    let mut watchers = [sanitized.watcher(false)];
    let soft = sanitized.mmu();
    {
        let own = OwnPolicy::new(
            fresh.source(),
            setup.job.cpus(),
            Box::new(Made(Vec::new(), first_that_serves, keep)),
        );
        let layered = Layered::new(soft, &own).expect("layers");
        let mmu = WalkingMmu::new(Some(soft));
        let machine = fresh.machine(&layered as &dyn Policy, mmu, Delivery::Adverse(1)).expect("a machine");
        fresh.run(&machine, watches(&mut watchers), None).expect("a replay");
        let counts = own.finish().unwrap_or_else(|why| panic!("{why}")).counts;
        assert!(counts.levels.iter().any(|level| level.allocs > level.misses), "there are hits");
    }
    setup.platform.ended(soft);
    let found = soft.with(|sanitizer, _| {
        sanitizer.finish();
        sanitizer.findings().iter().map(ToString::to_string).collect::<Vec<_>>()
    });
    assert_eq!((found, sanitized.unserved()), (Vec::new(), 0));
}
