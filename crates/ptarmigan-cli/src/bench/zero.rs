//! `bench zero`: clearing frames through the caches and past them, right before their use and ahead
//! of it.
//!
//! | case | measurement |
//! |---|---|
//! | `hot` | clearing the same few frames again and again |
//! | `cold` | clearing frames that no cache holds, in random order |
//! | `cold-use…` | the same, with some lines of each frame used right afterwards |
//! | `later-…` | clearing many frames, then using each; both together |
//! | `neighbour` | a pass over a working set of the second-level cache, after 256 KiB were cleared
//! |
//! | `fault-hot-…` | a fault with the list of free frames in the cache |
//! | `fault-cold-…` | a fault with the list of free frames out of the cache |
//!
//! The page of a fault is cleared in the fault (`cleared-then`) or ahead of it, outside the clock
//! (`cleared-ahead`).
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::X86_64;
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, Request, Zero, ZoneClass};
use ptarmigan::machine::Machine;
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use ptarmigan_hosted::{Host, HostConfig};
use ptarmigan_replay::{EitherMachine, ReplayHost, WalkingMmu};

use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::clock::thread_time;
use ptarmigan_bench::report::{BenchReport, Samples};
use ptarmigan_bench::rounds::RoundLine;

const PAGE: u64 = 4096;
const LINE: usize = 64;
const ORDINARY: &str = "ordinary";
const NONTEMPORAL: &str = "non-temporal";
const NOTHING: &str = "no clearing";
const THEN: &str = "cleared-then";
const AHEAD: &str = "cleared-ahead";
/// The clearing itself, which `cleared-ahead` leaves to idle time.
const WORK: &str = "idle work";

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct ZeroWorkload {
    /// Frames that fit the second-level cache.
    pub hot: usize,
    /// Frames that fit no cache.
    pub cold: usize,
    /// Repetitions of short cases in a round.
    pub turns: usize,
    /// Pages of a process that ends, and of the next one.
    pub pages: u64,
}

impl ZeroWorkload {
    /// The workload for published results.
    pub const FULL: ZeroWorkload = ZeroWorkload { hot: 32, cold: 49_152, turns: 200, pages: 256 };
}

/// Frames with memory, alternately owned and cleared.
struct Bank<'h> {
    frames: &'h Frames,
    window: DirectMap,
    held: Vec<Option<Frame<Dirty>>>,
}

type Clear = unsafe fn(Frame<Dirty>, &DirectMap) -> Frame<Zero>;

const WAYS: [(&str, Clear); 2] = [(ORDINARY, Frame::clear), (NONTEMPORAL, Frame::clear_nontemporal)];

impl<'h> Bank<'h> {
    /// Allocates `n` frames in random order and writes to each.
    fn new(frames: &'h Frames, window: DirectMap, n: usize) -> Result<Self, String> {
        let request = Request {
            node: NodeId(0),
            order: 0,
            zero: false,
            class: ZoneClass::Low,
            end: End::Low,
            flags: AllocFlags::NORMAL,
        };
        let mut bank = Bank { frames, window, held: Vec::with_capacity(n) };
        for _ in 0..n {
            let frame = frames.take(request).map_err(|e| e.to_string())?;
            // SAFETY: 1. window and frames are of one host.
            let frame = unsafe { frame.dirty().clear(&bank.window) };
            bank.held.push(Some(frame.dirty()));
        }
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        for i in (1..n).rev() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            bank.held.swap(i, (seed % (i as u64 + 1)) as usize);
        }
        Ok(bank)
    }

    /// Clears the frames of a range, and writes to `lines` lines of each right afterwards.
    #[inline]
    fn clear(&mut self, of: std::ops::Range<usize>, clear: Clear, lines: usize) {
        for held in &mut self.held[of] {
            if let Some(frame) = held.take() {
                // SAFETY: 1. window and frames are of one host.
                let frame = unsafe { clear(frame, &self.window) }.dirty();
                write(&self.window, &frame, lines);
                *held = Some(frame);
            }
        }
    }

    /// Writes to `lines` lines of all frames.
    fn touch(&self, lines: usize) {
        for frame in self.held.iter().flatten() {
            write(&self.window, frame, lines);
        }
    }

    fn finish(self) {
        for frame in self.held.into_iter().flatten() {
            self.frames.give(frame);
        }
    }
}

