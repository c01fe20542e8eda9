//! Memory for the library's own arrays (records of frames, per-CPU lists), handed over once at
//! start-up.
//!
//! # The protocol
//!
//! 1. The code that sets the library up sums the function `bytes` of each part.
//! 2. It hands over one block of memory of that size, or several.
//! 3. Every part carves its arrays from it, and keeps them.
//!
//! ```text
//!  BootMemory   base ──> │ records of frames │ per-CPU lists │ mailboxes │   left   │
//!                                                                        ^next      ^end
//!  take_with    carve ──> make each element ──┬─ all made: BootSlice
//!                                             └─ one fails: those made are dropped, next goes back
//! ```
//!
//! # Why
//!
//! The library uses no heap, because it runs before a kernel has one, and tables of a kernel's heap
//! may come from it. The need is known before, so that a set-up can fail before anything is taken.
//! An array that fails half-way must drop the elements that were made. Its memory goes back only if
//! it is the last: otherwise the memory of an array carved inside it would be handed out twice.
//!
//! # How long the memory lives
//!
//! A kernel hands over memory that is its own for ever, and need not think of it again. A machine
//! inside a process comes and goes; arrays carved from its memory keep that memory alive (a counted
//! reference beside each array, without a cost when the array is used).
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{align_of, needs_drop, size_of};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// The owner that keeps a block alive; absent if the block is there for ever.
#[derive(Clone, Default)]
struct BlockOwner {
    #[cfg(feature = "std")]
    _kept: Option<std::sync::Arc<dyn Send + Sync>>,
}

/// A block of memory from which arrays are carved.
pub struct BootMemory {
    next: usize,
    end: usize,
    base: NonNull<u8>,
    owner: BlockOwner,
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
    /// 1. The block must be valid for reads and writes, and no other code may use it, for as long
    ///    as this value or any [`BootSlice`] carved from it exists.
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        BootMemory { next: 0, end: len, base, owner: BlockOwner::default() }
    }

    /// Takes over the block of `len` bytes at `base`, which is a part of `owner`, and keeps it
    /// alive.
    ///
    /// # Safety
    ///
    /// 1. The block must be valid for reads and writes, and no other code may use it, for as long
    ///    as `owner` exists.
    #[cfg(feature = "std")]
    pub unsafe fn kept_by(owner: std::sync::Arc<dyn Send + Sync>, base: NonNull<u8>, len: usize) -> Self {
        BootMemory { next: 0, end: len, base, owner: BlockOwner { _kept: Some(owner) } }
    }

    /// Carves an array of `n` elements, each made by `make` from its index.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the block has not that much left; no memory is taken then.
    pub fn take<T>(
        &mut self,
        n: usize,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<BootSlice<T>, BootMemoryShort> {
        self.take_with(n, |_, i| Ok(make(i)))
    }

    /// Carves an array whose elements need arrays of their own, which `make` carves from the rest.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if the block has not that much left, or if `make` says so. Elements that
    /// were made are dropped then. Memory that `make` has carved stays taken, as the arrays in it
    /// may exist; otherwise no memory is taken.
    pub fn take_with<T>(
        &mut self,
        n: usize,
        mut make: impl FnMut(&mut Self, usize) -> Result<T, BootMemoryShort>,
    ) -> Result<BootSlice<T>, BootMemoryShort> {
        let (base, before) = (self.base, self.next);
        let first = self.carve(n, Layout::new::<T>())?.cast::<T>();
        let behind = self.next;
        // Owns the elements made so far: an early return and a panic of `make` drop them.
        let mut slice = BootSlice { first, len: 0, _owner: self.owner.clone(), _owns: PhantomData };
        for i in 0..n {
            match make(self, i) {
                // SAFETY: element i lies in the block and is aligned (`carve`), and belongs to no
                // other array (`next` moved past it and never goes back below a carved array; the
                // block is ours by the contract of `new`).
                Ok(element) => unsafe { first.add(i).write(element) },
                Err(short) => {
                    // Only an array at the very end can be taken back. `make` has `self` to itself:
                    // it may have carved arrays and kept them, and it may have put another block
                    // here.
                    if self.base == base && self.next == behind {
                        self.next = before;
                    }
                    return Err(short);
                }
            }
            slice.len = i + 1;
        }
        Ok(slice)
    }

    /// Carves room for `n` elements of the layout, one after the other, aligned to a cache line at
    /// least. One copy for all types of elements.
    #[cold]
    #[inline(never)]
    fn carve(&mut self, n: usize, element: Layout) -> Result<NonNull<u8>, BootMemoryShort> {
        let at = self.base.as_ptr() as usize + self.next;
        let pad = at.next_multiple_of(element.align().max(64)) - at;
        let wanted = n.checked_mul(element.size()).and_then(|b| b.checked_add(pad)).unwrap_or(usize::MAX);
        let left = self.end - self.next;
        if wanted > left {
            return Err(BootMemoryShort { wanted, left });
        }
        // SAFETY: `next + pad` is at most `end`, so the result points into the block or one past
        // its end.
        let first = unsafe { self.base.add(self.next + pad) };
        // Past all of it, so that the next array lies behind it.
        self.next += wanted;
        Ok(first)
    }

    /// Carves an array as [`take`](Self::take) does, of one element at least.
    pub(crate) fn take_each<T>(
        &mut self,
        n: usize,
        make: impl FnMut(usize) -> T,
    ) -> Result<BootArray<T>, BootMemoryShort> {
        Ok(BootArray(self.take(n.max(1), make)?))
    }

    /// Carves an array as [`take_with`](Self::take_with) does, of one element at least.
    pub(crate) fn take_each_with<T>(
        &mut self,
        n: usize,
        make: impl FnMut(&mut Self, usize) -> Result<T, BootMemoryShort>,
    ) -> Result<BootArray<T>, BootMemoryShort> {
        Ok(BootArray(self.take_with(n.max(1), make)?))
    }

    /// Returns the bytes left.
    pub fn left(&self) -> usize {
        self.end - self.next
    }

    /// Returns the bytes that an array of `n` elements of `T` takes at most, padding included;
    /// [`usize::MAX`], which no block has, for an array that no address space holds.
    pub const fn bytes<T>(n: usize) -> usize {
        let align = if align_of::<T>() > 64 { align_of::<T>() } else { 64 };
        n.saturating_mul(size_of::<T>()).saturating_add(align - 1)
    }

    /// Returns the bytes that an array of `n` elements, but of one at least, takes at most.
    pub(crate) const fn bytes_each<T>(n: usize) -> usize {
        Self::bytes::<T>(if n == 0 { 1 } else { n })
    }
}

