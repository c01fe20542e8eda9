//! Room for numbers of frames.
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};

/// Room for `N` numbers of frames, a power of two, in boot memory of its own: an array within a
/// CPU's value would go through the stack when that is made.
pub(super) struct Room<const N: usize>(BootSlice<Pfn>);

impl<const N: usize> Room<N> {
    const MASK: usize = {
        assert!(N.is_power_of_two());
        N - 1
    };

    /// Carves room.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if it does not fit.
    pub fn new(boot: &mut BootMemory) -> Result<Self, BootMemoryShort> {
        Ok(Room(boot.take(N, |_| Pfn::NONE)?))
    }

    /// Returns the bytes of boot memory that it takes.
    pub const fn bytes() -> usize {
        BootMemory::bytes::<Pfn>(N)
    }

    /// Returns the number at `i`, modulo `N`.
    #[inline]
    pub fn get(&self, i: usize) -> Pfn {
        // SAFETY: there are `N` (`new`), and the index is below it.
        unsafe { *self.0.get_unchecked(i & Self::MASK) }
    }

    /// Sets the number at `i`, modulo `N`.
    #[inline]
    pub fn set(&mut self, i: usize, pfn: Pfn) {
        // SAFETY: there are `N` (`new`), and the index is below it.
        unsafe { *self.0.get_unchecked_mut(i & Self::MASK) = pfn };
    }
}
