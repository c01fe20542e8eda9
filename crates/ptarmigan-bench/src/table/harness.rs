//! Runs the contenders of the page-table benchmark against each other.
//!
//! No contender executes a TLB instruction here: the times are those of the data structure and of
//! its allocator.
use std::hint::black_box;
use std::time::Instant;

use super::contender::{CasePages, DEVICE, ForkShape, SPACES, SPARSE, TableCase, TableContender};
use super::peer_pool;
use crate::affinity::AffinityGuard;
use crate::report::{BenchReport, Samples};
use crate::rounds::RoundLine;

/// Times that a case of large pages is repeated for a sample: 2,048 large pages are mapped in
/// microseconds.
const LARGE_REPEATS: u32 = 16;

/// Runs the cases on the pages `at`, round by round, contender by contender; all contenders have
/// those pages. The rows are compared with those of `reference`.
///
/// # Errors
///
/// If the thread cannot be pinned to a CPU, or a contender loses something it has borrowed.
///
/// # Panics
///
/// If the work of a contender fails its check: the times are then worthless.
pub fn run(
    rounds: u32,
    at: CasePages,
    reference: &'static str,
    mut field: Vec<Box<dyn TableContender + '_>>,
) -> Result<BenchReport, String> {
    // Migration between CPUs would measure cold caches.
    let _here = AffinityGuard::here().map_err(|e| format!("cannot stay on one CPU: {e}"))?;
    let shape = ForkShape::new(at);
    let mut samples = Samples::default();
    let progress = RoundLine::new(rounds);
    for round in 1..=rounds {
        for case in TableCase::ALL {
            for contender in field.iter_mut().filter(|c| c.cases().contains(&case)) {
                progress.say(round, &format!("{} {}", case.name(), contender.name()));
                measure(contender.as_mut(), case, at, &shape, &mut samples);
            }
        }
    }
    drop(progress);
    for contender in &mut field {
        contender.finish().map_err(|e| format!("{}: {e}", contender.name()))?;
    }
    Ok(BenchReport {
        bench: "table",
        arch: None,
        rows: samples.rows("ns/page"),
        reference,
        notes: Vec::new(),
    })
}

/// Times `f`. Returns nanoseconds per operation, and the result.
fn timed<T>(operations: usize, f: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let result = black_box(f());
    (start.elapsed().as_nanos() as f64 / operations as f64, result)
}

/// Runs one case of one contender: sets it up, times it and checks it.
fn measure(
    c: &mut dyn TableContender,
    case: TableCase,
    at: CasePages,
    shape: &ForkShape,
    samples: &mut Samples,
) {
    peer_pool::reset();
    let name = c.name();
    if case == TableCase::ForkShape {
        for (way, &label) in c.fork_ways().iter().enumerate() {
            peer_pool::reset();
            let (ns, ()) = timed(SPACES * SPARSE, || c.fork_shape(way, shape));
            assert_eq!(c.tables_out(), 0, "{name}: fork-shape leaked tables");
            samples.add(case.name(), name, label, ns);
        }
        return;
    }
    if let TableCase::LargeMap | TableCase::LargeUnmap | TableCase::LargeSplit | TableCase::LargeHalf = case {
        measure_large(c, case, at, samples);
        return;
    }
    if case == TableCase::Device {
        measure_devices(c, at, samples);
        return;
    }
    let full = at.all_frames();
    c.open();
    let ns = match case {
        TableCase::Map => {
            let (ns, ()) = timed(at.count, || c.map());
            assert_eq!(c.query(), full, "{name}: map left wrong frames");
            ns
        }
        TableCase::MapRange => {
            let (ns, ()) = timed(at.count, || c.map_range());
            assert_eq!(c.query(), full, "{name}: map-range left wrong frames");
            ns
        }
        TableCase::Query => {
            c.map();
            let (ns, sum) = timed(at.count, || c.query());
            assert_eq!(sum, full, "{name}: query found wrong frames");
            ns
        }
        TableCase::Unmap => {
            c.map();
            let (ns, ()) = timed(at.count, || c.unmap());
            assert_eq!(c.query(), 0, "{name}: unmap left pages");
            ns
        }
        TableCase::UnmapRange => {
            c.map_range();
            let (ns, ()) = timed(at.count, || c.unmap_range());
            assert_eq!(c.query(), 0, "{name}: unmap-range left pages");
            ns
        }
        _ => unreachable!("handled above"),
    };
    c.close();
    assert_eq!(c.tables_out(), 0, "{name}: {} leaked tables", case.name());
    samples.add(case.name(), name, "", ns);
}

/// Runs a case of large pages several times, each in a space of its own, for one sample: the mean
/// of a large page. A first time, which does not count, and the last time are followed by queries
/// of all pages. Between the others there are none: they would leave nothing but leaf tables in the
/// caches.
fn measure_large(c: &mut dyn TableContender, case: TableCase, at: CasePages, samples: &mut Samples) {
    let (name, case_name) = (c.name(), case.name());
    let mut sum = 0.0;
    for repeat in 0..=LARGE_REPEATS {
        let is_checked = repeat == 0 || repeat == LARGE_REPEATS;
        c.open();
        let (mapping, ()) = timed(at.large(), || c.large_map());
        let before = c.tables_out();
        assert!(before < at.large(), "{name}: large-map made tables of pages");
        if repeat == 0 {
            assert_eq!(c.query_large(), at.all_frames(), "{name}: large-map left wrong frames");
        }
        let (ns, left, tables) = match case {
            TableCase::LargeMap => (mapping, at.all_frames(), 0),
            TableCase::LargeUnmap => {
                let (ns, ()) = timed(at.large(), || c.large_unmap());
                (ns, 0, 0)
            }
            TableCase::LargeSplit => {
                let (ns, ()) = timed(at.split(), || c.large_split());
                (ns, at.all_frames(), at.split())
            }
            _ => {
                let (ns, ()) = timed(at.split(), || c.large_half());
                (ns, at.frames_after_half(), at.split())
            }
        };
        if is_checked {
            assert_eq!(c.query_large(), left, "{name}: {case_name} left wrong frames");
        }
        assert!(c.tables_out() <= before + tables, "{name}: {case_name} made too many tables");
        assert!(tables == 0 || c.tables_out() == before + tables, "{name}: {case_name} split too few");
        c.close();
        assert_eq!(c.tables_out(), 0, "{name}: {case_name} leaked tables");
        if repeat > 0 {
            sum += ns;
        }
    }
    samples.add(case_name, name, "", sum / f64::from(LARGE_REPEATS));
}

/// Runs `device` several times, each in a space of its own, for one sample: the mean of a page. The
/// first time, in which tables have their first use, does not count.
fn measure_devices(c: &mut dyn TableContender, at: CasePages, samples: &mut Samples) {
    let (name, case) = (c.name(), TableCase::Device.name());
    let mut sum = 0.0;
    for repeat in 0..=LARGE_REPEATS {
        c.open();
        let (ns, ()) = timed(at.large() * DEVICE, || c.device());
        if repeat == 0 || repeat == LARGE_REPEATS {
            assert_eq!(c.query(), at.device_frames(), "{name}: {case} left wrong frames");
        }
        c.close();
        assert_eq!(c.tables_out(), 0, "{name}: {case} leaked tables");
        if repeat > 0 {
            sum += ns;
        }
    }
    samples.add(case, name, "", sum / f64::from(LARGE_REPEATS));
}