#[inline]
fn write(window: &DirectMap, frame: &Frame<Dirty>, lines: usize) {
    let guard = window.open(frame.addr());
    for line in 0..lines.min(PAGE as usize / LINE) {
        // SAFETY: the frame is borrowed from its owner, on one thread, and may have any contents.
        // The guard is valid for all of it.
        unsafe { guard.base().add(line * LINE).write_volatile(1) };
    }
}

/// Returns the processor time of `work`, in nanoseconds per one of `n`.
fn time(n: usize, work: impl FnOnce()) -> f64 {
    let start = thread_time();
    work();
    (thread_time() - start).as_nanos() as f64 / n as f64
}

/// Measures clearing alone and with use, of frames that no cache holds.
fn clearing(bank: &mut Bank<'_>, sizes: &ZeroWorkload, samples: &mut Samples) {
    let ZeroWorkload { hot, cold, turns, .. } = *sizes;
    for (way, clear) in WAYS {
        let again = time(hot * turns, || (0..turns).for_each(|_| bank.clear(0..hot, clear, 0)));
        samples.add("hot", way, "", again);
        let again = time(hot * turns, || (0..turns).for_each(|_| bank.clear(0..hot, clear, 64)));
        samples.add("hot-use64", way, "", again);
        for (case, lines) in [("cold", 0), ("cold-use1", 1), ("cold-use8", 8), ("cold-use64", 64)] {
            samples.add(case, way, "", time(cold, || bank.clear(0..cold, clear, lines)));
        }
        for (case, lines) in [("later-use1", 1), ("later-use8", 8), ("later-use64", 64)] {
            let first = time(cold, || bank.clear(0..cold, clear, 0));
            samples.add(case, way, "", first + time(cold, || bank.touch(lines)));
        }
    }
}

/// Measures a neighbour's pass over its working set after unrelated frames were cleared.
fn neighbour(bank: &mut Bank<'_>, sizes: &ZeroWorkload, samples: &mut Samples) {
    const CLEARED: usize = 64;
    let own = vec![1_u64; 256 << 10 >> 3];
    let pages = own.len() * 8 / PAGE as usize;
    let pass = || std::hint::black_box(own.iter().step_by(LINE / 8).sum::<u64>());
    let ways = WAYS.into_iter().map(|(way, clear)| (way, Some(clear)));
    for (way, clear) in [(NOTHING, None)].into_iter().chain(ways) {
        let mut ns = 0.0;
        for turn in 0..sizes.turns {
            pass();
            if let Some(clear) = clear {
                let first = turn * CLEARED % (sizes.cold - CLEARED);
                bank.clear(first..first + CLEARED, clear, 0);
            }
            ns += time(pages, || {
                pass();
            });
        }
        samples.add("neighbour", way, "", ns / sizes.turns as f64);
    }
}

