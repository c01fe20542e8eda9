//! A value that is made once and stays: parts of a machine in a static.
//!
//! ```text
//!             compare_exchange            store, release
//!    EMPTY ────────────────────> FILLING ────────────────> FILLED ──> get: load, acquire
//!      ^                            │
//!      └──── an error, a panic ─────┘
//! ```
//!
//! # Why
//!
//! Every call of a kernel reads the machine from its static, so `get` must take no lock: it is one
//! load. Nobody waits for a place that is being filled. A waiter would spin for ever if the code
//! that fills the place were interrupted by the waiter itself. A failed attempt leaves the place
//! empty, so that a kernel can try again with less.
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FILLED: u8 = 2;

/// A place for a value that is filled once. Reading it takes no lock.
///
/// Models set no machine up, so its atomic is `core`'s there too.
pub(crate) struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: `fill` has the value to itself until the state says that it is there, and shared
// references are all that is given out after that.
unsafe impl<T: Send + Sync> Sync for Once<T> {}
// SAFETY: it owns the value.
unsafe impl<T: Send> Send for Once<T> {}

impl<T> Once<T> {
    /// Makes an empty place.
    pub const fn new() -> Self {
        Once { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Fills the place with what `make` returns. `None` if it is filled already, or is being
    /// filled: `make` is not called then.
    ///
    /// # Errors
    ///
    /// Those of `make`. The place is empty then, as it is if `make` unwinds.
    pub fn fill<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Option<Result<&T, E>> {
        self.state.compare_exchange(EMPTY, FILLING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        /// Leaves the place empty, unless it is forgotten.
        struct Empty<'a>(&'a AtomicU8);
        impl Drop for Empty<'_> {
            fn drop(&mut self) {
                self.0.store(EMPTY, Ordering::Release);
            }
        }
        let empty = Empty(&self.state);
        // A call: what it has on the stack is gone when the value is written.
        #[inline(never)]
        fn call<R>(make: impl FnOnce() -> R) -> R {
            make()
        }
        let value = match call(make) {
            Ok(value) => value,
            Err(e) => return Some(Err(e)),
        };
        // SAFETY: the state says that the place is being filled, which one caller at a time makes
        // it say; nothing reads the value before it says more.
        let value = unsafe { (*self.value.get()).write(value) };
        core::mem::forget(empty);
        self.state.store(FILLED, Ordering::Release);
        Some(Ok(value))
    }

    /// Returns the value, if the place is filled.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != FILLED {
            return None;
        }
        // SAFETY: `fill` has written it, and it stays until the place goes.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == FILLED {
            // SAFETY: it was written, and nothing has a reference any more.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn it_is_filled_once_and_an_error_leaves_it_empty() {
        let place = Once::new();
        assert!(place.get().is_none());
        assert_eq!(place.fill(|| Err::<u32, _>("no")), Some(Err("no")));
        assert_eq!(place.fill(|| Ok::<_, ()>(7)), Some(Ok(&7)));
        assert_eq!(place.fill(|| -> Result<u32, ()> { panic!("called") }), None);
        assert_eq!(place.get(), Some(&7));
    }

    #[test]
    fn what_unwinds_leaves_it_empty() {
        let place = Once::<u32>::new();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = place.fill(|| -> Result<u32, ()> { panic!("on purpose") });
        }));
        assert!(unwound.is_err() && place.get().is_none());
        assert_eq!(place.fill(|| Ok::<_, ()>(1)), Some(Ok(&1)));
    }

    #[test]
    fn it_is_not_filled_while_it_is_being_filled() {
        let place = Once::<u32>::new();
        let inner = place.fill(|| {
            assert!(place.fill(|| Ok::<_, ()>(1)).is_none() && place.get().is_none());
            Ok::<_, ()>(2)
        });
        assert_eq!(inner, Some(Ok(&2)));
    }

    #[test]
    fn the_value_goes_with_the_place() {
        let value = Arc::new(());
        let place = Once::new();
        assert!(place.fill(|| Ok::<_, ()>(value.clone())).is_some());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
