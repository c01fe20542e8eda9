//! A spin lock for the slow paths: the depot of a node, the buddy allocator of a zone, the kernel
//! map.
//!
//! ```text
//!  CPU 0   masked ── swap(true): false ── value ── held.store(false, Release) ── restored
//!                                                       │
//!  CPU 1   masked ── swap(true): true ── load, load … <─┘ ── swap(true): false ── value
//! ```
//!
//! # Why
//!
//! A waiting CPU reads the word until it is free, and only then swaps again. A loop of swaps would
//! take the cache line from the holder at each turn, so that the holder releases later. A fair lock
//! (tickets, a queue) would be longer and slower where nobody waits, which is nearly always:
//! sections are some tens of instructions, and hits take no lock at all.
use super::cell::UnsafeCell;
use super::interrupts::Masked;
use crate::sync::atomic::{AtomicBool, Ordering};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

/// A test-and-test-and-set lock around `T`. The library holds no lock across a call to code outside
/// of it.
///
/// Where the machine wants it ([`install_interrupt_mask`](super::install_interrupt_mask)),
/// interrupts are masked from before the lock is waited for until after it is released.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached through `SpinLockGuard` only, and the lock gives out one guard at a
// time; so sharing the lock moves `T` between threads, never shares it.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// The right to use the locked value; releases the lock when dropped.
///
/// It is not `Send`, as interrupts are masked on the CPU that took the lock. A reference to it is
/// one to the value, so it is `Sync` only where the value is:
///
/// ```compile_fail,E0277
/// use ptarmigan::sync::SpinLock;
/// use std::cell::Cell;
/// let lock = SpinLock::new(Cell::new(0));
/// let guard = lock.lock();
/// std::thread::scope(|s| {
///     s.spawn(|| guard.set(1)); // `Cell<i32>` cannot be shared between threads
///     guard.set(2);
/// });
/// ```
pub struct SpinLockGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// Dropped after the lock has been released.
    _masked: Masked,
    _stay: PhantomData<*const T>,
}

// SAFETY: through a shared guard there are only shared references to the value, which `T: Sync`
// allows to share.
unsafe impl<T: Sync> Sync for SpinLockGuard<'_, T> {}

impl<T> SpinLock<T> {
    /// Makes an unlocked value.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Makes an unlocked value.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        let masked = Masked::now();
        let is_free = !self.held.swap(true, Ordering::Acquire);
        is_free.then(|| SpinLockGuard { lock: self, _masked: masked, _stay: PhantomData })
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        // First, so that no handler runs here that would wait for a lock this CPU holds.
        let masked = Masked::now();
        while self.held.swap(true, Ordering::Acquire) {
            let mut turns = 0;
            while self.held.load(Ordering::Relaxed) {
                super::spin();
                turns += 1;
                super::relent(turns);
            }
        }
        SpinLockGuard { lock: self, _masked: masked, _stay: PhantomData }
    }
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock and no other code reaches the
        // value.
        self.lock.value.with(|p| unsafe { &*p })
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes the reference exclusive within this thread too.
        self.lock.value.with_mut(|p| unsafe { &mut *p })
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
    }
}
