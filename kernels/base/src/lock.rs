//! A spin lock under which something stays masked.

use core::ops::{Deref, DerefMut};

use ptarmigan::sync::{SpinLock, SpinLockGuard};

/// A lock around its data.
pub struct Lock<T>(SpinLock<T>);

impl<T> Lock<T> {
    /// Makes an unlocked value.
    pub const fn new(value: T) -> Self {
        Lock(SpinLock::new(value))
    }

    /// Takes the lock. The guard keeps `masked`, which goes after the lock has been given back.
    ///
    /// The caller must not hold it already: it would wait for itself.
    #[inline]
    pub fn lock<M>(&self, masked: M) -> Guard<'_, T, M> {
        Guard { value: self.0.lock(), _masked: masked }
    }
}

/// The right to use the data that a lock guards.
pub struct Guard<'a, T, M> {
    value: SpinLockGuard<'a, T>,
    /// Dropped after the lock has been released.
    _masked: M,
}

impl<T, M> Deref for Guard<'_, T, M> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, M> DerefMut for Guard<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
