//! Atomics and locks. What the models of concurrency replace is named here once.
pub(crate) mod cell;
#[cfg(loom)]
mod model;
mod spin;

pub use spin::{SpinLock, SpinLockGuard};

/// The atomics of `core`; those of the model checker when the library is built for it (`--cfg loom`).
pub mod atomic {
    #[cfg(loom)]
    pub use super::model::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
    #[cfg(all(not(loom), target_has_atomic = "64"))]
    pub(crate) use core::sync::atomic::AtomicU64;
    pub use core::sync::atomic::Ordering;
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, fence};
}

/// After many turns of a wait, lets others run: hosted, whoever holds a lock may be a thread that has lost its processor.
#[inline(always)]
pub(crate) fn relent(turns: u32) {
    #[cfg(all(feature = "hosted", not(loom)))]
    if turns > 100 {
        std::thread::yield_now();
    }
    let _ = turns;
}

/// One turn of a wait that needs nothing of the machine.
#[inline(always)]
pub fn spin() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
