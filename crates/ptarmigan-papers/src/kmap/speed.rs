//! Speed of the pool and of Linux's, on slots that are a store each, by one thread and by two.
//!
//! ```text
//!  thread     maps a twentieth ── ready + 1 ── serve until all are ready ── map, unmap … ── time
//!  Locked     compare_exchange(users + 1), acquire ── fetch_sub, SeqCst      the least possible
//!  pools      map ── unmap                                                    beside it
//! ```
//!
//! # Why
//!
//! The figure to judge is the distance to the least that a pool must do: two atomic operations on
//! the frame's word. So that loop is measured beside the pools. Threads wait for each other before
//! the clock starts, and answer flushes while they wait. Otherwise the other thread's first sweep
//! would wait for them for ever.
use super::plans::verdict;
use super::report::{KmapRow, Part};
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::X86_64;
use ptarmigan::highmem::pool::{Pool, PoolConfig};
use ptarmigan::machine::Machine;
use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::stats::median;
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb, StoreSlots, Wired};
use ptarmigan_linux::LinuxPool;
use ptarmigan_term::Time;
use ptarmigan_term::bar;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

const SLOTS: usize = 1024;
const BASE: u64 = 0xffff_c000_0000_0000;
const LOW: u64 = 64 << 20;
const MEMORY: u64 = 256 << 20;
/// The first high frame.
const HIGH: u32 = (LOW >> 12) as u32;
/// Maps of one thread in one measurement.
const MAPS: usize = 400_000;
/// Maps after which a thread answers flush requests.
const SERVE: usize = 8;

/// A case: which frames thread `t` maps, in turn.
struct MapCase {
    name: &'static str,
    /// Locked operations on a frame's word in each map and unmap.
    locked: usize,
    frames: fn(usize) -> Range<u32>,
}

const CASES: [MapCase; 3] = [
    // Mapped all the time: no slot is filled.
    MapCase { name: "hit", locked: 2, frames: |t| frames(64 * t as u32, 64) },
    // Four times as many as there are slots: each map fills one, and a sweep empties it.
    MapCase { name: "another", locked: 3, frames: |t| frames(4096 * t as u32, 4096) },
    // The same one on both threads.
    MapCase { name: "same", locked: 2, frames: |_| frames(0, 1) },
];

fn frames(first: u32, n: u32) -> Range<u32> {
    HIGH + first..HIGH + first + n
}

/// One of the pools.
trait MapPair: Sync {
    /// Maps a frame and unmaps it; whether it could.
    fn pair(&self, pin: &Pinned<'_>, frame: Pfn) -> bool;
}

type Wires = Wired<X86_64, NoTlb>;

impl MapPair for Pool<'_, Wires, StoreSlots> {
    #[inline]
    fn pair(&self, pin: &Pinned<'_>, frame: Pfn) -> bool {
        self.try_map(pin, frame).is_ok()
    }
}

impl MapPair for LinuxPool<'_, Wires, StoreSlots> {
    #[inline]
    fn pair(&self, pin: &Pinned<'_>, frame: Pfn) -> bool {
        // SAFETY: 1. mapped just now, and the address is not used.
        self.try_map(pin, frame).is_ok() && unsafe { self.unmap(pin, frame) } == Ok(true)
    }
}

/// The locked operations of a map and unmap alone: the least cost on this machine for any pool
/// whose frames have a count of users.
struct Locked {
    words: Vec<AtomicU32>,
    operations: usize,
}

impl Locked {
    fn new(case: &MapCase) -> Self {
        let words = (case.frames)(0).map(|_| AtomicU32::new(1)).collect();
        Locked { words, operations: case.locked }
    }
}

