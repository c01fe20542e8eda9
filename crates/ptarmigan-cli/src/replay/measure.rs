//! A policy that is watched: every call timed, counted and written down.
use super::clock::Clock;
use super::hooked::Hooks;
use hdrhistogram::Histogram;
use ptarmigan::addr::{FRAME_SIZE, PhysAddr};
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, NoFrame};
use ptarmigan::page::{Clean, Layout, Level, MAX_LEVELS};
use ptarmigan::quicklist::Policy;
use std::sync::{Mutex, MutexGuard};

/// One call of a policy, to be made again without the rest of the replay.
#[derive(Clone, Copy)]
pub enum Call {
    /// A page of a level, kept as number `slot`.
    Alloc {
        /// The level.
        level: u8,
        /// The CPU.
        cpu: u16,
        /// The number.
        slot: u32,
    },
    /// The page is given back.
    Free {
        /// The level.
        level: u8,
        /// The CPU.
        cpu: u16,
        /// The number.
        slot: u32,
    },
    /// The end of a gather.
    GatherEnd(u16),
    /// The CPU is idle.
    Idle(u16),
}

/// What single calls of one level took.
#[derive(Clone)]
pub struct Times {
    /// In nanoseconds.
    pub histogram: Histogram<u64>,
    /// Sum, in nanoseconds.
    pub total: f64,
    /// Least.
    pub min: f64,
}

impl Times {
    fn new() -> Self {
        // A second is more than any call takes; three digits are enough.
        let histogram = Histogram::new_with_bounds(1, 1_000_000_000, 3)
            .unwrap_or_else(|e| unreachable!("constant bounds: {e}"));
        Times { histogram, total: 0.0, min: f64::INFINITY }
    }
}

/// What was written down.
pub struct Log {
    /// All calls in order.
    pub calls: Vec<Call>,
    /// By level.
    pub times: Vec<Times>,
    /// Numbers of the pages that are out, by address.
    slots: std::collections::HashMap<u64, u32>,
    free: Vec<u32>,
    /// Numbers ever in use at the same time.
    pub slots_used: u32,
    /// Tables in use, and the most there were.
    pub live: u64,
    /// The most there were.
    pub peak_live: u64,
    /// Bytes in tables, and the most there were.
    bytes: u64,
    /// The most there were.
    pub peak_bytes: u64,
    /// The most that the policy kept for later, in bytes.
    pub peak_cached: u64,
}

/// Watches a policy.
pub struct Measured {
    layout: Layout,
    clock: Clock,
    log: Mutex<Log>,
}

impl Measured {
    /// Nothing written down yet.
    pub fn new(layout: Layout, clock: Clock) -> Self {
        let log = Log {
            calls: Vec::new(),
            times: (0..MAX_LEVELS).map(|_| Times::new()).collect(),
            slots: Default::default(),
            free: Vec::new(),
            slots_used: 0,
            live: 0,
            peak_live: 0,
            bytes: 0,
            peak_bytes: 0,
            peak_cached: 0,
        };
        Measured { layout, clock, log: Mutex::new(log) }
    }

    /// What has been written down.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn table_bytes(&self, level: Level) -> u64 {
        1 << self.layout.table_shift[level.at()]
    }
}

impl Hooks for Measured {
    fn alloc(
        &self,
        policy: &impl Policy,
        pin: &Pinned<'_>,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Clean, NoFrame> {
        let before = self.clock.now();
        let page = policy.alloc(pin, level, flags);
        let after = self.clock.now();
        let page = page?;
        let ns = self.clock.between(before, after);
        let mut log = self.log();
        let times = &mut log.times[level.at()];
        times.histogram.saturating_record((ns.round() as u64).max(1));
        times.total += ns;
        times.min = times.min.min(ns);
        let slot = log.free.pop().unwrap_or_else(|| {
            log.slots_used += 1;
            log.slots_used - 1
        });
        log.slots.insert(page.addr().0, slot);
        log.calls.push(Call::Alloc { level: level.0, cpu: pin.cpu().0, slot });
        log.live += 1;
        log.peak_live = log.peak_live.max(log.live);
        log.bytes += self.table_bytes(level);
        log.peak_bytes = log.peak_bytes.max(log.bytes);
        Ok(page)
    }

    fn freed(&self, pin: &Pinned<'_>, level: Level, at: PhysAddr) {
        let mut log = self.log();
        let slot = log.slots.remove(&at.0).unwrap_or_default();
        log.free.push(slot);
        log.calls.push(Call::Free { level: level.0, cpu: pin.cpu().0, slot });
        log.live -= 1;
        log.bytes -= self.table_bytes(level);
    }

    fn flushed(&self, policy: &impl Policy) {
        let cached = policy.counts().cached() as u64 * FRAME_SIZE as u64;
        let mut log = self.log();
        log.peak_cached = log.peak_cached.max(cached);
    }

    fn gather_end(&self, policy: &impl Policy, pin: &Pinned<'_>) {
        self.flushed(policy);
        self.log().calls.push(Call::GatherEnd(pin.cpu().0));
    }

    fn idle(&self, pin: &Pinned<'_>) {
        self.log().calls.push(Call::Idle(pin.cpu().0));
    }
}
