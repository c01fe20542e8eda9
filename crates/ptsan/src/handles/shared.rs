//! One sanitizer for code on several threads.
//!
//! ```text
//!  thread 0   lock of the table ── store ── hook: entry_written ── unlock ─┐
//!  thread 1                                                               └─> lock ── reads, walks
//!  sanitizer            one lock, innermost: hook after hook, in the order of the events
//! ```
//!
//! # Why
//!
//! The sanitizer's state is one history of all CPUs: a debt of one CPU begins with a store of
//! another one. A lock for each CPU could not order them, so every hook takes one lock for its
//! whole length. The hook must be called before other threads can act on the event, because the
//! sanitizer believes the order in which it is told. See [`Shared`] for the order of hooks and of
//! locks.
#[cfg(doc)]
use crate::memory::Memory;
use crate::state::{Config, Sanitizer};
use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};

/// A handle on a sanitizer. Clones share the sanitizer, and every thread may call its hooks.
///
/// # Order of hooks
///
/// The sanitizer believes that things happened in the order in which hooks took its lock. So call a
/// hook before any other thread can act on its news:
///
/// * a store and its hook, under the lock that guards the table;
/// * the hook of an invalidation, on the CPU that carried it out and before it acknowledges;
/// * `table_freed`, before the frame can be allocated again.
///
/// Where the code under test leaves two things unordered, either order is right.
///
/// # Lock order
///
/// The sanitizer's lock is the innermost: a hook takes it, reads memory, and releases it. A
/// [`Memory`] may take a lock of its own only if no thread holds that lock while it calls a hook. A
/// [`Memory`] must not call hooks of the same sanitizer.
///
/// A thread that panics inside a hook leaves the sanitizer usable.
/// ```
/// use ptsan::{Arch, Config, Content, Kind, Shared};
///
/// let san = Shared::new(Config::new(Arch::x86_64()));
/// let memory = vec![0u8; 8192];
/// std::thread::scope(|threads| {
///     for _ in 0..2 {
///         threads.spawn(|| san.table_allocated(&memory, 0x1000, 4096, None, Content::Zero));
///     }
/// });
/// assert_eq!(san.count(Kind::DoubleAllocate), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    sanitizer: Mutex<Sanitizer>,
    cpus: Mutex<HashMap<ThreadId, usize>>,
    /// Where a scheduler may run another task: before a CPU's own actions.
    point: Option<Point>,
}

/// A scheduler's business: state after a panic in it is not the sanitizer's.
type Point = AssertUnwindSafe<Box<dyn Fn() + Send + Sync>>;

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Inner");
        fields.field("sanitizer", &self.sanitizer).field("scheduled", &self.point.is_some()).finish()
    }
}

impl Shared {
    /// Creates a machine whose CPUs have no root loaded.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::from_parts(config, None)
    }

    /// Creates a machine for tasks of a scheduler that explores interleavings, such as `shuttle` or
    /// `loom`. All tasks run on one thread of the operating system.
    ///
    /// `point` lets the scheduler run another task. A relaxed increment of a counter that all tasks
    /// share will do, with an atomic of the scheduler. It is called before each hook, without the
    /// lock, except before hooks of stores: these and the store stay one step.
    ///
    /// A [`Memory`] must read without such a point, and a guard of [`Shared::lock`] must not live
    /// across one. [`Shared::here`] and [`Shared::run_on`] go by threads of the operating system,
    /// so give hooks the number of the CPU.
    /// ```
    /// use ptsan::{Arch, Config, Content, Shared};
    /// use shuttle::sync::{Arc, Mutex, atomic::AtomicU64};
    /// use std::sync::atomic::Ordering::Relaxed;
    ///
    /// shuttle::check_random(|| {
    ///     let steps = AtomicU64::new(0);
    ///     let point = move || _ = steps.fetch_add(1, Relaxed);
    ///     let san = Shared::scheduled(Config::new(Arch::x86_64()), point);
    ///     let free = Arc::new(Mutex::new(vec![0x1000, 0x2000])); // the code under test
    ///     let its = san.clone();
    ///     let take = move || {
    ///         let frame = free.lock().unwrap().pop().unwrap();
    ///         its.table_allocated(&vec![0u8; 1 << 14], frame, 4096, None, Content::Zero);
    ///     };
    ///     let other = shuttle::thread::spawn(take.clone());
    ///     take();
    ///     other.join().unwrap();
    ///     san.assert_clean();
    /// }, 100);
    /// ```
    #[must_use]
    pub fn scheduled(config: Config, point: impl Fn() + Send + Sync + 'static) -> Self {
        Self::from_parts(config, Some(AssertUnwindSafe(Box::new(point))))
    }

    /// Returns whether tasks of a scheduler share it.
    pub(super) fn is_scheduled(&self) -> bool {
        self.inner.point.is_some()
    }

    fn from_parts(config: Config, point: Option<Point>) -> Self {
        let sanitizer = Mutex::new(Sanitizer::new(config));
        Self { inner: Arc::new(Inner { sanitizer, cpus: Mutex::default(), point }) }
    }

    /// Locks the sanitizer, for calls that are not repeated here. Hooks of other threads wait while
    /// the guard lives.
    ///
    /// # Panics
    /// Panics if the machine is [scheduled](Shared::scheduled) and another task holds the lock: the
    /// thread would wait for itself.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, Sanitizer> {
        if self.is_scheduled() {
            return match self.inner.sanitizer.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => panic!(
                    "ptsan: a task was switched while it held the sanitizer; keep no guard of \
                     Shared::lock, and let no Memory::read, reach the scheduler"
                ),
            };
        }
        self.inner.sanitizer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the sanitizer for a hook that is a step of its own.
    #[track_caller]
    pub(super) fn step(&self) -> MutexGuard<'_, Sanitizer> {
        if let Some(point) = &self.inner.point {
            (point.0)();
        }
        self.lock()
    }

    /// Returns the CPU that stands for this thread: the one given to [`Shared::run_on`], else the
    /// lowest that no thread has.
    #[must_use]
    pub fn here(&self) -> usize {
        let mut cpus = self.inner.cpus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&cpu) = cpus.get(&thread::current().id()) {
            return cpu;
        }
        let free = (0..=cpus.len()).find(|c| !cpus.values().any(|taken| taken == c)).unwrap_or_default();
        cpus.insert(thread::current().id(), free);
        free
    }

    /// Makes this thread stand for the CPU from now on, as when a thread migrates.
    pub fn run_on(&self, cpu: usize) {
        let mut cpus = self.inner.cpus.lock().unwrap_or_else(PoisonError::into_inner);
        cpus.insert(thread::current().id(), cpu);
    }
}
