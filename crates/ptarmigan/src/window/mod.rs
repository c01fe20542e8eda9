//! Reaching the bytes of a table.
//!
//! A table is reached only through the guard that a [`Window`] gives out. Where all memory is mapped, as in a
//! 64-bit kernel, the guard costs nothing ([`DirectMap`]); with high memory it is a mapping made for the occasion,
//! and dropping the guard takes it away.
use crate::addr::PhysAddr;
use core::ptr::NonNull;

/// A way to reach physical memory.
///
/// # Safety
///
/// An implementation promises:
/// 1. The pointer of a guard for `at` is valid for reads and writes of every byte from `at` to the end of the
///    naturally aligned block of memory that was handed out together, while the guard lives.
/// 2. Guards for the same physical address reach the same bytes.
/// 3. The pointer is at least as aligned as `at`, up to the frame size.
pub unsafe trait Window: Sync {
    /// Holds the window open.
    type Guard<'a>: WindowGuard
    where
        Self: 'a;

    /// Opens a window on the memory at `at`.
    fn map(&self, at: PhysAddr) -> Self::Guard<'_>;
}

/// An open window.
///
/// # Safety
///
/// `base` keeps the promises of [`Window`] while the guard lives.
pub unsafe trait WindowGuard {
    /// Where the memory is to be found while the guard lives.
    fn base(&self) -> NonNull<u8>;
}

/// All of physical memory at a fixed distance from its address: the kernel's direct map, or an emulator's block
/// of guest memory.
#[derive(Clone, Copy, Debug)]
pub struct DirectMap {
    zero: *mut u8,
}

// SAFETY: it is an address; using what lies there is the business of whoever holds the frames.
unsafe impl Send for DirectMap {}
// SAFETY: as above.
unsafe impl Sync for DirectMap {}

impl DirectMap {
    /// The map in which physical address `a` is found at `zero + a`.
    ///
    /// # Safety
    ///
    /// 1. For every address that a window is opened on, `zero.wrapping_add(a)` is valid for reads and writes of
    ///    the frame it lies in, as long as the map is used.
    /// 2. That memory is reached through this map (or through pointers derived from the same allocation) only.
    pub const unsafe fn new(zero: *mut u8) -> Self {
        DirectMap { zero }
    }
}

/// The guard of a [`DirectMap`]: a pointer, nothing to give back.
#[derive(Clone, Copy)]
pub struct DirectGuard(NonNull<u8>);

// SAFETY: see the contract of `DirectMap::new`.
unsafe impl Window for DirectMap {
    type Guard<'a> = DirectGuard;

    #[inline(always)]
    fn map(&self, at: PhysAddr) -> DirectGuard {
        let p = self.zero.wrapping_add(at.0 as usize);
        // SAFETY: no valid allocation contains address 0, and `p` is valid by the contract of `DirectMap::new`.
        DirectGuard(unsafe { NonNull::new_unchecked(p) })
    }
}

// SAFETY: the map outlives the guard and never changes.
unsafe impl WindowGuard for DirectGuard {
    #[inline(always)]
    fn base(&self) -> NonNull<u8> {
        self.0
    }
}
