//! The cases with two threads, each pinned to its own processor, by wall-clock time.
//!
//! ```text
//!  meet       arrived + 1 ── spin until all have ──> window begins ── … ── window ends
//!  producer   place in the ring ── put, release ──┐       ┌── got: acquire, room?
//!  consumer   put: acquire <──────────────────────┘       └── free ── got, release
//! ```
//!
//! # Why
//!
//! Threads wait for each other without sleeping, because threads that sleep do not start together:
//! the first one would run alone for a part of the window. Pages go from one thread to the other in
//! groups through a ring with one writer for each end, so that the ring costs little beside the
//! allocators.
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use super::apart::Apart;
use super::cases::{batch, give, pairs, per, take};
use super::contender::{PageContender, Pages, RING, Workload, short};
use crate::affinity::AffinityGuard;
use crate::stats::median;

/// Pages that enter or leave the ring at once.
const GROUP: usize = 64;
pub(super) const THREADS: usize = 2;

/// A barrier for the threads of one measurement.
struct Meeting {
    threads: usize,
    arrived: Apart<AtomicUsize>,
    failed: AtomicBool,
}

impl Meeting {
    fn of(threads: usize) -> Self {
        Meeting { threads, arrived: Apart::default(), failed: AtomicBool::new(false) }
    }

    /// Waits until `ready` returns true. Returns `None` if the other thread has failed.
    #[inline]
    fn wait(&self, mut ready: impl FnMut() -> bool) -> Option<()> {
        let mut looks = 0_u32;
        while !ready() {
            if self.failed.load(Ordering::Relaxed) {
                return None;
            }
            looks += 1;
            // If both share one processor, the other thread needs it.
            if looks.is_multiple_of(1 << 10) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        Some(())
    }

    /// Waits until all threads have arrived `times` times.
    fn meet(&self, times: usize) -> Option<()> {
        self.arrived.0.fetch_add(1, Ordering::AcqRel);
        self.wait(|| self.arrived.0.load(Ordering::Acquire) >= times * self.threads)
    }
}

/// Start and end of a window.
type Window = (Instant, Instant);

/// Runs `work` on `threads` threads, each as its own CPU, window by window. Returns the median over
/// the windows of the time from the first start to the last end, in nanoseconds per one of
/// `operations`.
fn windows<C: PageContender>(
    contender: &C,
    threads: usize,
    sizes: &Workload,
    operations: usize,
    work: impl Fn(usize, &mut C::Cpu<'_>, &Meeting) -> Option<()> + Sync,
) -> Result<f64, String> {
    let meeting = Meeting::of(threads);
    let one = |t: usize| -> Result<Vec<Window>, String> {
        let _place = AffinityGuard::on(t).map_err(|e| format!("cannot stay on one CPU: {e}"))?;
        let mut cpu = contender.cpu(t)?;
        let mut window = |times| {
            meeting.meet(times)?;
            let start = Instant::now();
            work(t, &mut cpu, &meeting)?;
            Some((start, Instant::now()))
        };
        (1..=sizes.windows + 1).map(|times| window(times).ok_or_else(short)).collect()
    };
    let one = |t| one(t).inspect_err(|_| meeting.failed.store(true, Ordering::Relaxed));
    let times = thread::scope(|scope| {
        let one = &one;
        let spawned: Vec<_> = (0..threads).map(|t| scope.spawn(move || one(t))).collect();
        spawned
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err("a thread failed".to_string())))
            .collect::<Result<Vec<_>, String>>()
    })?;
    // The first window warms up.
    let values = (1..=sizes.windows).filter_map(|n| {
        let start = times.iter().map(|windows| windows[n].0).min()?;
        let end = times.iter().map(|windows| windows[n].1).max()?;
        Some(per(end - start, operations))
    });
    Ok(median(values))
}

/// Runs `two-threads`, or the same work by one thread alone. Returns nanoseconds per page allocated
/// and freed, per thread.
///
/// # Errors
///
/// If a thread cannot be a CPU, or there are not enough pages.
pub(super) fn apart<C: PageContender>(
    contender: &C,
    threads: usize,
    sizes: &Workload,
) -> Result<f64, String> {
    windows(contender, threads, sizes, 2 * sizes.batch * sizes.batches, |_, cpu, _| {
        let mut held = vec![None; sizes.batch];
        (0..sizes.batches).try_for_each(|_| {
            pairs(cpu, sizes.batch)?;
            batch(cpu, &mut held)
        })
    })
}

/// A ring of page numbers on their way from one thread to the other.
struct HandoverRing {
    places: Box<[AtomicU64]>,
    put: Apart<AtomicUsize>,
    got: Apart<AtomicUsize>,
}

impl HandoverRing {
    fn new() -> Self {
        let places = (0..RING).map(|_| AtomicU64::new(0)).collect();
        HandoverRing { places, put: Apart::default(), got: Apart::default() }
    }

    /// Allocates pages and puts them in, a group at a time.
    fn produce(&self, pages: &mut impl Pages, groups: usize, meeting: &Meeting) -> Option<()> {
        let mut put = self.put.0.load(Ordering::Relaxed);
        for _ in 0..groups {
            meeting.wait(|| put - self.got.0.load(Ordering::Acquire) <= RING - GROUP)?;
            for at in put..put + GROUP {
                self.places[at % RING].store(take(pages)?.get(), Ordering::Relaxed);
            }
            put += GROUP;
            self.put.0.store(put, Ordering::Release);
        }
        Some(())
    }

    /// Takes pages out and frees them, a group at a time.
    fn consume(&self, pages: &mut impl Pages, groups: usize, meeting: &Meeting) -> Option<()> {
        let mut got = self.got.0.load(Ordering::Relaxed);
        for _ in 0..groups {
            meeting.wait(|| self.put.0.load(Ordering::Acquire) - got >= GROUP)?;
            for at in got..got + GROUP {
                let page = NonZeroU64::new(self.places[at % RING].load(Ordering::Relaxed))?;
                // SAFETY: 1. `produce` took the page from the same contender and gave it away by
                // putting it here. Each place is read once for each write.
                unsafe { give(pages, page) };
            }
            got += GROUP;
            self.got.0.store(got, Ordering::Release);
        }
        Some(())
    }
}

/// Runs `producer-consumer`. Returns nanoseconds per page passed from one thread to the other.
///
/// # Errors
///
/// If a thread cannot be a CPU, or there are not enough pages.
pub(super) fn passed<C: PageContender>(contender: &C, sizes: &Workload) -> Result<f64, String> {
    let ring = HandoverRing::new();
    let groups = sizes.passed.div_ceil(GROUP);
    windows(contender, THREADS, sizes, groups * GROUP, |t, cpu, meeting| {
        if t == 0 { ring.produce(cpu, groups, meeting) } else { ring.consume(cpu, groups, meeting) }
    })
}
