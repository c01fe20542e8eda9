//! Tracks the progress of each worker, and lets workers wait for each other.
//!
//! # Protocol
//!
//! A milestone is a point in a worker's program that another worker waits for. Each worker numbers
//! its milestones from 1 and stores the number of the last one that it has reached. A worker that
//! waits spins for a while and then sleeps:
//!
//! 1. A sleeper registers, executes a sequentially consistent fence, and then loads the number.
//! 2. A worker stores the number, executes the fence, and then looks for sleepers.
//!
//! So either the sleeper sees the new number, or the worker sees the sleeper and wakes it.
//!
//! ```text
//!  worker                                  sleeper
//!  advance: reached + 1 ── fence ──┐   ┌── sleepers + 1 ── fence
//!                                   ╳
//!  sleepers > 0? wake      <───────┘   └─> reached >= number? else wait
//! ```
//!
//! # Why
//!
//! Workers pass thousands of milestones a second, and hardly anybody sleeps. So `advance` must be a
//! store, a fence and a load of the worker's own lines; a mutex would make every worker wait at
//! every milestone. Waits are mostly shorter than a wake-up, so that a worker spins first. Where
//! workers share processors it spins for a moment only, because the awaited worker may need its
//! processor.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// The state that one worker writes and others read. Aligned to two cache lines, as processors
/// fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Milestones {
    reached: AtomicU32,
    sleepers: AtomicU32,
}

/// The workers that sleep until one worker reaches a milestone.
#[derive(Default)]
struct Waiters {
    lock: Mutex<()>,
    wake: Condvar,
}

/// The progress of all workers.
pub struct Progress {
    milestones: Vec<Milestones>,
    waiters: Vec<Waiters>,
    stopped: AtomicBool,
    looks: u32,
}

/// Another worker has stopped the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Loads before a worker sleeps, where each worker has its own processor: one to two milliseconds.
/// Most waits are shorter, and a sleeper wakes tens of microseconds late, each time on the longest
/// path of the schedule.
const LOOKS: u32 = 50_000;
/// Loads before a worker sleeps, where workers share processors: the awaited worker may need this
/// one's.
const LOOKS_SHARED: u32 = 20;

impl Progress {
    /// Creates the state of `workers` workers.
    pub fn new(workers: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Progress {
            milestones: (0..workers).map(|_| Milestones::default()).collect(),
            waiters: (0..workers).map(|_| Waiters::default()).collect(),
            stopped: AtomicBool::new(false),
            looks: if workers > processors { LOOKS_SHARED } else { LOOKS },
        }
    }

    /// Marks the next milestone of `worker` as reached. Only the thread of `worker` calls this.
    #[inline]
    pub fn advance(&self, worker: usize) {
        let own = &self.milestones[worker];
        own.reached.store(own.reached.load(Ordering::Relaxed) + 1, Ordering::Release);
        // The number is stored before this fence, sleepers are looked for after it; see the
        // protocol.
        fence(Ordering::SeqCst);
        if own.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake(worker);
        }
    }

    #[cold]
    fn wake(&self, worker: usize) {
        let waiters = &self.waiters[worker];
        // A sleeper that has found the old number under the lock is waiting by the time the lock is
        // free.
        drop(waiters.lock.lock().unwrap_or_else(PoisonError::into_inner));
        waiters.wake.notify_all();
    }

    /// Returns whether `worker` has reached milestone `number`.
    #[inline]
    pub fn is_reached(&self, worker: usize, number: u32) -> bool {
        self.milestones[worker].reached.load(Ordering::Acquire) >= number
    }

    /// Spins until `worker` has reached milestone `number` or the replay is stopped, and calls
    /// `meanwhile` each time around. Returns false if neither happens for long.
    pub fn spin(&self, worker: usize, number: u32, meanwhile: impl Fn()) -> bool {
        for _ in 0..self.looks {
            if self.is_reached(worker, number) || self.is_stopped() {
                return true;
            }
            meanwhile();
            std::hint::spin_loop();
        }
        false
    }

    /// Sleeps until `worker` has reached milestone `number` or the replay is stopped.
    pub fn sleep(&self, worker: usize, number: u32) {
        let (milestones, waiters) = (&self.milestones[worker], &self.waiters[worker]);
        let mut lock = waiters.lock.lock().unwrap_or_else(PoisonError::into_inner);
        milestones.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !self.is_reached(worker, number) && !self.is_stopped() {
            lock = waiters.wake.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        milestones.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Stops the replay and wakes all sleepers.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        (0..self.waiters.len()).for_each(|worker| self.wake(worker));
    }

    /// Returns whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn waiters_wake_at_the_milestone_or_when_stopped() {
        let progress = Progress::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=2000 {
                    if !progress.spin(1, number, || {}) {
                        progress.sleep(1, number);
                    }
                    assert!(progress.is_reached(1, number));
                    progress.advance(0);
                }
                progress.sleep(1, 2001);
                assert!(!progress.is_reached(1, 2001) && progress.is_stopped());
            });
            for number in 1..=2000 {
                progress.advance(1);
                progress.sleep(0, number);
            }
            progress.stop();
        });
    }
}
