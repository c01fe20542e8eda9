//! Slots: addresses of the kernel at which one frame at a time can be seen.
use crate::addr::Pfn;
use core::fmt;

/// Slots in a pool or in a set of local maps at most.
pub const MAX_SLOTS: usize = 1 << 16;

/// A frame that is about to be shown in a slot, and the slot.
///
/// A wrapper around [`Slots`] passes it on to the slots inside.
pub struct Install {
    index: usize,
    frame: Pfn,
}

impl Install {
    /// Says that `frame` may be shown in slot `index`.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{addr::Pfn, highmem::{Install, Slots}};
    /// fn show(slots: &impl Slots, frame: Pfn) {
    ///     let _ = slots.install(Install::new(0, frame)); // who uses the slot?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// Of the slots that get it:
    ///
    /// 1. `index` must be below [`len`](Slots::len), and the caller must have the slot for itself.
    /// 2. The slot must show nothing, and every CPU must have forgotten the frame that it showed.
    /// 3. `frame` must be a frame of the memory that the slots were made for.
    #[inline]
    pub unsafe fn new(index: usize, frame: Pfn) -> Self {
        Install { index, frame }
    }

    /// Returns the slot.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the frame.
    #[inline]
    pub fn frame(&self) -> Pfn {
        self.frame
    }
}

/// A slot that is about to show nothing any more.
///
/// A wrapper around [`Slots`] passes it on to the slots inside.
pub struct Remove {
    index: usize,
}

impl Remove {
    /// Says that the frame in slot `index` need not be shown any more.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::highmem::{Remove, Slots};
    /// fn hide(slots: &impl Slots) {
    ///     let _ = slots.remove(Remove::new(0)); // who uses the slot?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// Of the slots that get it:
    ///
    /// 1. `index` must be below [`len`](Slots::len), and the caller must have the slot for itself.
    /// 2. No code may use a pointer that [`address`](Slots::address) has returned for it.
    #[inline]
    pub unsafe fn new(index: usize) -> Self {
        Remove { index }
    }

    /// Returns the slot.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }
}

/// A window of slots of one page each.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. After [`install`](Self::install) of a frame in a slot, [`address`](Self::address) returns a
///    pointer that is valid for reads and writes of that frame, until the slot is
///    [removed](Self::remove) or another frame is installed in it.
/// 2. The addresses of a slot reach no memory but the frame that it shows. Two slots share
///    addresses only while they show the same frame.
/// 3. The MMU finds a slot's entry at the address [`page`](Self::page), if there is an MMU. It
///    finds nothing there for a slot that was removed and that every CPU has forgotten since.
/// 4. [`len`](Self::len), and [`page`](Self::page) of a slot, stay the same.
/// 5. No call unwinds.
/// 6. An [`Install`] or [`Remove`] goes on only to slots whose slot of that number this one is.
pub unsafe trait Slots: Sync {
    /// Returns the number of slots.
    fn len(&self) -> usize;

    /// Returns whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows a frame in a slot, and returns the entry as the format writes it. One store,
    /// where the machine allows it; no flush.
    ///
    /// # Errors
    ///
    /// [`SlotError`], where a slot needs memory of somebody else; the slot is as it was then.
    fn install(&self, install: Install) -> Result<u64, SlotError>;

    /// Shows nothing in a slot any more. CPUs may know the old entry until they are flushed.
    ///
    /// # Errors
    ///
    /// [`SlotError`]; the slot is as it was then.
    fn remove(&self, remove: Remove) -> Result<(), SlotError>;

    /// Returns where the frame in slot `index` is found. Of a slot that shows nothing, or that
    /// there is not, it is any pointer.
    fn address(&self, index: usize) -> *mut u8;

    /// Returns the address for which an MMU looks up slot `index`: what a flush names.
    fn page(&self, index: usize) -> u64;

    /// Returns the binary logarithm of the size of a slot.
    fn shift(&self) -> u32;
}

// SAFETY: 1. to 5. by the slots behind the reference. 6. they are those slots, by the same numbers.
unsafe impl<T: Slots + ?Sized> Slots for &T {
    #[inline]
    fn len(&self) -> usize {
        (**self).len()
    }
    #[inline]
    fn install(&self, install: Install) -> Result<u64, SlotError> {
        (**self).install(install)
    }
    #[inline]
    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        (**self).remove(remove)
    }
    #[inline]
    fn address(&self, index: usize) -> *mut u8 {
        (**self).address(index)
    }
    #[inline]
    fn page(&self, index: usize) -> u64 {
        (**self).page(index)
    }
    #[inline]
    fn shift(&self) -> u32 {
        (**self).shift()
    }
}

/// A slot could not be changed: the machine beneath had no memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotError {
    /// Which slot.
    pub index: usize,
    /// What the machine beneath says, as an error number.
    pub code: i32,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "slot {} could not be changed (error {} of the host): raise its limit of mappings",
            self.index, self.code
        )
    }
}

impl core::error::Error for SlotError {}
