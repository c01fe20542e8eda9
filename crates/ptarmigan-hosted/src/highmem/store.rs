//! Makes slots of the entries of an array.
//!
//! ```text
//!  install   entries[slot] = frame, release ──┐
//!  address                                    └──> frame: acquire ──> the direct map shows it
//!  remove    entries[slot] = none, release ──────> null
//! ```
//!
//! # Why
//!
//! A real slot of a program is an `mmap` of some microseconds, which would hide the cost of the
//! code that is measured. A kernel installs a slot by one store into a table. So do these: a frame
//! is reached through the direct map all the same, and a slot that is used after its removal gives
//! a null pointer.
use core::ptr;
use ptarmigan::addr::{FRAME_SHIFT, Pfn};
use ptarmigan::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use ptarmigan::highmem::{Install, Remove, SlotError, Slots};
use ptarmigan::sync::atomic::{AtomicU32, Ordering};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

/// Slots whose frames are reached through a direct map: installing one is one store into an array,
/// as it is one store into a table of a kernel's. For measurements, which then leave out the cost
/// of a mapping of the host.
pub struct StoreSlots {
    base: u64,
    entries: BootSlice<AtomicU32>,
    memory: DirectMap,
}

impl StoreSlots {
    /// Makes `n` slots, which flushes name by the addresses from `base` on, a page each.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit.
    ///
    /// # Safety
    ///
    /// 1. `memory` must reach all frames that will be installed.
    pub unsafe fn new(
        boot: &mut BootMemory,
        n: usize,
        base: u64,
        memory: DirectMap,
    ) -> Result<Self, BootMemoryShort> {
        Ok(StoreSlots { base, entries: boot.take(n, |_| AtomicU32::new(Pfn::NONE.0))?, memory })
    }

    /// Returns the bytes of boot memory that `n` slots take at most.
    pub const fn bytes(n: usize) -> usize {
        BootMemory::bytes::<AtomicU32>(n)
    }

    /// Returns the frame that slot `index` shows.
    pub fn frame(&self, index: usize) -> Option<Pfn> {
        let raw = self.entries.get(index)?.load(Ordering::Acquire);
        (raw != Pfn::NONE.0).then_some(Pfn(raw))
    }
}

// SAFETY: 1. the direct map reaches the frame that is in the entry (contract of `new`). 2. they
// have no addresses of their own: a frame is reached where the direct map has it. 3. no MMU walks
// the array. 4. both are fixed. 5. numbers of slots are below the length (`Install::new` and
// `Remove::new`, 1.), and the map is asked for frames that it reaches. 6. neither goes on.
unsafe impl Slots for StoreSlots {
    #[inline]
    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn install(&self, install: Install) -> Result<u64, SlotError> {
        let (index, frame) = (install.index(), install.frame());
        self.entries[index].store(frame.0, Ordering::Release);
        Ok(frame.addr().0)
    }

    #[inline]
    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        let index = remove.index();
        self.entries[index].store(Pfn::NONE.0, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn address(&self, index: usize) -> *mut u8 {
        // The direct map does not reach the frame of an empty slot.
        self.frame(index).map_or(ptr::null_mut(), |frame| self.memory.open(frame.addr()).base())
    }

    #[inline]
    fn page(&self, index: usize) -> u64 {
        self.base.wrapping_add((index as u64) << FRAME_SHIFT)
    }

    #[inline]
    fn shift(&self) -> u32 {
        FRAME_SHIFT
    }
}
