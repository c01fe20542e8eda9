//! Reaching any frame for a while: the direct map, and on i386 the library's pool of slots.
#[cfg(target_arch = "x86")]
mod pool;

#[cfg(target_arch = "x86")]
pub use pool::Kmap;

#[cfg(not(target_arch = "x86"))]
pub use direct::Kmap;

/// All memory is in the direct map.
#[cfg(not(target_arch = "x86"))]
mod direct {
    use crate::config::{PtConfig, Runs};
    use crate::error::PtError;
    use crate::hooks::Hardware;
    use core::ffi::c_void;
    use ptarmigan::addr::Pfn;
    use ptarmigan::bootmem::BootMemory;
    use ptarmigan::cpu::Pinned;
    use ptarmigan::frames::{Frames, MemorySize};
    use ptarmigan::tlb::Tlb;
    use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

    /// Slots are not needed: all memory is in the direct map.
    pub struct Kmap(DirectMap);

    impl Kmap {
        pub fn bytes(_: &MemorySize, _: &PtConfig) -> usize {
            0
        }

        /// # Errors
        ///
        /// [`PtError::Argument`] if a window is described.
        ///
        /// # Safety
        ///
        /// 1. `low` reaches all of the frames.
        pub unsafe fn new(
            _: &mut BootMemory,
            config: &PtConfig,
            _: &Runs,
            _: &'static Tlb<Hardware>,
            _: &'static Frames,
            low: DirectMap,
        ) -> Result<Self, PtError> {
            let is_none = config.kmap_tables.is_null() && config.kmap_slots == 0;
            if is_none { Ok(Kmap(low)) } else { Err(PtError::Argument) }
        }

        pub fn map(&self, _: &Pinned<'_>, pfn: Pfn) -> Result<*mut c_void, PtError> {
            Ok(self.0.open(pfn.addr()).base().cast())
        }

        /// A frame in no window needs no unmapping.
        pub fn unmap(&self, _: &Pinned<'_>, _: *mut c_void) -> Result<(), PtError> {
            Err(PtError::Foreign)
        }

        pub fn idle(&self, _: &Pinned<'_>) {}
    }
}
