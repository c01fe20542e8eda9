//! The direct map, and the image's part of the TLBs of [`Hardware`].

use core::ptr;

use ptarmigan::window::DirectMap;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel::negative_controls::{NegativeControl, leaves_out};
use ptarmigan_kernel_x86::{hardware, table};

use crate::arch::Format;
use crate::arch::tables::{DIRECT_MAP, DIRECT_MAP_END, kernel_root, limit};
use crate::{KERNEL, smp};

/// Returns where a physical address below [`limit`] is reached, whatever the current space maps.
#[inline]
pub fn direct<T>(physical: u64) -> *mut T {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

/// Returns bytes that the loader or the firmware has put somewhere; `None` if the direct map does
/// not reach them.
///
/// # Safety
///
/// 1. There are said to be so many bytes, and no code writes to them while they are used.
pub unsafe fn bytes(at: u64, len: u64) -> Option<&'static [u8]> {
    let is_reached = at != 0 && at.checked_add(len)? <= DIRECT_MAP_END;
    // SAFETY: 1. The direct map shows them, and they stay as they are (point 1).
    is_reached.then(|| unsafe { core::slice::from_raw_parts(direct::<u8>(at), len as usize) })
}

/// Returns the direct map.
pub fn direct_map() -> DirectMap {
    // SAFETY: 1. Frames below the limit are covered by the direct map in every space.
    // 2. Programs' mappings are used by programs alone, in which there are no Rust objects.
    unsafe { DirectMap::new(ptr::with_exposed_provenance_mut(DIRECT_MAP as usize), limit()) }
        .unwrap_or_else(|e| panic!("{e}"))
}

/// The image's functions for the hardware.
pub struct ImageCpus;

/// TLBs, and interrupts between CPUs.
pub type Hardware = hardware::Hardware<Format, ImageCpus>;

impl hardware::Cpus for ImageCpus {
    #[inline]
    fn forgets() -> bool {
        KERNEL.forgets()
    }

    #[inline]
    fn interrupts() -> bool {
        !leaves_out(NegativeControl::Ipi)
    }

    fn interrupt(cpu: usize) {
        KERNEL.count(Count::Ipis);
        smp::interrupt(cpu);
    }

    #[inline]
    fn count_page() {
        KERNEL.count(Count::PageInvalidations);
    }

    #[inline]
    fn count_load() {
        KERNEL.count(Count::RootLoads);
    }
}

/// Leaves the lower half of the boot root to programs.
pub fn drop_identity() {
    kernel_root().set(0, 0);
    // SAFETY: 1. The tree that is loaded already.
    unsafe { table::load_root(table::current_root()) };
}
