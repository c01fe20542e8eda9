//! Two clocks: the time-stamp counter for single calls, with its own cost subtracted, and processor
//! time for whole passes.
use std::time::{Duration, Instant};

/// Returns the processor time that this thread has used. Time spent waiting for a processor does
/// not count.
pub fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Converts ticks of the time-stamp counter to nanoseconds.
#[derive(Clone, Copy)]
pub struct Clock {
    ns_per_tick: f64,
    /// The difference of two consecutive readings, in ticks.
    overhead: u64,
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: reading the time-stamp counter has no side effect, and every x86-64 CPU has one.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl Clock {
    /// Calibrates a clock, for 20 ms.
    pub fn calibrate() -> Self {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let ns_per_tick = start.elapsed().as_nanos() as f64 / (ticks() - first).max(1) as f64;
        let mut apart: Vec<u64> = (0..10_001)
            .map(|_| {
                let before = ticks();
                ticks() - before
            })
            .collect();
        apart.sort_unstable();
        Clock { ns_per_tick, overhead: apart[apart.len() / 2] }
    }

    /// Returns a reading, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        ticks()
    }

    /// Returns the nanoseconds between two readings without the clock's own cost; 0 if the cost is
    /// all there was.
    #[inline]
    pub fn between(&self, before: u64, after: u64) -> f64 {
        (after - before).saturating_sub(self.overhead) as f64 * self.ns_per_tick
    }

    /// Returns the clock's own cost in nanoseconds. Shorter times cannot be measured.
    pub fn resolution(&self) -> f64 {
        self.overhead as f64 * self.ns_per_tick
    }
}
