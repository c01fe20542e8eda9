//! Objects that the C side allocates.
//!
//! ```text
//!  C         memory, all zero ──> init: the content ── finish: word = KIND ^ address, release
//!  find      word, acquire == KIND ^ address? ── yes ──> the content
//!             └─ no: never made, ended, another kind, or copied ──> an error
//! ```
//!
//! # Why
//!
//! C passes any pointer. The first word of an object says that it is initialised: a constant of its
//! kind, combined with its own address. So an object that was never initialised, has ended, is of
//! another kind, or was copied to another place, is told by one load and one comparison. A flag
//! without the address would accept a copy, and two objects would own the same frames. The word is
//! stored last, so that another CPU that finds it finds the content.
use crate::error::PtError;
use core::marker::PhantomData;
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

/// A parameter of a function for C: a pointer to an object.
///
/// # Invariant
///
/// Code in C makes all of them, and a function gets it as a parameter. It keeps the promises that
/// the header asks for such pointers:
///
/// 1. It is NULL, misaligned, or points to memory of the size of `S` that may be read. Once an
///    object is made there, code in C leaves it alone until the call that ends the object returns.
///    While no object is there, one call at a time uses it, and may write to it.
/// 2. An object there is not ended while `'a` lasts, which is the call, but by the call itself.
/// 3. A `pt_cpu` is of the calling CPU: the caller runs there, alone but for handlers of
///    interrupts, and stays until the call ends.
/// 4. A `pt_gather` is used by one call at a time, on the CPU that has begun it.
/// 5. The `runs` of a `pt_config` are NULL, misaligned, or point to `run_count` runs.
///
/// In the header it is a pointer: tests/header.rs takes the type off.
#[repr(transparent)]
pub struct Arg<'a, S>(*mut S, PhantomData<&'a S>);

impl<S> Clone for Arg<'_, S> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Arg<'_, S> {}

/// An [`Arg`] to which a function does not write: `const` in the header. No object can be made or
/// ended there.
#[repr(transparent)]
pub struct ConstArg<'a, S>(Arg<'a, S>);

impl<'a, S> ConstArg<'a, S> {
    /// As [`Arg::find`].
    ///
    /// # Errors
    ///
    /// As for [`Arg::find`].
    pub fn find<T: Object<Storage = S>>(&self) -> Result<&'a T, PtError> {
        self.0.find()
    }

    /// Returns the pointer.
    pub fn as_ptr(&self) -> *const S {
        self.0.0
    }

    /// As [`Arg::lasting`].
    ///
    /// # Safety
    ///
    /// 1. As for [`Arg::lasting`].
    pub unsafe fn lasting(self) -> ConstArg<'static, S> {
        // SAFETY: 1. passed on.
        ConstArg(unsafe { self.0.lasting() })
    }
}

/// An [`Arg`] of a function that ends the object.
///
/// # Invariant
///
/// As for [`Arg`], and no other code uses the object from the call on, if that ends it.
#[repr(transparent)]
pub struct LastArg<'a, S>(Arg<'a, S>);

impl<'a, S> LastArg<'a, S> {
    /// As [`Arg::find`].
    ///
    /// # Errors
    ///
    /// As for [`Arg::find`].
    pub fn find<T: Object<Storage = S>>(&self) -> Result<&'a T, PtError> {
        self.0.find()
    }

    /// Returns the parameter as one of functions that do not end the object.
    pub fn as_arg(&self) -> Arg<'a, S> {
        self.0
    }

    /// Says that the object is not initialised any more.
    pub fn end<T: Object<Storage = S>>(self) {
        if let Ok(object) = self.find::<T>() {
            // SAFETY: a word is the first field (`Object`, 1.), and a cell.
            unsafe { &*(&raw const *object).cast::<Word>() }.0.store(0, Ordering::Release);
        }
    }
}