/// An array with one element at least: for each CPU, or each node.
///
/// Indices are right by construction, as pins and nodes are of the machine that the array was made
/// for. So an element is found without a way to panic.
pub(crate) struct BootArray<T>(BootSlice<T>);

impl<T> BootArray<T> {
    /// Returns element `i`; the last one if there are fewer, which debug builds refuse.
    #[inline]
    pub fn of(&self, i: usize) -> &T {
        debug_assert!(i < self.0.len, "there is no element {i}");
        // SAFETY: there is one element at least (`take_each`), so the index is below their number.
        unsafe { self.0.get_unchecked(i.min(self.0.len - 1)) }
    }
}

impl<T> Deref for BootArray<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// An array carved from [`BootMemory`], which it keeps alive. It owns its elements, as a `Box<[T]>`
/// does.
pub struct BootSlice<T> {
    first: NonNull<T>,
    len: usize,
    /// Goes after `drop` has dropped the elements.
    _owner: BlockOwner,
    _owns: PhantomData<T>,
}

// SAFETY: a `BootSlice` owns its elements as a `Box<[T]>` does, and its owner may be shared and
// moved between threads.
unsafe impl<T: Send> Send for BootSlice<T> {}
// SAFETY: it gives out shared references only, as `Box<[T]>` does through a shared reference.
unsafe impl<T: Sync> Sync for BootSlice<T> {}

impl<T> Drop for BootSlice<T> {
    fn drop(&mut self) {
        if needs_drop::<T>() {
            // SAFETY: the slice owns these elements, all of them initialised; they are not used
            // after this.
            unsafe { core::ptr::drop_in_place(&raw mut **self) };
        }
    }
}

impl<T> Deref for BootSlice<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `take_with` initialised `len` elements at `first`; the memory is valid while this
        // value exists (contract of `BootMemory::new`, or the owner).
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for BootSlice<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the slice owns its elements, and `&mut self` makes the reference
        // exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}
