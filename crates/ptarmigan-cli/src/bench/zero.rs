//! Clearing frames: through the caches and past them, right before their use and ahead of it.
//!
//! Three questions. What clearing a frame costs (`hot`: the same few frames again and again; `cold`: frames that no cache
//! holds, in random order), and what it costs with a use of some of its lines right afterwards (`cold-use…`), or much later
//! (`later-…`: clearing many frames, then using each; both together). What it does to a neighbour whose working
//! set fits the second-level cache (`neighbour`: one pass over that, after 256 KiB were cleared). And what a fault costs whose page
//! had to be cleared (`cleared-then`) or was cleared ahead, outside the clock (`cleared-ahead`), with the list of free
//! frames still in the cache (`fault-hot-…`) or not (`fault-cold-…`).
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::X86_64;
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Frames, Request, Zero, ZoneClass};
use ptarmigan::hosted::{Host, HostConfig, HostMachine, NoTlb};
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan::table::Machine;
use ptarmigan::window::{DirectMap, Window, WindowGuard};

use super::host::Pinned;
use super::report::{Report, Samples};
use crate::progress::Rounds;
use crate::replay::clock::thread_time;

type F = X86_64;

const PAGE: u64 = 4096;
const LINE: usize = 64;
const ORDINARY: &str = "ordinary";
const NONTEMPORAL: &str = "non-temporal";
const NOTHING: &str = "no clearing";
const THEN: &str = "cleared-then";
const AHEAD: &str = "cleared-ahead";
/// The clearing itself, which `cleared-ahead` leaves to an idle moment.
const WORK: &str = "idle work";

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Frames that fit the second-level cache.
    pub hot: usize,
    /// Frames that fit no cache.
    pub cold: usize,
    /// Times that short cases are repeated in a round.
    pub turns: usize,
    /// Pages of a process that ends, and of the one that comes next.
    pub pages: u64,
}

impl Sizes {
    /// For results.
    pub const FULL: Sizes = Sizes { hot: 32, cold: 49_152, turns: 200, pages: 256 };
}

/// Frames with memory, by turns owned and cleared.
struct Bank<'h> {
    frames: &'h Frames,
    window: DirectMap,
    held: Vec<Option<Frame<Dirty>>>,
}

type Clear = fn(Frame<Dirty>, &DirectMap) -> Frame<Zero>;

const WAYS: [(&str, Clear); 2] = [(ORDINARY, Frame::clear), (NONTEMPORAL, Frame::clear_nontemporal)];

