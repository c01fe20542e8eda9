//! A policy that is watched: every call timed, counted and written down.
use hdrhistogram::Histogram;
use ptarmigan::addr::{FRAME_SIZE, PhysAddr};
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Layout, Level, MAX_LEVELS};
use ptarmigan::quicklist::{Layer, Policy};
use ptarmigan_bench::clock::Clock;
use std::sync::{Mutex, MutexGuard};

/// One call of a policy, as logged for the stream.
#[derive(Clone, Copy)]
pub enum PolicyCall {
    /// Allocates a table page, which gets number `slot`.
    Alloc {
        /// The level.
        level: u8,
        /// The CPU.
        cpu: u16,
        /// The number of the page.
        slot: u32,
    },
    /// Frees a page.
    Free {
        /// The level.
        level: u8,
        /// The CPU.
        cpu: u16,
        /// The number of the page.
        slot: u32,
    },
    /// Ends a gather on a CPU.
    GatherEnd(u16),
    /// A CPU is idle.
    Idle(u16),
}

/// Times of single calls for one level.
#[derive(Clone)]
pub struct LevelTimes {
    /// The distribution, in nanoseconds.
    pub histogram: Histogram<u64>,
    /// The minimum, in nanoseconds.
    pub min: f64,
}

impl Default for LevelTimes {
    fn default() -> Self {
        // No call takes longer than a second, and three digits are enough.
        let histogram = Histogram::new_with_bounds(1, 1_000_000_000, 3)
            .unwrap_or_else(|e| unreachable!("constant bounds: {e}"));
        LevelTimes { histogram, min: f64::INFINITY }
    }
}

impl LevelTimes {
    /// Adds the time of a call, in nanoseconds.
    pub fn record(&mut self, ns: f64) {
        self.histogram.saturating_record((ns.round() as u64).max(1));
        self.min = self.min.min(ns);
    }
}

/// The log of a policy's calls.
pub struct CallLog {
    /// All calls, in order.
    pub calls: Vec<PolicyCall>,
    /// Times by level.
    pub times: Vec<LevelTimes>,
    /// The numbers of allocated pages, by address.
    slots: std::collections::HashMap<u64, u32>,
    free: Vec<u32>,
    /// The most numbers in use at once.
    pub slots_used: u32,
    /// Tables allocated now.
    pub live: u64,
    /// The most tables allocated at once.
    pub peak_live: u64,
    /// Bytes in tables now.
    bytes: u64,
    /// The most bytes in tables at once.
    pub peak_bytes: u64,
    /// The most bytes cached by the policy.
    pub peak_cached: u64,
    /// Bytes cached from some call on, as its index in `calls`, each time that they had changed.
    pub cached: Vec<(u32, u64)>,
}

/// Watches a policy.
pub struct Measured<'a> {
    frames: &'a Frames,
    layout: Layout,
    clock: Clock,
    log: Mutex<CallLog>,
}

impl<'a> Measured<'a> {
    /// Makes an instrument without records.
    pub fn new(frames: &'a Frames, layout: Layout, clock: Clock) -> Self {
        let log = CallLog {
            calls: Vec::new(),
            times: (0..MAX_LEVELS).map(|_| LevelTimes::default()).collect(),
            slots: Default::default(),
            free: Vec::new(),
            slots_used: 0,
            live: 0,
            peak_live: 0,
            bytes: 0,
            peak_bytes: 0,
            peak_cached: 0,
            cached: Vec::new(),
        };
        Measured { frames, layout, clock, log: Mutex::new(log) }
    }

    /// Locks the log.
    pub fn log(&self) -> MutexGuard<'_, CallLog> {
        self.log.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes how much `policy` keeps.
    fn look(&self, policy: &impl Policy) {
        let cached = policy.counts().cached() as u64 * FRAME_SIZE as u64;
        let mut log = self.log();
        log.peak_cached = log.peak_cached.max(cached);
        if log.cached.last().map_or(0, |(_, last)| *last) != cached {
            let at = log.calls.len() as u32;
            log.cached.push((at, cached));
        }
    }

    fn table_bytes(&self, level: Level) -> u64 {
        1 << self.layout.table_shift[level.at()]
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for Measured<'_> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.frames)
    }

    fn alloc(
        &self,
        _: &P,
        pin: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let before = self.clock.now();
        let page = inner();
        let after = self.clock.now();
        let page = page?;
        let ns = self.clock.between(before, after);
        let mut log = self.log();
        log.times[level.at()].record(ns);
        let slot = log.free.pop().unwrap_or_else(|| {
            log.slots_used += 1;
            log.slots_used - 1
        });
        log.slots.insert(page.addr().0, slot);
        log.calls.push(PolicyCall::Alloc { level: level.0, cpu: pin.cpu().0, slot });
        log.live += 1;
        log.peak_live = log.peak_live.max(log.live);
        log.bytes += self.table_bytes(level);
        log.peak_bytes = log.peak_bytes.max(log.bytes);
        Ok(page)
    }

    fn freeing(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
        let mut log = self.log();
        let slot = log.slots.remove(&at.0).unwrap_or_default();
        log.free.push(slot);
        log.calls.push(PolicyCall::Free { level: level.0, cpu: pin.cpu().0, slot });
        log.live -= 1;
        log.bytes -= self.table_bytes(level);
    }

    fn after_flushed(&self, policy: &P, _: &Pinned<'_>) {
        self.look(policy);
    }

    fn gather_end(&self, policy: &P, pin: &Pinned<'_>) {
        self.look(policy);
        self.log().calls.push(PolicyCall::GatherEnd(pin.cpu().0));
    }

    fn idle(&self, _: &P, pin: &Pinned<'_>) {
        self.log().calls.push(PolicyCall::Idle(pin.cpu().0));
    }
}
