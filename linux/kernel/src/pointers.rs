//! Pointers to records in frames of their own, by number.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Where each of `N` things is. Its users say when a place may be used.
pub struct Pointers<T, const N: usize>([AtomicPtr<T>; N]);

impl<T, const N: usize> Pointers<T, N> {
    /// Makes a table without places.
    pub const fn new() -> Self {
        Pointers([const { AtomicPtr::new(null_mut()) }; N])
    }

    /// Says where a new one is. The kernel lock is held, which orders this before every use.
    pub(crate) fn set(&self, number: usize, place: *mut T) {
        self.0[number % N].store(place, Ordering::Relaxed);
    }

    /// Returns where one is; null if it has not been there yet.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> *mut T {
        self.0[number % N].load(Ordering::Relaxed)
    }
}
