//! Atomics and locks. The parts that models of concurrency replace are named here, and nowhere
//! else.
//!
//! # Why
//!
//! Models (loom) run the library's own code, so that a model cannot differ from it. They replace
//! the atomics: with `--cfg loom` each name in [`atomic`] is the model's type. Code must therefore
//! name atomics through this module. One that is named from `core` is invisible to the model
//! checker, and says at its place why no model has to see it.
//!
//! ```text
//!                              ┌─> core::sync::atomic     kernels and programs
//!  library ──> sync::atomic ───┤
//!                              └─> model, cfg(loom)       models: all orders of loads and stores
//! ```
pub(crate) mod cell;
mod interrupts;
#[cfg(loom)]
#[path = "../../tests/models/atomics.rs"]
mod model;
pub(crate) mod once;
mod spin;

pub use interrupts::{AlreadyInstalled, InterruptMask, install_interrupt_mask};
pub use spin::{SpinLock, SpinLockGuard};

/// The atomics of `core`, or of the model checker when the library is built for it (`--cfg loom`).
pub mod atomic {
    #[cfg(loom)]
    pub use super::model::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, fence};
    #[cfg(all(not(loom), target_has_atomic = "64"))]
    pub(crate) use core::sync::atomic::AtomicU64;
    pub use core::sync::atomic::Ordering;
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, fence};
}

/// A sequentially consistent fence, to be called right after a read-modify-write of that order. On
/// x86 such an instruction is a full barrier itself, so this holds back the compiler only.
#[inline]
pub(crate) fn fence_after_rmw() {
    #[cfg(all(any(target_arch = "x86", target_arch = "x86_64"), not(loom)))]
    core::sync::atomic::compiler_fence(atomic::Ordering::SeqCst);
    #[cfg(any(not(any(target_arch = "x86", target_arch = "x86_64")), loom))]
    atomic::fence(atomic::Ordering::SeqCst);
}

/// Lets other threads run after many turns of a wait: in a process, the thread that holds a lock
/// may have lost its processor.
#[inline]
pub(crate) fn relent(turns: u32) {
    #[cfg(all(feature = "std", not(loom)))]
    if turns > 100 {
        std::thread::yield_now();
    }
    let _ = turns;
}

/// Waits for one turn, without help of the machine. The CPU says that it waits, so that an
/// emulator, or a processor with several threads, may run another one.
#[inline]
pub fn spin() {
    // `core` waits with an `isb` there: a delay, from which nobody learns that the CPU waits.
    #[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
    // SAFETY: 1. A hint, which changes neither registers nor memory.
    unsafe {
        core::arch::asm!("yield", options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
