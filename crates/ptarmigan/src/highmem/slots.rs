//! Slots: addresses of the kernel at which one frame at a time can be seen.
use crate::addr::Pfn;
use core::fmt;

/// Slots in a pool or in a set of local maps at most.
pub const MAX_SLOTS: usize = 1 << 16;

/// A window of slots of one page each.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. After [`install`](Self::install) of a frame in a slot, [`address`](Self::address) returns a
///    pointer that is valid for reads and writes of that frame, until the slot is
///    [removed](Self::remove) or another frame is installed in it.
/// 2. Slots do not share addresses with each other or with anything else.
/// 3. The MMU finds a slot's entry at the address [`page`](Self::page), if there is an MMU. It
///    finds nothing there for a slot that was removed and that every CPU has forgotten since.
/// 4. [`len`](Self::len), and [`page`](Self::page) of a slot, stay the same.
/// 5. No call unwinds.
pub unsafe trait Slots: Sync {
    /// Returns the number of slots.
    fn len(&self) -> usize;

    /// Returns whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows `frame` in slot `index`, and returns the entry as the format writes it. One store,
    /// where the machine allows it; no flush.
    ///
    /// # Errors
    ///
    /// [`SlotError`], where a slot needs memory of somebody else; the slot is as it was then.
    ///
    /// # Safety
    ///
    /// 1. `index` is below [`len`](Self::len), and the caller has the slot for itself.
    /// 2. The slot shows nothing, and every CPU has forgotten what it showed.
    /// 3. `frame` is a frame of the memory that the slots were made for.
    unsafe fn install(&self, index: usize, frame: Pfn) -> Result<u64, SlotError>;

    /// Shows nothing in slot `index` any more. CPUs may know the old entry until they are flushed.
    ///
    /// # Errors
    ///
    /// [`SlotError`]; the slot is as it was then.
    ///
    /// # Safety
    ///
    /// 1. `index` is below [`len`](Self::len), and the caller has the slot for itself.
    /// 2. Nothing uses a pointer that [`address`](Self::address) has returned for it.
    unsafe fn remove(&self, index: usize) -> Result<(), SlotError>;

    /// Returns where the frame in slot `index` is found. Of a slot that shows nothing, or that
    /// there is not, it is any pointer.
    fn address(&self, index: usize) -> *mut u8;

    /// Returns the address for which an MMU looks up slot `index`: what a flush names.
    fn page(&self, index: usize) -> u64;

    /// Returns the binary logarithm of the size of a slot.
    fn shift(&self) -> u32;
}

// SAFETY: 1. to 5. by the slots behind the reference; contracts are passed on.
unsafe impl<T: Slots + ?Sized> Slots for &T {
    #[inline]
    fn len(&self) -> usize {
        (**self).len()
    }
    #[inline]
    unsafe fn install(&self, index: usize, frame: Pfn) -> Result<u64, SlotError> {
        // SAFETY: 1. to 3. by the caller.
        unsafe { (**self).install(index, frame) }
    }
    #[inline]
    unsafe fn remove(&self, index: usize) -> Result<(), SlotError> {
        // SAFETY: 1. and 2. by the caller.
        unsafe { (**self).remove(index) }
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
