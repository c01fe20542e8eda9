//! One lock for all watches, held by the thread whose store is being checked.
//!
//! ```text
//!  SIGSEGV   Held::new ── page writable, trap flag ── keep ─┐   the handler returns, locked
//!  the store                                                │   one instruction of the code
//!  SIGTRAP                           take_over <────────────┘   compare the page ── drop: free
//! ```
//!
//! # Why
//!
//! While a page is writable for one instruction, a second thread could store to it unseen. So a
//! step holds the lock from its first signal to its second: the handler returns with the lock held.
//! It is recursive, because a store made while the thread holds the sanitizer must not wait for
//! itself.
//!
//! It spins, because signal handlers take it: a mutex of the standard library is not made for that.
//! They wait at most for one store and the sanitizer's work on it, or for one call of a hook.
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

/// The thread that holds the lock, 0 if it is free.
static OWNER: AtomicUsize = AtomicUsize::new(0);
/// How often that thread holds it. Only the owner reads or writes it.
static DEPTH: AtomicU32 = AtomicU32::new(0);

std::thread_local! {
    // Needs neither initialisation nor a destructor, so a signal handler may use it.
    static HERE: u8 = const { 0 };
}

/// Returns a number that no other running thread has.
pub(super) fn this_thread() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The lock, held until this is dropped.
pub(super) struct WatchLock(());

impl WatchLock {
    pub(super) fn new() -> Self {
        let me = this_thread();
        if OWNER.load(Relaxed) == me {
            DEPTH.store(DEPTH.load(Relaxed) + 1, Relaxed);
            return Self(());
        }
        while OWNER.compare_exchange_weak(0, me, Acquire, Relaxed).is_err() {
            std::thread::yield_now();
        }
        DEPTH.store(1, Relaxed);
        Self(())
    }

    /// Keeps the lock beyond the end of a signal handler, until the handler at the end of the step
    /// takes it over.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }

    /// Takes over the lock that [`WatchLock::keep`] left to this thread.
    ///
    /// # Safety
    /// This thread kept the lock and has not taken it over since.
    pub(super) unsafe fn take_over() -> Self {
        debug_assert!(is_mine());
        Self(())
    }
}

impl Drop for WatchLock {
    fn drop(&mut self) {
        let depth = DEPTH.load(Relaxed) - 1;
        DEPTH.store(depth, Relaxed);
        if depth == 0 {
            OWNER.store(0, Release);
        }
    }
}

/// Returns whether this thread holds the lock.
pub(super) fn is_mine() -> bool {
    OWNER.load(Relaxed) == this_thread()
}
