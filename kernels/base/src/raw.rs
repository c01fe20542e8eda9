//! Memory that is reached through a pointer.

use core::cell::UnsafeCell;

/// A value that is reached through a pointer alone: a stack, a table that the CPU reads by itself,
/// data of one CPU or task.
#[repr(C, align(128))]
pub struct Raw<T>(UnsafeCell<T>);

// SAFETY: 1. It is read and written through `get` alone, of which the callers answer.
unsafe impl<T> Sync for Raw<T> {}

impl<T> Raw<T> {
    /// Holds a value.
    pub const fn new(value: T) -> Self {
        Raw(UnsafeCell::new(value))
    }

    /// Returns where it is.
    #[inline]
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}
