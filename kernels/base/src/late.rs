//! A value that is made once, at boot.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::board::fail;

/// A static that is made once, at boot.
pub struct Late<T> {
    made: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: it is written once, before `made` says so, and only read after.
unsafe impl<T: Send + Sync> Sync for Late<T> {}

impl<T> Default for Late<T> {
    fn default() -> Self {
        Late::new()
    }
}

impl<T> Late<T> {
    /// Not made yet.
    pub const fn new() -> Self {
        Late { made: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Makes it.
    ///
    /// # Safety
    ///
    /// 1. It is called once, while one CPU runs.
    pub unsafe fn set(&self, value: T) -> &T {
        // SAFETY: no reader uses the value before `made` is set, and nobody else writes (point 1).
        let there = unsafe { (*self.value.get()).write(value) };
        self.made.store(true, Ordering::Release);
        there
    }

    /// Returns the value; ends the machine if it is not set yet.
    pub fn get(&self) -> &T {
        if !self.made.load(Ordering::Acquire) {
            fail(format_args!("used before it was set up"));
        }
        // SAFETY: `made` says that it was written, and it is not written again.
        unsafe { (*self.value.get()).assume_init_ref() }
    }
}
