//! Memory for the library's own tables (frame metadata, per-CPU lists), taken once at start-up.
//!
//! The library uses no heap. Whoever sets it up hands over one block of memory, and every part carves its arrays
//! from it. `bytes` functions of the parts say how much each needs.
use core::fmt;
use core::marker::PhantomData;
use core::mem::{align_of, size_of};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// A block of memory from which arrays are carved, never to be given back.
pub struct BootMemory {
    next: usize,
    end: usize,
    base: NonNull<u8>,
}

/// The block was too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootMemoryShort {
    /// Bytes asked for, alignment included.
    pub wanted: usize,
    /// Bytes that were left.
    pub left: usize,
}

impl fmt::Display for BootMemoryShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot memory is too small: {} bytes asked for, {} left", self.wanted, self.left)
    }
}

impl core::error::Error for BootMemoryShort {}

impl BootMemory {
    /// Takes over the block of `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// 1. The block is valid for reads and writes and nobody else uses it, for as long as this value or any
    ///    [`BootSlice`] carved from it is used.
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        BootMemory { next: 0, end: len, base }
    }

    /// Carves an array of `n` elements, each made by `make` from its index.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the block has not that much left; nothing is taken then.
    pub fn take<T>(
        &mut self,
        n: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<BootSlice<T>, BootMemoryShort> {
        self.take_with(n, |_, i| Ok(make(i)))
    }

    /// The same for elements that need arrays of their own, which `make` carves from what is left.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the block has not that much left, or `make` says so; nothing is taken then, and elements
    /// that were made are forgotten.
    pub fn take_with<T>(
        &mut self,
        n: usize,
        mut make: impl FnMut(&mut Self, usize) -> Result<T, BootMemoryShort>,
    ) -> Result<BootSlice<T>, BootMemoryShort> {
        let before = self.next;
        let at = self.base.as_ptr() as usize + before;
        let pad = at.next_multiple_of(align_of::<T>().max(64)) - at;
        let wanted = n.checked_mul(size_of::<T>()).and_then(|b| b.checked_add(pad)).unwrap_or(usize::MAX);
        let left = self.end - before;
        if wanted > left {
            return Err(BootMemoryShort { wanted, left });
        }
        // Past all of it, so that `make` carves behind it.
        self.next += wanted;
        // SAFETY: `before + pad` is at most `end`, so the result points into the block or one past its end.
        let first = unsafe { self.base.add(before + pad) }.cast::<T>();
        for i in 0..n {
            let element = make(self, i).inspect_err(|_| self.next = before)?;
            // SAFETY: element i lies inside the block (checked above), is aligned (padded above) and belongs to
            // nobody else (`next` moved past it; the block is ours by the contract of `new`).
            unsafe { first.add(i).write(element) };
        }
        Ok(BootSlice { first, len: n, _owns: PhantomData })
    }

    /// Bytes that an array of `n` elements of `T` may take, padding included.
    pub const fn bytes<T>(n: usize) -> usize {
        let align = if align_of::<T>() > 64 { align_of::<T>() } else { 64 };
        n * size_of::<T>() + align
    }
}

/// An array carved from [`BootMemory`]; lives as long as that block.
pub struct BootSlice<T> {
    first: NonNull<T>,
    len: usize,
    _owns: PhantomData<T>,
}

// SAFETY: a `BootSlice` owns its elements as a `Box<[T]>` does.
unsafe impl<T: Send> Send for BootSlice<T> {}
// SAFETY: it gives out shared references only, as `Box<[T]>` does through a shared reference.
unsafe impl<T: Sync> Sync for BootSlice<T> {}

impl<T> Deref for BootSlice<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `take` initialised `len` elements at `first`; the contract of `BootMemory::new` keeps the
        // memory valid while this value is used.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for BootSlice<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the slice owns its elements, and `&mut self` makes the reference exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}
