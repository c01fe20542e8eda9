//! A function that hears of a pool's events besides hits: for metrics.
use super::error::Refusal;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// An event for a [`MetricsHook`]. Hits and turns of the depot are only counted, see
/// [`PoolStats`](super::PoolStats).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoolEvent {
    /// A page came fresh from the host.
    Fresh,
    /// Memory went back to the host.
    Returned {
        /// Pages whose memory went back.
        pages: usize,
        /// Calls of the host that it took: one for each run of neighbours.
        calls: usize,
    },
    /// A page was asked for, and the pool was exhausted.
    Full {
        /// Bytes of pages that are handed out.
        in_use: usize,
        /// Bytes of pages that rest in magazines of other threads.
        cached: usize,
    },
    /// The host refused something. The pool goes on without, or the caller got the same as an
    /// error.
    Refused(Refusal),
    /// A stack was dropped by code that runs on it. It stays out until the pool ends.
    StillInUse {
        /// The lowest address of the stack.
        base: usize,
    },
}

/// A function that a pool calls when something other than a hit happens.
///
/// It runs on the thread to which it happens, in slow paths only. It must not use the pool that
/// calls it: a thread without magazines of its own would wait for itself. A panic in it is caught
/// and forgotten.
///
/// ```
/// use ptarmigan_pool::{MetricsHook, PagePool, PoolConfig, PoolEvent};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fresh = Arc::new(AtomicUsize::new(0));
/// let counter = fresh.clone();
/// let hook = MetricsHook::new(move |event| {
///     if let PoolEvent::Fresh = event {
///         counter.fetch_add(1, Relaxed);
///     }
/// });
/// let pool = PagePool::stacks(PoolConfig { hook: Some(hook), ..PoolConfig::stacks(64 << 10, 100) })?;
/// drop(pool.page()?); // from the host
/// drop(pool.page()?); // the same stack again
/// assert_eq!(fresh.load(Relaxed), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MetricsHook(Arc<dyn Fn(&PoolEvent) + Send + Sync>);

impl MetricsHook {
    /// Makes a hook of a function.
    pub fn new(function: impl Fn(&PoolEvent) + Send + Sync + 'static) -> Self {
        MetricsHook(Arc::new(function))
    }

    pub(super) fn tell(&self, event: &PoolEvent) {
        let _ = catch_unwind(AssertUnwindSafe(|| (self.0)(event)));
    }
}

impl fmt::Debug for MetricsHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsHook")
    }
}
