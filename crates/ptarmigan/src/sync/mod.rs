//! Atomics and locks. What the models of concurrency replace is named here once.
mod spin;

pub use spin::{SpinLock, SpinLockGuard};

/// The atomics of `core`; those of the model checker when the library is built for it (`--cfg loom`).
pub mod atomic {
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering, fence};
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering, fence};
}

/// One turn of a wait that needs nothing of the machine.
#[inline(always)]
pub fn spin() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
