//! A spin lock for the slow paths: the depot of a node, the buddy allocator of a zone, the kernel map.
use super::cell::UnsafeCell;
use crate::sync::atomic::{AtomicBool, Ordering};
use core::ops::{Deref, DerefMut};

/// A test-and-test-and-set lock around `T`. Never held across a call to code outside this library.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached through `SpinLockGuard` only, and the lock gives out one guard at a time; so
// sharing the lock moves `T` between threads, never shares it.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// The right to use the locked value; gives the lock back when dropped.
pub struct SpinLockGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> SpinLock<T> {
    /// An unlocked value.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// An unlocked value.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        while self.held.swap(true, Ordering::Acquire) {
            let mut turns = 0;
            while self.held.load(Ordering::Relaxed) {
                super::spin();
                turns += 1;
                super::relent(turns);
            }
        }
        SpinLockGuard { lock: self }
    }
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock and nobody else reaches the value.
        self.lock.value.with(|p| unsafe { &*p })
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes the reference exclusive within this thread too.
        self.lock.value.with_mut(|p| unsafe { &mut *p })
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}
