//! A cell that protocols guard. In models each use of it is checked: two uses of which one writes,
//! and of which neither comes before the other, are a data race, however the schedule went.

/// `core`'s `UnsafeCell`, used in steps that a model can see.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T> {
    #[cfg(not(loom))]
    value: core::cell::UnsafeCell<T>,
    #[cfg(loom)]
    value: loom::cell::UnsafeCell<T>,
}

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    #[inline]
    pub const fn new(value: T) -> Self {
        UnsafeCell { value: core::cell::UnsafeCell::new(value) }
    }

    /// Hands over a pointer to read through.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.value.get())
    }

    /// Hands over a pointer to write through.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.value.get())
    }

    #[inline]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

#[cfg(loom)]
impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        UnsafeCell { value: loom::cell::UnsafeCell::new(value) }
    }

    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.value.with(f)
    }

    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.value.with_mut(f)
    }

    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