/// Measures bursts of faults, whose pages come from a process that has ended.
fn faults(
    lines: usize,
    names: [&'static str; 2],
    sizes: &ZeroWorkload,
    samples: &mut Samples,
) -> Result<(), String> {
    let config = HostConfig { bytes: 1 << 30, touch_data: true, use_lines: lines, ..HostConfig::default() };
    let host = Host::<X86_64>::new(config).map_err(|e| e.to_string())?;
    let lists = host.quicklists().map_err(|e| e.to_string())?;
    let inner = ReplayHost::new(&host, &lists, WalkingMmu::NONE).map_err(|e| e.to_string())?;
    let m = EitherMachine::low(&inner);
    let slots = host.slots();
    let pin = slots.first().ok_or("no CPU")?.pin();
    let on = m.on(&pin).map_err(|e| e.to_string())?;
    let area =
        VirtRange::new(0x40_0000_0000, 0x40_0000_0000 + sizes.pages * PAGE).map_err(|e| e.to_string())?;
    let pages = sizes.pages as usize;
    // Larger than the caches, to evict their contents.
    let mut other = vec![0_u64; sizes.cold * PAGE as usize / 8 / 2];
    let mut one = |ahead: bool, cold: bool| -> Result<(f64, f64), String> {
        let (mut ns, mut work) = (0.0, 0.0);
        let turns = if cold { sizes.turns.div_ceil(20) } else { sizes.turns };
        let mut fresh = 0;
        for _ in 0..turns {
            let mut space = Space::<X86_64>::new(on).map_err(|e| e.to_string())?;
            let mut edit = space.edit(on).map_err(|e| e.to_string())?;
            edit.mmap(area, AreaFlags(3), 0).map_err(|e| e.to_string())?;
            if cold {
                other.iter_mut().step_by(LINE / 8).for_each(|word| *word += 1);
            }
            if ahead {
                work += time(pages, || while on.clear_ahead(16) > 0 {});
            }
            ns += time(pages, || {
                for va in (area.start..area.end).step_by(PAGE as usize) {
                    fresh += usize::from(space.fault(on, VirtAddr(va), Access::Write) == Ok(Done::Fresh));
                }
            });
            space.end(on).map_err(|e| e.to_string())?;
        }
        if fresh != turns * pages {
            return Err(format!("{fresh} of {} faults", turns * pages));
        }
        Ok((ns / turns as f64, work / turns as f64))
    };
    // The first pass takes its frames from the zones and does not count.
    one(false, false)?;
    for (case, cold) in names.into_iter().zip([false, true]) {
        samples.add(case, THEN, "", one(false, cold)?.0);
        let (ns, work) = one(true, cold)?;
        samples.add(case, AHEAD, "", ns);
        samples.add(case, WORK, "", work);
    }
    inner.drain(&slots);
    host.audit().map_err(|e| e.to_string())
}

/// Runs all cases, round by round.
///
/// # Errors
///
/// If a machine cannot be set up, a fault gives the wrong result, or memory is lost.
pub fn run(rounds: u32, sizes: &ZeroWorkload) -> Result<BenchReport, String> {
    let _here = AffinityGuard::here().map_err(|e| format!("cannot stay on one CPU: {e}"))?;
    let bytes = (sizes.cold as u64 * PAGE * 2).max(64 << 20);
    let host =
        Host::<X86_64>::new(HostConfig { bytes, ..HostConfig::default() }).map_err(|e| e.to_string())?;
    let mut bank = Bank::new(host.frames(), host.window(), sizes.cold)?;
    let mut samples = Samples::default();
    let progress = RoundLine::new(rounds);
    for round in 1..=rounds {
        progress.say(round, "clearing");
        clearing(&mut bank, sizes, &mut samples);
        neighbour(&mut bank, sizes, &mut samples);
        progress.say(round, "faults");
        faults(1, ["fault-hot-use1", "fault-cold-use1"], sizes, &mut samples)?;
        faults(64, ["fault-hot-use64", "fault-cold-use64"], sizes, &mut samples)?;
    }
    drop(progress);
    bank.finish();
    host.audit().map_err(|e| e.to_string())?;
    let notes = vec![
        "neighbour: a pass over 256 KiB, per 4 KiB; other cases: per frame.".to_owned(),
        "Faults: cleared-ahead plus the idle work equals the work of cleared-then.".to_owned(),
    ];
    Ok(BenchReport { bench: "zero", arch: None, rows: samples.rows("ns/frame"), reference: ORDINARY, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_for_everybody_in_it() {
        let sizes = ZeroWorkload { hot: 4, cold: 256, turns: 3, pages: 16 };
        let report = run(1, &sizes).expect("a round runs");
        let cases = ["hot", "hot-use64", "cold", "cold-use1", "cold-use8", "cold-use64"];
        for case in cases.into_iter().chain(["later-use1", "later-use8", "later-use64"]) {
            for (way, _) in WAYS {
                assert!(report.value(case, way).is_some_and(|ns| ns > 0.0), "{case} {way}");
            }
        }
        for way in [NOTHING, ORDINARY, NONTEMPORAL] {
            assert!(report.value("neighbour", way).is_some(), "{way}");
        }
        for case in ["fault-hot-use1", "fault-cold-use1", "fault-hot-use64", "fault-cold-use64"] {
            for who in [THEN, AHEAD, WORK] {
                assert!(report.value(case, who).is_some_and(|ns| ns > 0.0), "{case} {who}");
            }
        }
        assert!(report.text().to_string().lines().all(|line| line.chars().count() <= 80));
    }
}
