//! How far workers have come, and how they wait for each other.
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// A counter on cache lines of its own: one worker writes it, others wait for it. Two lines, as processors fetch them
/// in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Posts(AtomicU32);

/// The posts of a crew of workers.
pub struct Relay {
    posts: Vec<Posts>,
    /// Workers at the end of their programs.
    ended: AtomicUsize,
    stopped: AtomicBool,
}

/// The replay was stopped by another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told;

/// Looks at a counter before the processor is offered to others: about the time that a line takes between two.
const LOOKS: u32 = 100;

impl Relay {
    /// For `workers` workers.
    pub fn new(workers: usize) -> Self {
        Relay {
            posts: (0..workers).map(|_| Posts::default()).collect(),
            ended: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// `worker` has reached its next post; only it may say so.
    #[inline]
    pub fn post(&self, worker: usize) {
        let own = &self.posts[worker].0;
        own.store(own.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Waits until `worker` has reached its post number `number`; calls `meanwhile` again and again.
    ///
    /// # Errors
    /// [`Told`] if the replay is stopped.
    #[inline]
    pub fn wait(&self, worker: usize, number: u32, meanwhile: impl FnMut()) -> Result<(), Told> {
        let reached = || self.posts[worker].0.load(Ordering::Acquire) >= number;
        if reached() { Ok(()) } else { self.wait_for(reached, meanwhile) }
    }

    #[cold]
    fn wait_for(&self, reached: impl Fn() -> bool, mut meanwhile: impl FnMut()) -> Result<(), Told> {
        let mut looks = 0;
        while !reached() {
            if self.is_stopped() {
                return Err(Told);
            }
            meanwhile();
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Everybody who waits is told to give up.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether somebody called [`stop`](Self::stop).
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// A worker does not exist: nobody need wait for its end.
    pub fn absent(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// A worker is at its end, whichever that was. Waits for the others, as they may still ask its CPU for something.
    pub fn end(&self, mut meanwhile: impl FnMut()) {
        self.absent();
        while self.ended.load(Ordering::Acquire) < self.posts.len() {
            meanwhile();
            std::thread::yield_now();
        }
    }
}
