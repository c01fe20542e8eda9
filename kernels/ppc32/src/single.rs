//! A value of the one CPU, which takes no interrupts.

use core::cell::{RefCell, RefMut};

use ptarmigan_kernel_base::fail;

/// A value that one function at a time uses.
pub struct Single<T>(RefCell<T>);

// SAFETY: there is one CPU, and handlers of exceptions use no such value.
unsafe impl<T> Sync for Single<T> {}

impl<T> Single<T> {
    /// Holds a value.
    pub const fn new(value: T) -> Self {
        Single(RefCell::new(value))
    }

    /// The value; the machine ends if it is in use.
    pub fn get(&self) -> RefMut<'_, T> {
        self.0.try_borrow_mut().unwrap_or_else(|_| fail(format_args!("a value of the kernel's is in use")))
    }
}
