//! How far workers have come, and how they wait for each other.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// What one worker writes and others wait for, on cache lines of its own. Two lines, as processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Milestones {
    reached: AtomicU32,
    sleepers: AtomicU32,
}

/// Where those sleep who wait for one worker.
#[derive(Default)]
struct Waiters {
    lock: Mutex<()>,
    wake: Condvar,
}

/// The milestones of a crew of workers.
pub struct Progress {
    milestones: Vec<Milestones>,
    waiters: Vec<Waiters>,
    stopped: AtomicBool,
    looks: u32,
}

/// The replay was stopped by another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Looks at a post before sleeping, where each worker has a processor to itself: a millisecond or two. Most waits are
/// over by then, and who sleeps wakes up tens of microseconds late, again and again on the longest path of the order.
const LOOKS: u32 = 50_000;
/// The same where workers share processors: what is waited for may have to run first.
const LOOKS_SHARED: u32 = 20;

impl Progress {
    /// For `workers` workers.
    pub fn new(workers: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Progress {
            milestones: (0..workers).map(|_| Milestones::default()).collect(),
            waiters: (0..workers).map(|_| Waiters::default()).collect(),
            stopped: AtomicBool::new(false),
            looks: if workers > processors { LOOKS_SHARED } else { LOOKS },
        }
    }

    /// `worker` has reached its next post; only it may say so.
    #[inline]
    pub fn advance(&self, worker: usize) {
        let own = &self.milestones[worker];
        own.reached.store(own.reached.load(Ordering::Relaxed) + 1, Ordering::Release);
        // Post first, then look for sleepers; they say that they sleep first, then look at the post.
        fence(Ordering::SeqCst);
        if own.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake(worker);
        }
    }

    #[cold]
    fn wake(&self, worker: usize) {
        let waiters = &self.waiters[worker];
        // With the lock: whoever has looked and found nothing is asleep by now.
        drop(waiters.lock.lock().unwrap_or_else(PoisonError::into_inner));
        waiters.wake.notify_all();
    }

    /// Whether `worker` has reached its post number `number`.
    #[inline(always)]
    pub fn is_reached(&self, worker: usize, number: u32) -> bool {
        self.milestones[worker].reached.load(Ordering::Acquire) >= number
    }

    /// Looks for a while whether `worker` has reached its post number `number`; calls `meanwhile` again and again. False
    /// if it has not.
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

    /// Sleeps until `worker` has reached its post number `number`, or the replay is stopped.
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

    /// Everybody who waits is told to give up.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        (0..self.waiters.len()).for_each(|worker| self.wake(worker));
    }

    /// Whether somebody called [`stop`](Self::stop).
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn who_waits_wakes_up_when_the_post_is_reached_or_the_replay_is_stopped() {
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
