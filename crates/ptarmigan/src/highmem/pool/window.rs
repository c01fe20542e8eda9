//! The pool as a window.
use super::Pool;
use super::config::PoolError;
use super::mapped::Mapped;
use super::sleep::Wake;
use crate::addr::{FRAME_SIZE, PhysAddr};
use crate::cpu::Pinned;
use crate::highmem::slots::Slots;
use crate::tlb::Shootdown;
use crate::window::{Window, WindowGuard};

/// A [`Pool`], seen from a CPU: maps what it can without sleeping, one frame at a time.
pub struct PoolWindow<'a, 'm, S: Shootdown, L, K: Wake = ()> {
    pub(super) pool: &'a Pool<'m, S, L, K>,
    pub(super) pin: &'a Pinned<'a>,
}

/// The guard of a [`PoolWindow`].
pub struct PoolGuard<'a, K: Wake = ()> {
    mapped: Mapped<'a, K>,
    offset: usize,
}

// SAFETY: it is for memory that is handed out frame by frame. 1. a slot shows the whole frame while
// it has a user. 2. a frame has one slot at a time. 3. slots are as aligned as frames.
unsafe impl<'m, S: Shootdown, L: Slots, K: Wake> Window for PoolWindow<'_, 'm, S, L, K> {
    type Guard<'a>
        = PoolGuard<'a, K>
    where
        Self: 'a;
    type Error = PoolError;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<PoolGuard<'_, K>, PoolError> {
        let mapped = self.pool.try_map(self.pin, at.pfn())?;
        Ok(PoolGuard { mapped, offset: at.0 as usize % FRAME_SIZE })
    }
}

// SAFETY: as of the window.
unsafe impl<K: Wake> WindowGuard for PoolGuard<'_, K> {
    #[inline]
    fn base(&self) -> *mut u8 {
        self.mapped.base().wrapping_add(self.offset)
    }
}
