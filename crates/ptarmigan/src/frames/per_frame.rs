//! Arrays with an element for each frame.
use super::Frames;
use super::memory::MemorySize;
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::MachineId;

/// Something that is kept for each frame beside its record, and found as fast.
pub struct PerFrame<T> {
    machine: MachineId,
    base: u32,
    main: BootSlice<T>,
    others: BootSlice<T>,
}

impl<T> PerFrame<T> {
    /// Makes an element for each frame of `frames`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit.
    pub fn new(
        boot: &mut BootMemory,
        frames: &Frames,
        mut make: impl FnMut() -> T,
    ) -> Result<Self, BootMemoryShort> {
        let table = frames.table();
        let (main, others) = table.sizes();
        Ok(PerFrame {
            machine: frames.machine(),
            base: table.base(),
            main: boot.take(main, |_| make())?,
            others: boot.take(others, |_| make())?,
        })
    }

    /// Returns the bytes of boot memory that memory of this size takes at most.
    pub const fn bytes(size: &MemorySize) -> usize {
        BootMemory::bytes::<T>(size.frames()).saturating_add(BootMemory::bytes::<T>(0))
    }

    /// Returns the element of a frame; `None` if it is not one of the machine's. `frames` are those
    /// that this was made for.
    #[inline]
    pub fn of(&self, frames: &Frames, pfn: Pfn) -> Option<&T> {
        match self.main.get(pfn.0.wrapping_sub(self.base) as usize) {
            Some(element) => Some(element),
            None => self.other(frames, pfn),
        }
    }

    #[cold]
    #[inline(never)]
    fn other(&self, frames: &Frames, pfn: Pfn) -> Option<&T> {
        if !frames.machine().matches(self.machine) {
            return None;
        }
        self.others.get(frames.table().find(pfn)?)
    }
}
