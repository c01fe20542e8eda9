//! What the kernel itself needs of locks: one that masks interrupts, and a value that is made once.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
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

/// A static that is made once, at boot.
pub struct Late<T> {
    made: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: it is written once, before `made` says so, and only read after.
unsafe impl<T: Send + Sync> Sync for Late<T> {}

impl<T> Late<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Late { made: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Makes it.
    ///
    /// # Safety
    ///
    /// 1. It is called once, while one hart runs.
    pub unsafe fn set(&self, value: T) -> &T {
        // SAFETY: nothing reads it before `made` is set, and nobody else writes (point 1).
        let there = unsafe { (*self.value.get()).write(value) };
        self.made.store(true, Ordering::Release);
        there
    }

    /// The value; the machine ends if there is none yet.
    pub fn get(&self) -> &T {
        if !self.made.load(Ordering::Acquire) {
            crate::rt::fail(format_args!("used before it was set up"));
        }
        // SAFETY: `made` says that it was written, and it is not written again.
        unsafe { (*self.value.get()).assume_init_ref() }
    }
}
