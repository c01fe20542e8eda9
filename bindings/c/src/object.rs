//! Objects that the C side allocates.
//!
//! The first word of an object says that it is initialised: a constant of its kind, combined with
//! its own address. So an object that was never initialised, has ended, is of another kind, or was
//! copied to another place, is told by one load and one comparison.
use crate::error::PtError;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The library's content of an object. The word is the first field.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. It is `repr(C)`, and a [`Word`] is its first field.
/// 2. It fits into [`Storage`](Self::Storage), and is no more aligned.
/// 3. No two kinds have the same [`KIND`](Self::KIND), which is odd.
pub unsafe trait Object: Sized {
    /// The storage that C allocates.
    type Storage;
    /// The constant of the kind.
    const KIND: usize;
}

/// The first word of an object.
#[repr(transparent)]
pub struct Word(AtomicUsize);

/// The word of an object of kind `T` at `at`.
#[inline]
fn word<T: Object>(at: *const T::Storage) -> usize {
    // Objects are aligned and kinds are odd: never 0.
    const { assert!(T::KIND & 1 == 1 && align_of::<T::Storage>() >= 2) };
    T::KIND ^ at.addr()
}

/// Finds the object in `storage`.
///
/// # Errors
///
/// [`PtError::Pointer`] and [`PtError::Object`].
///
/// # Safety
///
/// 1. `storage` is NULL, misaligned, or points to memory of the size of `T::Storage` that may be
///    read and that code in C leaves alone meanwhile.
/// 2. If there is such an object, it is not ended while the result is in use.
#[inline(never)]
pub unsafe fn find<'a, T: Object>(storage: *const T::Storage) -> Result<&'a T, PtError> {
    // SAFETY: 1. and 2. passed on.
    unsafe { find_inline(storage) }
}

/// As [`find`], for functions that are called thousands of times a second.
///
/// # Errors
///
/// As for [`find`].
///
/// # Safety
///
/// 1. As for [`find`], 1.
/// 2. As for [`find`], 2.
#[inline]
pub unsafe fn find_inline<'a, T: Object>(storage: *const T::Storage) -> Result<&'a T, PtError> {
    if storage.is_null() || !storage.is_aligned() {
        return Err(PtError::Pointer);
    }
    let object = storage.cast::<T>();
    // SAFETY: it may be read (1.), and a word is its first field (`Object`, 1.).
    let found = unsafe { &*object.cast::<Word>() }.0.load(Ordering::Acquire);
    if found != word::<T>(storage) {
        return Err(PtError::Object);
    }
    // SAFETY: the word says that `finish` has made an object of this kind here, and it stays (2.).
    // All that changes in it are cells and atomics.
    Ok(unsafe { &*object })
}

/// Looks whether an object may be made in `storage`: its first word is 0.
///
/// # Errors
///
/// [`PtError::Pointer`] and [`PtError::Object`].
///
/// # Safety
///
/// 1. As for [`find`].
pub unsafe fn vacant<T: Object>(storage: *mut T::Storage) -> Result<*mut T, PtError> {
    if storage.is_null() || !storage.is_aligned() {
        return Err(PtError::Pointer);
    }
    let object = storage.cast::<T>();
    // SAFETY: as in `find`.
    let found = unsafe { &*object.cast::<Word>() }.0.load(Ordering::Acquire);
    if found == 0 { Ok(object) } else { Err(PtError::Object) }
}

/// Says that the object is initialised.
///
/// # Safety
///
/// 1. All fields of the object have been written, and it is this call's alone.
pub unsafe fn finish<T: Object>(object: *mut T) {
    const { assert!(size_of::<T>() <= size_of::<T::Storage>() && align_of::<T>() <= align_of::<T::Storage>()) };
    // SAFETY: it is the caller's (1.), and a word is its first field.
    unsafe { &*object.cast::<Word>() }.0.store(word::<T>(object.cast()), Ordering::Release);
}

/// Says that the object is not initialised any more.
///
/// # Safety
///
/// 1. The object is this call's alone; no code uses it later.
pub unsafe fn end<T: Object>(object: &T) {
    // SAFETY: a word is the first field (`Object`, 1.), and a cell.
    unsafe { &*(&raw const *object).cast::<Word>() }.0.store(0, Ordering::Release);
}