impl<'h> Bank<'h> {
    /// `n` frames in random order, each of which has been written to.
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
            bank.held.push(Some(frame.dirty().clear(&bank.window).dirty()));
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
    #[inline(always)]
    fn clear(&mut self, of: std::ops::Range<usize>, clear: Clear, lines: usize) {
        for held in &mut self.held[of] {
            if let Some(frame) = held.take() {
                let frame = clear(frame, &self.window).dirty();
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

#[inline(always)]
fn write(window: &DirectMap, frame: &Frame<Dirty>, lines: usize) {
    let guard = window.map(frame.addr());
    for line in 0..lines.min(PAGE as usize / LINE) {
        // SAFETY: the frame is borrowed from its owner, on one thread, and its content may be anything; the guard is
        // valid for all of it.
        unsafe { guard.base().as_ptr().add(line * LINE).write_volatile(1) };
    }
}

/// Nanoseconds of processor time for each of `n`.
fn time(n: usize, work: impl FnOnce()) -> f64 {
    let start = thread_time();
    work();
    (thread_time() - start).as_nanos() as f64 / n as f64
}

/// Clearing alone and with use, of frames that no cache holds.
fn clearing(bank: &mut Bank<'_>, sizes: &Sizes, samples: &mut Samples) {
    let Sizes { hot, cold, turns, .. } = *sizes;
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

/// A neighbour's pass over its working set after frames were cleared that it has nothing to do with.
fn neighbour(bank: &mut Bank<'_>, sizes: &Sizes, samples: &mut Samples) {
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

/// Bursts of faults, the pages of which come from a process that has ended.
fn faults(
    lines: usize,
    names: [&'static str; 2],
    sizes: &Sizes,
    samples: &mut Samples,
) -> Result<(), String> {
    let config = HostConfig { bytes: 1 << 30, touch_data: true, use_lines: lines, ..HostConfig::default() };
    let host = Host::<F>::new(config).map_err(|e| e.to_string())?;
    let m = HostMachine::new(&host, host.quicklists().map_err(|e| e.to_string())?, NoTlb)
        .map_err(|e| e.to_string())?;
    let slots = host.slots();
    let pin = slots.first().ok_or("no CPU")?.pin();
    let area = VirtRange { start: 0x40_0000_0000, end: 0x40_0000_0000 + sizes.pages * PAGE };
    let pages = sizes.pages as usize;
    // More than the caches hold, to drive out what they hold.
    let mut other = vec![0_u64; sizes.cold * PAGE as usize / 8 / 2];
    let mut one = |ahead: bool, cold: bool| -> Result<(f64, f64), String> {
        let (mut ns, mut work) = (0.0, 0.0);
        let turns = if cold { sizes.turns.div_ceil(20) } else { sizes.turns };
        let mut fresh = 0;
        for _ in 0..turns {
            let mut space = Space::<F>::new(&m, &pin).map_err(|e| e.to_string())?;
            space.mmap(&m, &pin, area, AreaFlags(3), 0).map_err(|e| e.to_string())?;
            if cold {
                other.iter_mut().step_by(LINE / 8).for_each(|word| *word += 1);
            }
            if ahead {
                work += time(pages, || while m.clear_ahead(&pin, 16) > 0 {});
            }
            ns += time(pages, || {
                for va in (area.start..area.end).step_by(PAGE as usize) {
                    fresh +=
                        usize::from(space.fault(&m, &pin, VirtAddr(va), Access::Write) == Ok(Done::Fresh));
                }
            });
            space.end(&m, &pin);
        }
        if fresh != turns * pages {
            return Err(format!("{fresh} of {} faults", turns * pages));
        }
        Ok((ns / turns as f64, work / turns as f64))
    };
    // The first time, frames come from the zones: not counted.
    one(false, false)?;
    for (case, cold) in names.into_iter().zip([false, true]) {
        samples.add(case, THEN, "", one(false, cold)?.0);
        let (ns, work) = one(true, cold)?;
        samples.add(case, AHEAD, "", ns);
        samples.add(case, WORK, "", work);
    }
    m.drain(&slots);
    host.audit().map_err(|e| e.to_string())
}

/// Runs all cases, round by round.
///
/// # Errors
///
/// If a machine cannot be set up, a fault was not served as it should be, or memory did not come back.
pub fn run(rounds: u32, sizes: &Sizes) -> Result<Report, String> {
    let _here = Pinned::here().map_err(|e| format!("cannot stay on one CPU: {e}"))?;
    let bytes = (sizes.cold as u64 * PAGE * 2).max(64 << 20);
    let host = Host::<F>::new(HostConfig { bytes, ..HostConfig::default() }).map_err(|e| e.to_string())?;
    let mut bank = Bank::new(host.frames(), host.window(), sizes.cold)?;
    let mut samples = Samples::default();
    let progress = Rounds::new(rounds);
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
        "neighbour: a pass over 256 KiB, for each 4 KiB; the others: for each frame.".to_owned(),
        "Faults: cleared-ahead and the idle work together do what cleared-then does.".to_owned(),
    ];
    Ok(Report { bench: "zero", rows: samples.rows("ns/frame"), reference: ORDINARY, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_for_everybody_in_it() {
        let sizes = Sizes { hot: 4, cold: 256, turns: 3, pages: 16 };
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
        assert!(report.plain().lines().all(|line| line.chars().count() <= 80));
    }
}
