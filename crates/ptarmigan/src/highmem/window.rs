//! Windows of machines with high memory.
use crate::addr::PhysAddr;
use crate::window::{DirectGuard, DirectMap, Window, WindowGuard};

/// Low frames through the direct map, others through `high`.
///
/// A low frame costs one comparison and one branch more than through the [`DirectMap`] alone.
/// Rejected: `high` with a bypass of its own for low frames, as each window would have one.
#[derive(Clone, Copy, Debug)]
pub struct MixedWindow<H> {
    low: DirectMap,
    high: H,
}

impl<H: Window> MixedWindow<H> {
    /// Makes a window of the two.
    ///
    /// # Safety
    ///
    /// 1. Memory below the limit of `low` is reached through `low`, by every user of it, and the
    ///    rest through `high` or through what reaches the same bytes.
    /// 2. All memory of the class [low](crate::frames::ZoneClass::Low) is below that limit.
    pub unsafe fn new(low: DirectMap, high: H) -> Self {
        MixedWindow { low, high }
    }

    /// Returns the window on high frames.
    pub fn high(&self) -> &H {
        &self.high
    }
}

/// The guard of a [`MixedWindow`].
pub enum MixedGuard<G> {
    /// Of a low frame: nothing to give back.
    Low(DirectGuard),
    /// Of a high frame.
    High(G),
}

// SAFETY: 1. to 3. below the limit of `low` by the contract of `DirectMap::new`, above it by that
// of `high`. An address goes to the same of the two each time: the limit decides, and low memory,
// for which `map_low` does not ask, is below it (contract of `new`, 2.).
unsafe impl<H: Window> Window for MixedWindow<H> {
    type Guard<'a>
        = MixedGuard<H::Guard<'a>>
    where
        Self: 'a;
    type Error = H::Error;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, H::Error> {
        if at.0 < self.low.limit() {
            let Ok(guard) = self.low.map(at);
            return Ok(MixedGuard::Low(guard));
        }
        Ok(MixedGuard::High(self.high.map(at)?))
    }

    #[inline]
    fn map_low(&self, at: PhysAddr) -> Result<Self::Guard<'_>, H::Error> {
        let Ok(guard) = self.low.map(at);
        Ok(MixedGuard::Low(guard))
    }
}

// SAFETY: each of the two keeps the promises of its window.
unsafe impl<G: WindowGuard> WindowGuard for MixedGuard<G> {
    #[inline]
    fn base(&self) -> *mut u8 {
        match self {
            MixedGuard::Low(guard) => guard.base(),
            MixedGuard::High(guard) => guard.base(),
        }
    }
}
