//! The kernel's own lock, which masks interrupts.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::irq;

/// A spin lock; interrupts are masked while it is held. Never held across a wait for another hart.
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// An unlocked value.
    pub const fn new(value: T) -> Self {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for it.
    pub fn lock(&self) -> LockGuard<'_, T> {
        let masked = irq::Masked::new();
        while self.held.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        LockGuard { lock: self, _masked: masked }
    }
}

/// The right to use the value.
pub struct LockGuard<'a, T> {
    lock: &'a Lock<T>,
    // Dropped after the lock has been given up.
    _masked: irq::Masked,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only one, and borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}
