//! A spin lock.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// A lock around its data.
pub struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: 1. The value is reached through the one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Makes an unlocked value.
    pub const fn new(value: T) -> Self {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. The guard keeps `masked`, which goes after the lock has been given back.
    ///
    /// The caller must not hold it already: it would wait for itself.
    #[inline]
    pub fn lock<M>(&self, masked: M) -> Guard<'_, T, M> {
        while self.held.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        Guard { lock: self, _masked: masked, _one_cpu: PhantomData }
    }
}

/// The right to use the data that a lock guards.
pub struct Guard<'a, T, M> {
    lock: &'a Lock<T>,
    /// Dropped after the lock has been released.
    _masked: M,
    /// The data need not be such as several CPUs may read.
    _one_cpu: PhantomData<*const ()>,
}

impl<T, M> Deref for Guard<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: 1. The guard is the only one.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, M> DerefMut for Guard<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1. The guard is the only one, and borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, M> Drop for Guard<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}