impl<'a, S> Arg<'a, S> {
    /// Finds the object.
    ///
    /// # Errors
    ///
    /// [`PtError::Pointer`] and [`PtError::Object`].
    #[inline]
    pub fn find<T: Object<Storage = S>>(&self) -> Result<&'a T, PtError> {
        // SAFETY: 1. and 2. by the type's invariant.
        unsafe { find(self.0) }
    }

    /// As [`find`](Self::find), for functions that are called thousands of times a second.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find).
    #[inline]
    pub fn find_inline<T: Object<Storage = S>>(&self) -> Result<&'a T, PtError> {
        // SAFETY: 1. and 2. by the type's invariant.
        unsafe { find_inline(self.0) }
    }

    /// Looks whether an object may be made there: the first word is 0.
    ///
    /// # Errors
    ///
    /// [`PtError::Pointer`] and [`PtError::Object`].
    pub fn vacant<T: Object<Storage = S>>(&self) -> Result<*mut T, PtError> {
        if self.0.is_null() || !self.0.is_aligned() {
            return Err(PtError::Pointer);
        }
        let object = self.0.cast::<T>();
        // SAFETY: it may be read (invariant, 1.), and a word is its first field (`Object`, 1.).
        let found = unsafe { &*object.cast::<Word>() }.0.load(Ordering::Acquire);
        if found == 0 { Ok(object) } else { Err(PtError::Object) }
    }

    /// Returns the address.
    pub fn addr(&self) -> usize {
        self.0.addr()
    }

    /// Returns the parameter for longer than the call.
    ///
    /// # Safety
    ///
    /// 1. While the result is in use, the object must not end, and the call's invariant must hold.
    pub unsafe fn lasting(self) -> Arg<'static, S> {
        Arg(self.0, PhantomData)
    }
}

/// A parameter of a function for C: a pointer to where it writes an answer.
///
/// # Invariant
///
/// As for [`Arg`]: it is NULL, misaligned, or may be written during the call.
#[repr(transparent)]
pub struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Out<'_, T> {
    /// Refuses a pointer that [`put`](Self::put) would refuse.
    ///
    /// # Errors
    ///
    /// [`PtError::Pointer`].
    pub fn check(&self) -> Result<(), PtError> {
        if self.0.is_null() || !self.0.is_aligned() { Err(PtError::Pointer) } else { Ok(()) }
    }

    /// Writes an answer.
    ///
    /// # Errors
    ///
    /// [`PtError::Pointer`].
    pub fn put(self, value: T) -> Result<(), PtError> {
        self.check()?;
        // SAFETY: it may be written (invariant).
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Finds the object in `storage`.
///
/// # Safety
///
/// 1. `storage` is as the invariant of [`Arg`] says.
/// 2. If there is such an object, it is not ended while the result is in use.
#[inline(never)]
unsafe fn find<'a, T: Object>(storage: *const T::Storage) -> Result<&'a T, PtError> {
    // SAFETY: 1. and 2. passed on.
    unsafe { find_inline(storage) }
}

/// As [`find`].
///
/// # Safety
///
/// 1. and 2. As for [`find`].
#[inline]
unsafe fn find_inline<'a, T: Object>(storage: *const T::Storage) -> Result<&'a T, PtError> {
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
    // Atomics change in it, and cells that one thread at a time uses: those of a CPU and of a
    // gather (invariant of `Arg`, 3. and 4.), and that of a tree, in its turn.
    Ok(unsafe { &*object })
}

/// Says that the object is initialised.
///
/// # Safety
///
/// 1. All fields of the object have been written, and it is this call's alone.
pub unsafe fn finish<T: Object>(object: *mut T) {
    const { assert!(size_of::<T>() <= size_of::<T::Storage>() && align_of::<T>() <= align_of::<T::Storage>()) };
    // SAFETY: it is the caller's (1.), and a word is its first field (`Object`, 1.).
    unsafe { &*object.cast::<Word>() }.0.store(word::<T>(object.cast()), Ordering::Release);
}
