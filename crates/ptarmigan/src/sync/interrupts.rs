//! Keeps interrupt handlers out of locks.
//!
//! ```text
//!  code      save ─── lock ─── value ─── drop: unlock ─── restore
//!  handler    │<───────────── masked ───────────────────────>│ runs, and may take the lock
//!  another CPU       swap: held ─ load ─ load ─> lock
//! ```
//!
//! # Why
//!
//! A handler that waits for a lock which the interrupted code holds would wait for ever: that code
//! goes on only when the handler has returned. So interrupts are masked before the lock is waited
//! for, not after it is taken, and come back after it is released.
//!
//! The functions are installed at run time, because programs must not pay for them, and kernels
//! mask interrupts by different means. Without a mask a lock costs one more relaxed load.
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The two functions with which a kernel masks interrupts around the library's locks.
#[derive(Clone, Copy, Debug)]
pub struct InterruptMask {
    /// Masks interrupts on the calling CPU, and returns the state that [`restore`](Self::restore)
    /// needs.
    pub save: fn() -> usize,
    /// Undoes the call of [`save`](Self::save) on this CPU that returned this word.
    pub restore: fn(usize),
}

/// Interrupts are masked by another pair of functions already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyInstalled;

impl fmt::Display for AlreadyInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("locks mask interrupts already: install the functions once, before other CPUs start")
    }
}

impl core::error::Error for AlreadyInstalled {}

/// Null until a mask is installed. Not an atomic of the model checker: it changes once, before
/// there is concurrency.
static INSTALLED: AtomicPtr<InterruptMask> = AtomicPtr::new(ptr::null_mut());

/// Makes all locks of the library mask interrupts with `mask` while they are held.
///
/// A kernel needs this if handlers of interrupts call the library: a handler that waits for a lock
/// that the code it interrupted holds waits for ever. Without it, locks leave interrupts alone,
/// which is right for programs, and for kernels whose handlers do not call the library or that call
/// it with interrupts masked.
///
/// Interrupts are masked before a lock is waited for, and come back after it is released, also when
/// a panic unwinds. Locks nest; the library releases them in reverse order. Callers that release
/// [`SpinLock`](super::SpinLock)s of their own in another order install functions that count the
/// depth on each CPU.
///
/// # Errors
///
/// [`AlreadyInstalled`] at the second call; the first mask stays then.
///
/// # Safety
///
/// 1. Between `save` and the `restore` that belongs to it, no handler that calls the library runs
///    on the CPU, and the code that called `save` stays there.
/// 2. Neither function unwinds or calls the library.
/// 3. No lock of the library is held, and no other CPU calls the library, while this function runs.
pub unsafe fn install_interrupt_mask(mask: &'static InterruptMask) -> Result<(), AlreadyInstalled> {
    let mask = ptr::from_ref(mask).cast_mut();
    INSTALLED
        .compare_exchange(ptr::null_mut(), mask, Ordering::Release, Ordering::Relaxed)
        .map_or(Err(AlreadyInstalled), |_| Ok(()))
}

/// Interrupts are masked until it is dropped, if the machine wants that.
pub(super) struct Masked {
    by: Option<&'static InterruptMask>,
    word: usize,
}

impl Masked {
    /// Masks interrupts. One relaxed load without an installed mask.
    #[inline]
    pub fn now() -> Self {
        let mask = INSTALLED.load(Ordering::Relaxed);
        if mask.is_null() { Masked { by: None, word: 0 } } else { Self::by(mask) }
    }

    #[cold]
    fn by(mask: *mut InterruptMask) -> Self {
        core::sync::atomic::fence(Ordering::Acquire);
        // SAFETY: `install_interrupt_mask` stored it, and had a reference to it for ever. The fence
        // makes earlier stores visible.
        let mask = unsafe { &*mask };
        Masked { by: Some(mask), word: (mask.save)() }
    }
}

impl Drop for Masked {
    #[inline]
    fn drop(&mut self) {
        if let Some(mask) = self.by {
            (mask.restore)(self.word);
        }
    }
}
