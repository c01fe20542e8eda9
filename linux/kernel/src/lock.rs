//! The kernel lock.
//!
//! ```text
//!  CPU 0   held.swap(true): false ── value ── flush: asks CPU 1 ──┐   ┌── drop: held = false
//!  CPU 1   held.swap(true): true ── spin ──────────────── serve <─┘ ──┘
//!                                                         (answers the flush, and goes on waiting)
//! ```
//!
//! # Why
//!
//! One lock is enough for a kernel that shows what the library costs: system calls are short, and
//! faults do not take it. Interrupts are masked in the kernel, so a CPU that only spun would not
//! answer a flush. The holder of the lock may be the CPU that flushes: without `serve` both would
//! wait for ever.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::Arch;
use crate::{Kernel, State};

/// A lock around its data. Interrupts are masked in the kernel, so no handler takes it.
pub struct KernelLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: 1. The value is reached through the one guard at a time.
unsafe impl<T: Send> Sync for KernelLock<T> {}

impl<T> KernelLock<T> {
    /// Makes an unlocked value.
    pub const fn new(value: T) -> Self {
        KernelLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
}

/// The right to use the data that the kernel lock guards.
pub struct KernelGuard<'a> {
    lock: &'a KernelLock<State>,
}

impl<A: Arch> Kernel<A> {
    /// Takes the kernel lock. A CPU that waits serves others meanwhile.
    ///
    /// The caller does not hold it already: it would wait for itself.
    #[inline]
    pub fn lock(&'static self) -> KernelGuard<'static> {
        while self.lock.held.swap(true, Ordering::Acquire) {
            self.serve();
            ptarmigan::sync::spin();
        }
        KernelGuard { lock: &self.lock }
    }
}

impl Deref for KernelGuard<'_> {
    type Target = State;
    #[inline]
    fn deref(&self) -> &State {
        // SAFETY: 1. The guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl DerefMut for KernelGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: 1. The guard is the only one, and borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl Drop for KernelGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}
