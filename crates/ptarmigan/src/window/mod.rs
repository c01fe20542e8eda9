//! Reaching the bytes of physical memory.
//!
//! A table is reached only through the guard that a [`Window`] gives out. Where all memory is
//! mapped, as in a 64-bit kernel, the guard has no cost ([`DirectMap`]); with high memory it is a
//! mapping made for the occasion, and dropping the guard takes it away.
//!
//! A guard leads to a raw pointer. Whether the memory there may be read or written is known to the
//! code that owns the frame, and whether the window reaches the frame to the code that brought the
//! two together. So windows and frames are paired in `unsafe` code only:
//! [`Source::new`](crate::quicklist::Source::new), [`Frame::clear`](crate::frames::Frame::clear),
//! [`Machine`](crate::machine::Machine).
use crate::addr::PhysAddr;
use core::convert::Infallible;
use core::fmt;

/// A way to reach physical memory.
///
/// # Safety
///
/// An implementation says which memory it is for, and promises of it:
/// 1. The pointer of a guard for `at` is valid for reads and writes of every byte from `at` to the
///    end of the naturally aligned block of memory that was handed out together, while the guard
///    lives.
/// 2. Guards for the same physical address reach the same bytes.
/// 3. The pointer is at least as aligned as `at`, up to the frame size.
pub unsafe trait Window {
    /// Holds the window open.
    type Guard<'a>: WindowGuard
    where
        Self: 'a;

    /// Why a window does not open. [`Infallible`] where all memory is mapped: then there is
    /// [`OpenWindow::open`].
    type Error;

    /// Opens a window on the memory at `at`. It must not unwind: the library calls it in the middle
    /// of changes to tables.
    ///
    /// # Errors
    ///
    /// Whatever is short: places for mappings, memory for their tables.
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Self::Error>;

    /// Opens a window on memory that the caller knows to be [low](crate::frames::ZoneClass::Low). A
    /// window that would have to look the zone up skips this.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map).
    #[inline]
    fn map_low(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Self::Error> {
        self.map(at)
    }

    /// Returns the first physical address that it does not reach, as far as it knows: 2^64 - 1 for
    /// a window that reaches whatever it is asked for. Set-up refuses memory that lies higher.
    fn limit(&self) -> PhysAddr {
        PhysAddr(u64::MAX)
    }
}

/// A window that always opens, for all CPUs. Every [`Window`] that cannot fail and may be shared is
/// one.
pub trait OpenWindow: Window<Error = Infallible> + Sync {
    /// Opens a window on the memory at `at`.
    #[inline]
    fn open(&self, at: PhysAddr) -> Self::Guard<'_> {
        let Ok(guard) = self.map(at);
        guard
    }

    /// Opens a window on memory that the caller knows to be [low](crate::frames::ZoneClass::Low).
    #[inline]
    fn open_low(&self, at: PhysAddr) -> Self::Guard<'_> {
        let Ok(guard) = self.map_low(at);
        guard
    }
}

impl<W: Window<Error = Infallible> + Sync> OpenWindow for W {}

// SAFETY: 1. to 3. by the window behind the reference.
unsafe impl<W: Window + ?Sized> Window for &W {
    type Guard<'a>
        = W::Guard<'a>
    where
        Self: 'a;
    type Error = W::Error;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Self::Error> {
        (**self).map(at)
    }

    #[inline]
    fn map_low(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Self::Error> {
        (**self).map_low(at)
    }

    fn limit(&self) -> PhysAddr {
        (**self).limit()
    }
}

/// An open window.
///
/// # Safety
///
/// `base` keeps the promises of [`Window`] while the guard lives, and does not unwind.
pub unsafe trait WindowGuard {
    /// Returns where the memory is to be found while the guard lives. For an address that the
    /// window is not for, it may be any pointer.
    fn base(&self) -> *mut u8;
}

/// Physical memory below a limit at a fixed distance from its address: the kernel's direct map, or
/// an emulator's block of guest memory.
#[derive(Clone, Copy, Debug)]
pub struct DirectMap {
    zero: *mut u8,
    limit: u64,
}

// SAFETY: it is an address; only the code that owns the frames may use the memory there.
unsafe impl Send for DirectMap {}
// SAFETY: as above.
unsafe impl Sync for DirectMap {}

/// A direct map does not fit into the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfReach {
    /// First physical address behind the memory that was to be mapped.
    pub limit: u64,
    /// Bytes of memory that fit.
    pub reach: u64,
}

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a direct map of the memory below {:#x} does not fit: it reaches {:#x} at most; \
             make what lies above high memory",
            self.limit, self.reach
        )
    }
}

impl core::error::Error for OutOfReach {}

impl DirectMap {
    /// Makes the map in which each physical address `a` below `limit` is found at `zero + a`.
    ///
    /// # Errors
    ///
    /// [`OutOfReach`] if the highest of these addresses is more than a pointer can hold: on a
    /// 32-bit machine with more than 4 GiB, say.
    ///
    /// # Safety
    ///
    /// 1. For every frame below `limit` that is under management, `zero + a` is valid for reads and
    ///    writes of the frame, as long as a pointer from this map is used.
    /// 2. That memory is reached through this map (or through pointers derived from the same
    ///    allocation) only.
    pub unsafe fn new(zero: *mut u8, limit: u64) -> Result<Self, OutOfReach> {
        let reach = (usize::MAX - zero as usize) as u64;
        if limit > reach { Err(OutOfReach { limit, reach }) } else { Ok(DirectMap { zero, limit }) }
    }

    /// Returns the first physical address behind the memory that it reaches.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns whether it reaches `bytes` bytes at `at`.
    #[inline]
    pub fn reaches(&self, at: PhysAddr, bytes: u64) -> bool {
        at.0.checked_add(bytes).is_some_and(|end| end <= self.limit)
    }
}

/// The guard of a [`DirectMap`]: a pointer, without a slot to give back.
#[derive(Clone, Copy)]
pub struct DirectGuard(*mut u8);

// SAFETY: 1. to 3. for addresses below the limit, by the contract of `DirectMap::new`.
unsafe impl Window for DirectMap {
    type Guard<'a> = DirectGuard;
    type Error = Infallible;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<DirectGuard, Infallible> {
        debug_assert!(at.0 < self.limit, "{at} is not below {:#x}", self.limit);
        // An address beyond the limit makes a pointer that must not be used. The check would cost
        // each step of a walk.
        Ok(DirectGuard(self.zero.wrapping_add(at.0 as usize)))
    }

    fn limit(&self) -> PhysAddr {
        PhysAddr(self.limit)
    }
}

// SAFETY: the map outlives the guard and never changes.
unsafe impl WindowGuard for DirectGuard {
    #[inline]
    fn base(&self) -> *mut u8 {
        self.0
    }
}
