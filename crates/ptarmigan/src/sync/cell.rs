//! A cell that protocols guard. In models each use of it is checked: two uses of which one writes,
//! and of which neither comes before the other, are a data race, however the schedule went.

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// `core`'s `UnsafeCell`, used in the steps of loom's, which stands here in models.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    #[inline]
    pub const fn new(value: T) -> Self {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Hands over a pointer to read through.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Hands over a pointer to write through.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
