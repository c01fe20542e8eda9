//! A value that is made once, at boot.
//!
//! ```text
//!  boot CPU      set ── value written ── made = true, release ──┐
//!  other CPUs                                                   └──> get: made, acquire ── value
//!  too early     get: made is false ──> missing: a panic
//! ```
//!
//! # Why
//!
//! Statics of a kernel cannot be made by the compiler, because they hold memory that is found at
//! boot. `get` is one load and no lock. A value that is used too early must stop the kernel with a
//! message: otherwise it would run on with memory that was never written.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// A value that is made once, at boot, and then only read.
pub struct OnceCell<T> {
    made: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: it is written once, before `made` says so, and only read after.
unsafe impl<T: Send + Sync> Sync for OnceCell<T> {}

impl<T> OnceCell<T> {
    /// Makes a place without a value.
    pub const fn new() -> Self {
        OnceCell { made: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Makes the value.
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

    /// Returns the value; panics if boot has not made it yet.
    #[inline]
    pub fn get(&self) -> &T {
        if !self.made.load(Ordering::Acquire) {
            missing();
        }
        // SAFETY: `made` says that it was written, and it is not written again.
        unsafe { (*self.value.get()).assume_init_ref() }
    }
}

#[cold]
#[inline(never)]
fn missing() -> ! {
    panic!("a part of the kernel is used before boot has made it")
}
