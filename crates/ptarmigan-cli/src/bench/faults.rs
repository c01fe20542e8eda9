//! Faults in one space by one CPU, and by two at once in separate and in the same regions.
//!
//! ```text
//!  threads   there + 1, spin until all are there ──> first fault … last fault ──> unmap
//!                         │                         └────── the value ──────┘
//!  exclusive, apart       └─ one thread, or a space for each: the reference
//! ```
//!
//! A round makes every page of 256 regions of 2 MiB present. They are unmapped after the clock has
//! stopped. The value is the time from the first fault of any thread to the last, divided by the
//! number of pages. So two threads that do not disturb each other take half the time of one, if the
//! machine has two processors to spare.
//!
//! # Why
//!
//! Threads wait for each other before the clock starts, because a thread takes longer to start than
//! a round of faults: without that they would fault one after the other. As a reference, two
//! threads with a space each, which share only the allocators, are measured beside them. A slow
//! result must be told apart: the space, or the machine.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::X86_64;
use ptarmigan::machine::{Machine, On};
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Done, SharedSpace, Space};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
use ptarmigan_replay::{EitherMachine, ReplayHost, WalkingMmu};

use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::report::{BenchReport, Samples};
use ptarmigan_bench::rounds::RoundLine;
use ptarmigan_bench::stats::median;

type F = X86_64;
type M<'m, 'h> = EitherMachine<'m, 'h, F, &'h dyn Policy, WalkingMmu<'h, F>, DirectMap>;

const PAGE: u64 = 4096;
const REGION: u64 = 2 << 20;
const REGIONS: u64 = 256;
const PAGES: u64 = REGIONS * (REGION / PAGE);
const AREA: u64 = 0x40_0000_0000;
/// One thread with exclusive access to the space.
const EXCLUSIVE: &str = "exclusive";
const ONE: &str = "one-thread";
const TWO: &str = "two-threads";
/// Two threads with a space each.
const APART: &str = "two-spaces";

/// How two threads divide the pages.
#[derive(Clone, Copy)]
struct PageSplit {
    name: &'static str,
    /// Returns the pages of thread `t` of `n`, in order.
    pages: fn(u64, u64) -> PageIter,
}

type PageIter = Box<dyn Iterator<Item = u64>>;

/// Each region of 2 MiB belongs to one thread.
fn disjoint(t: u64, n: u64) -> PageIter {
    Box::new((0..PAGES).filter(move |page| page / 512 % n == t))
}

/// Each thread has one half of every region.
fn same_region(t: u64, n: u64) -> PageIter {
    Box::new((0..PAGES).filter(move |page| page % 512 * n / 512 == t))
}

/// Each thread has every second page.
fn interleaved(t: u64, n: u64) -> PageIter {
    Box::new((0..PAGES).filter(move |page| page % n == t))
}

const CASES: [PageSplit; 3] = [
    PageSplit { name: "disjoint", pages: disjoint },
    PageSplit { name: "same-region", pages: same_region },
    PageSplit { name: "interleaved", pages: interleaved },
];

fn area() -> VirtRange {
    VirtRange::fixed::<AREA, { AREA + PAGES * PAGE }>()
}

fn at(page: u64) -> VirtAddr {
    VirtAddr(AREA + page * PAGE)
}

/// Faults in the pages of a list. Returns start and end.
fn touch(pages: &[VirtAddr], mut fault: impl FnMut(VirtAddr) -> bool) -> Result<(Instant, Instant), String> {
    let start = Instant::now();
    let mut fresh = 0;
    for at in pages {
        fresh += usize::from(fault(*at));
    }
    let end = Instant::now();
    if fresh == pages.len() { Ok((start, end)) } else { Err(format!("{fresh} of {} faults", pages.len())) }
}

