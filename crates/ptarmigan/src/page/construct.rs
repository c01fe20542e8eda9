//! Declares the constructor of root tables.
use crate::addr::PhysAddr;
use crate::frames::Frames;

/// Makes root tables: copies the kernel's entries in, and registers the table with the code that
/// changes those.
///
/// It runs only when a page comes from the allocator and when it goes back to it. A page that rests
/// on a list stays constructed.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. After [`destruct`](Self::destruct) or [`destruct_all`](Self::destruct_all), and after a
///    [`try_construct`](Self::try_construct) that returned false, the table is all zero.
/// 2. Calls write to the table at `root` alone, and to tables that have been constructed and not
///    destructed since. Only entries of the kernel's are written there.
/// 3. No pointer that the constructor keeps may lead to the table after that.
///
/// ```compile_fail,E0200
/// use ptarmigan::{addr::PhysAddr, frames::Frames, page::Construct};
/// struct Leaves;
/// impl Construct for Leaves {
///     unsafe fn construct(&self, _: &Frames, _: PhysAddr) {}
///     unsafe fn destruct(&self, _: &Frames, _: PhysAddr) {} // is the table zero?
/// }
/// ```
pub unsafe trait Construct: Sync {
    /// Brings an all-zero table into its constructed state. If this or another call unwinds, the
    /// tables that it was given are leaked on purpose, as nobody knows their state.
    ///
    /// # Safety
    ///
    /// 1. `root` must be a root table that the caller owns, of the format that this is for, in
    ///    `frames`, which are those that this was made for.
    /// 2. It must be all zero, and constructed by no other constructor.
    unsafe fn construct(&self, frames: &Frames, root: PhysAddr);

    /// Constructs where that can fail. Returns false if it did, and the table is all zero as it
    /// was. Constructors that cannot run out of a resource keep the default.
    ///
    /// # Safety
    ///
    /// As [`construct`](Self::construct).
    #[inline]
    unsafe fn try_construct(&self, frames: &Frames, root: PhysAddr) -> bool {
        // SAFETY: 1. and 2. passed on.
        unsafe { self.construct(frames, root) };
        true
    }

    /// Brings a constructed table back to all zero and forgets it.
    ///
    /// # Safety
    ///
    /// 1. The caller must own `root`, and must have had this construct it, in the same `frames`. No
    ///    MMU walks it.
    unsafe fn destruct(&self, frames: &Frames, root: PhysAddr);

    /// Does the same with several tables. Constructors for which that is less work together do it
    /// together.
    ///
    /// # Safety
    ///
    /// As [`destruct`](Self::destruct), for each of `roots`, each of which comes once.
    unsafe fn destruct_all(&self, frames: &Frames, roots: impl Iterator<Item = PhysAddr>) {
        for root in roots {
            // SAFETY: 1. by the caller.
            unsafe { self.destruct(frames, root) };
        }
    }
}

/// Leaves root tables all zero, as other tables are: for kernels that have a root of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConstruct;

// SAFETY: 1. the table is all zero all the time. 2. no byte is written. 3. no pointer is kept.
unsafe impl Construct for NoConstruct {
    #[inline]
    unsafe fn construct(&self, _: &Frames, _: PhysAddr) {}
    #[inline]
    unsafe fn destruct(&self, _: &Frames, _: PhysAddr) {}
}

// SAFETY: 1. to 3. are promises of `C`, which all calls are passed on to.
unsafe impl<C: Construct> Construct for &C {
    #[inline]
    unsafe fn construct(&self, frames: &Frames, root: PhysAddr) {
        // SAFETY: 1. and 2. passed on.
        unsafe { (**self).construct(frames, root) };
    }
    #[inline]
    unsafe fn try_construct(&self, frames: &Frames, root: PhysAddr) -> bool {
        // SAFETY: 1. and 2. passed on.
        unsafe { (**self).try_construct(frames, root) }
    }
    #[inline]
    unsafe fn destruct(&self, frames: &Frames, root: PhysAddr) {
        // SAFETY: 1. passed on.
        unsafe { (**self).destruct(frames, root) };
    }
    #[inline]
    unsafe fn destruct_all(&self, frames: &Frames, roots: impl Iterator<Item = PhysAddr>) {
        // SAFETY: 1. passed on.
        unsafe { (**self).destruct_all(frames, roots) };
    }
}