impl MapPair for Locked {
    #[inline]
    fn pair(&self, _: &Pinned<'_>, frame: Pfn) -> bool {
        let word = &self.words[(frame.0 - HIGH) as usize];
        for _ in 1..self.operations {
            let users = word.load(Ordering::Relaxed);
            let joined = word.compare_exchange(users, users + 1, Ordering::Acquire, Ordering::Relaxed);
            if joined.is_err() {
                return false;
            }
        }
        word.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

/// Runs `threads` threads, each as its own CPU. Returns nanoseconds per map and unmap of one
/// thread, from the first start to the last end.
#[inline(never)]
fn run<M: Machine>(
    host: &Host<X86_64>,
    machine: &M,
    pool: &impl MapPair,
    case: &MapCase,
    threads: usize,
) -> Result<f64, String> {
    let (ready, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let one = |t: usize| -> Result<(Instant, Instant), String> {
        let _place = AffinityGuard::on(t).map_err(|e| format!("cannot stay on one CPU: {e}"))?;
        let slot = host.slot(t).ok_or("a CPU is taken")?;
        let pin = slot.pin();
        let frames = (case.frames)(t);
        let mut next = frames.start;
        let mut maps = |n: usize| {
            for _ in 0..n / SERVE {
                for _ in 0..SERVE {
                    if !pool.pair(&pin, Pfn(next)) {
                        return false;
                    }
                    next = if next + 1 == frames.end { frames.start } else { next + 1 };
                }
                machine.tlb().serve(&pin);
            }
            true
        };
        let short = || "a frame could not be mapped".to_owned();
        if !maps(MAPS / 20) {
            return Err(short());
        }
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < threads {
            if failed.load(Ordering::Relaxed) {
                return Err("the other thread failed".to_owned());
            }
            machine.tlb().serve(&pin);
            std::hint::spin_loop();
        }
        let start = Instant::now();
        if maps(MAPS) { Ok((start, Instant::now())) } else { Err(short()) }
    };
    let one = |t| one(t).inspect_err(|_| failed.store(true, Ordering::Relaxed));
    let times = thread::scope(|scope| {
        let one = &one;
        let spawned: Vec<_> = (0..threads).map(|t| scope.spawn(move || one(t))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
        spawned
            .into_iter()
            .map(|thread| join(thread).unwrap_or_else(|_| Err("a thread failed".to_owned())))
            .collect::<Result<Vec<_>, String>>()
    })?;
    let start = times.iter().map(|time| time.0).min();
    let end = times.iter().map(|time| time.1).max();
    let took = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_nanos() as f64);
    Ok(took / MAPS as f64)
}

/// Contenders, with one thread and with two.
const ARMS: [(&str, usize); 5] =
    [("ptarmigan", 1), ("ptarmigan-two", 2), ("linux", 1), ("linux-two", 2), ("locked-only", 1)];

/// Measures both pools in `rounds` rounds.
///
/// # Errors
///
/// If the machine cannot be set up, or a frame cannot be mapped.
pub(super) fn part(rounds: u32) -> Result<Part, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let config = HostConfig { cpus: 2, bytes: MEMORY, low: LOW, ..HostConfig::default() };
    let host = Host::<X86_64>::new(config).map_err(|e| text(&e))?;
    let machine =
        HostMachine::new(&host, host.plain().map_err(|e| text(&e))?, NoTlb).map_err(|e| text(&e))?;
    let store = || {
        let mut boot = host.boot(StoreSlots::bytes(SLOTS)).map_err(|e| text(&e))?;
        // SAFETY: 1. the host's map reaches all its frames.
        unsafe { StoreSlots::new(&mut boot, SLOTS, BASE, host.window()) }.map_err(|e| text(&e))
    };
    let config = PoolConfig::new(2, SLOTS);
    let bytes = Pool::<Wires, StoreSlots>::bytes(&host.frames().size(), &config, SLOTS);
    let mut boot = host.boot(bytes).map_err(|e| text(&e))?;
    let (tlb, frames, low) = (machine.tlb(), host.frames(), host.low_window());
    // SAFETY: 1. the slots are made for the host, and so is the map. 2. new ones.
    let ours =
        unsafe { Pool::new(&mut boot, config, tlb, frames, low, store()?, &()) }.map_err(|e| text(&e))?;
    let mut boot = host.boot(LinuxPool::<Wires, StoreSlots>::bytes(SLOTS)).map_err(|e| text(&e))?;
    // SAFETY: 1. and 2. as above.
    let linux = unsafe { LinuxPool::new(&mut boot, tlb, frames, low, store()?) }.map_err(|e| text(&e))?;

    let mut times = vec![vec![Vec::new(); ARMS.len()]; CASES.len()];
    let bar = bar::bar(u64::from(rounds), "pools");
    for round in 0..rounds as usize {
        for (case, times) in CASES.iter().zip(&mut times) {
            for turn in 0..ARMS.len() {
                let arm = (turn + round) % ARMS.len();
                let threads = ARMS[arm].1;
                times[arm].push(match arm {
                    0 | 1 => run(&host, &machine, &ours, case, threads)?,
                    2 | 3 => run(&host, &machine, &linux, case, threads)?,
                    _ => run(&host, &machine, &Locked::new(case), case, threads)?,
                });
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(report(&times))
}

fn report(times: &[Vec<Vec<f64>>]) -> Part {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (case, arms) in CASES.iter().zip(times) {
        let least = |arm: usize| arms[arm].iter().copied().fold(f64::INFINITY, f64::min);
        for (arm, (name, _)) in ARMS.iter().enumerate() {
            rows.push(KmapRow {
                case: case.name.to_owned(),
                contender: (*name).to_owned(),
                value: median(arms[arm].iter().copied()),
                unit: "ns/pair",
                min: Some(least(arm)),
            });
        }
        let ratio = |of: usize, to: usize| median(arms[of].iter().zip(&arms[to]).map(|(of, to)| of / to));
        let mut compare = |what: &str, of, to| {
            let value = ratio(of, to);
            let min = Some(least(of) / least(to));
            let (case, contender) = (format!("{}/ratio", case.name), what.to_owned());
            rows.push(KmapRow { case, contender, value, unit: "x", min });
            value
        };
        let (two, times_linux) = (compare("two/one", 1, 0), compare("linux-two/two", 3, 1));
        let bar = match case.name {
            "hit" => 10.0,
            "another" => 20.0,
            _ => continue,
        };
        notes.push(format!(
            "{}: {:.3} at the least (bar: {}){}; its {} locked operations alone {:.3}",
            case.name,
            Time::from_nanos(least(0)),
            Time::from_nanos(bar),
            verdict(least(0) <= bar),
            case.locked,
            Time::from_nanos(least(4))
        ));
        notes.push(format!(
            "{}: two threads {two:.2} x one (bar: 1.25){}, Linux's {times_linux:.1} x ours (bar: 3){}",
            case.name,
            verdict(two <= 1.25),
            verdict(times_linux >= 3.0)
        ));
    }
    let title = "Pools, slots a store each: map and unmap of a frame, per thread".to_owned();
    Part { title, rows, notes }
}