/// Measures one thread with exclusive access. Returns nanoseconds per page.
fn exclusive(m: &M<'_, '_>, slot: &CpuSlot, space: &mut Space<F>, pages: &[VirtAddr]) -> Result<f64, String> {
    // Threads made while this one is pinned would be pinned too.
    let _here = AffinityGuard::on(0).map_err(|e| format!("cannot stay on one CPU: {e}"))?;
    let pin = slot.pin();
    let on = m.on(&pin).map_err(|e| e.to_string())?;
    let (start, end) = touch(pages, |at| space.fault(on, at, Access::Write) == Ok(Done::Fresh))?;
    let mut edit = space.edit(on).map_err(|e| e.to_string())?;
    edit.munmap(area()).map_err(|e| e.to_string())?;
    edit.mmap(area(), AreaFlags(3), 0).map_err(|e| e.to_string())?;
    Ok((end - start).as_nanos() as f64 / PAGES as f64)
}

/// Runs `work` on one thread per list, each as the CPU of that number. Returns nanoseconds per
/// page.
fn threads(
    host: &Host<F>,
    lists: &[Vec<VirtAddr>],
    work: impl Fn(&CpuSlot, &[VirtAddr]) -> Result<(Instant, Instant), String> + Sync,
) -> Result<f64, String> {
    // Threads that sleep would not start together.
    let there = AtomicUsize::new(0);
    let times = thread::scope(|scope| {
        let threads: Vec<_> = (lists.iter().enumerate())
            .map(|(t, pages)| {
                let (there, work) = (&there, &work);
                scope.spawn(move || {
                    // The scheduler puts new threads beside the one that makes them. Two on one
                    // processor would invalidate the measurement.
                    let place = AffinityGuard::on(t);
                    let slot = host.slot(t);
                    there.fetch_add(1, Ordering::AcqRel);
                    while there.load(Ordering::Acquire) < lists.len() {
                        std::hint::spin_loop();
                    }
                    let _place = place.map_err(|e| format!("cannot stay on one CPU: {e}"))?;
                    work(&slot.ok_or("a CPU of the machine is in use")?, pages)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err("a thread failed".to_string())))
            .collect::<Result<Vec<_>, String>>()
    })?;
    let first = times.iter().map(|t| t.0).min().ok_or("no threads")?;
    let last = times.iter().map(|t| t.1).max().ok_or("no threads")?;
    Ok((last - first).as_nanos() as f64 / PAGES as f64)
}

/// Measures one thread per list in one space.
fn shared(
    host: &Host<F>,
    m: &M<'_, '_>,
    space: &SharedSpace<F>,
    lists: &[Vec<VirtAddr>],
) -> Result<f64, String> {
    let ns = threads(host, lists, |slot, pages| {
        let pin = slot.pin();
        let on = m.on(&pin).map_err(|e| e.to_string())?;
        touch(pages, |at| space.fault(on, at, Access::Write) == Ok(Done::Fresh))
    })?;
    let slot = host.slot(0).ok_or("a CPU of the machine is in use")?;
    let pin = slot.pin();
    let on = m.on(&pin).map_err(|e| e.to_string())?;
    let mut exclusive = space.lock(on).map_err(|e| e.to_string())?;
    let mut alone = exclusive.edit();
    alone.munmap(area()).map_err(|e| e.to_string())?;
    alone.mmap(area(), AreaFlags(3), 0).map_err(|e| e.to_string())?;
    Ok(ns)
}

/// A space with the area.
fn mapped(on: On<'_, M<'_, '_>>) -> Result<Space<F>, String> {
    let mut space = Space::<F>::new(on).map_err(|e| e.to_string())?;
    let made = space.edit(on).map_err(|e| e.to_string())?.mmap(area(), AreaFlags(3), 0);
    match made {
        Ok(()) => Ok(space),
        Err(e) => {
            space.end(on).map_err(|e| e.to_string())?;
            Err(e.to_string())
        }
    }
}

/// As many threads as there are lists, each in a space of its own.
fn apart(host: &Host<F>, m: &M<'_, '_>, lists: &[Vec<VirtAddr>]) -> Result<f64, String> {
    threads(host, lists, |slot, pages| {
        let pin = slot.pin();
        let on = m.on(&pin).map_err(|e| e.to_string())?;
        let mut space = mapped(on)?;
        let times = touch(pages, |at| space.fault(on, at, Access::Write) == Ok(Done::Fresh));
        space.end(on).map_err(|e| e.to_string())?;
        times
    })
}

/// Runs the cases, round by round, with one thread and with two in turn.
///
/// # Errors
///
/// If a machine cannot be set up, a fault gives the wrong result, or memory is lost.
pub fn run(rounds: u32) -> Result<BenchReport, String> {
    let config = HostConfig { cpus: 2, bytes: 2 << 30, ..HostConfig::default() };
    let host = Host::<F>::new(config).map_err(|e| e.to_string())?;
    let lists = host.quicklists().map_err(|e| e.to_string())?;
    let inner = ReplayHost::new(&host, &lists, WalkingMmu::NONE).map_err(|e| e.to_string())?;
    let m = EitherMachine::low(&inner);
    let mut samples = Samples::default();
    // Ratios of measurements next to each other in time, as the machine's speed drifts.
    let mut gains: [Vec<[f64; 2]>; CASES.len()] = Default::default();
    let lists_of = |case: PageSplit, n: u64| {
        (0..n).map(|t| (case.pages)(t, n).map(at).collect()).collect::<Vec<Vec<_>>>()
    };
    let progress = RoundLine::new(rounds);
    let slot = host.slot(0).ok_or("no CPU")?;
    let pin = slot.pin();
    let on = m.on(&pin).map_err(|e| e.to_string())?;
    let (mut own, common) = (mapped(on)?, mapped(on)?);
    drop(slot);
    let common = SharedSpace::new(common);
    // The first pass takes its frames from the zones and does not count.
    shared(&host, &m, &common, &lists_of(CASES[0], 2))?;
    for round in 1..=rounds {
        for (case, gains) in CASES.into_iter().zip(&mut gains) {
            let (one, two) = (lists_of(case, 1), lists_of(case, 2));
            progress.say(round, &format!("{} {EXCLUSIVE}", case.name));
            let slot = host.slot(0).ok_or("a CPU of the machine is in use")?;
            samples.add(case.name, EXCLUSIVE, "", exclusive(&m, &slot, &mut own, &one[0])?);
            drop(slot);
            progress.say(round, &format!("{} threads", case.name));
            let alone = shared(&host, &m, &common, &one)?;
            let both = shared(&host, &m, &common, &two)?;
            let most = apart(&host, &m, &two)?;
            samples.add(case.name, ONE, "", alone);
            samples.add(case.name, TWO, "", both);
            samples.add(case.name, APART, "", most);
            gains.push([alone / both, alone / most]);
        }
    }
    drop(progress);
    let slots = host.slots();
    let pin = slots.first().ok_or("no CPU")?.pin();
    let on = m.on(&pin).map_err(|e| e.to_string())?;
    own.end(on).map_err(|e| e.to_string())?;
    common.end(on).map_err(|e| e.to_string())?;
    inner.drain(&slots);
    host.audit().map_err(|e| e.to_string())?;
    let notes = CASES
        .iter()
        .zip(&gains)
        .map(|(case, gains)| {
            let [two, most] = [0, 1].map(|i| median(gains.iter().map(|g| g[i])));
            let name = case.name;
            format!("{name}: two threads are {two:.2} times one; with a space each, {most:.2} times")
        })
        .collect();
    Ok(BenchReport { bench: "faults", arch: None, rows: samples.rows("ns/page"), reference: ONE, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_one_thread_in_every_case() {
        for case in CASES {
            let mut pages: Vec<u64> = (0..2).flat_map(|t| (case.pages)(t, 2)).collect();
            pages.sort_unstable();
            assert!(pages.into_iter().eq(0..PAGES), "{}", case.name);
        }
    }

    #[test]
    fn one_thread_and_two_are_measured_in_every_case() {
        let report = run(1).expect("a round runs");
        for case in CASES {
            for who in [EXCLUSIVE, ONE, TWO, APART] {
                assert!(report.value(case.name, who).is_some_and(|ns| ns > 0.0), "{} {who}", case.name);
            }
        }
    }
}
