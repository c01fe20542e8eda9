//! The direct map, and the image's part of the TLBs of [`Hardware`].

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use ptarmigan::window::DirectMap;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel::without::{Part, leaves_out};
use ptarmigan_kernel_x86::table::TablePage;
use ptarmigan_kernel_x86::{hardware, smp, table};

use crate::KERNEL;

/// Where the low 768 MiB of physical memory are mapped, in every space.
pub const DIRECT_MAP: u64 = 0xc000_0000;
/// The first physical address that cannot be mapped there.
pub const DIRECT_MAP_END: u64 = 768 << 20;
/// The first physical address that is not reached there.
static LIMIT: AtomicU32 = AtomicU32::new(DIRECT_MAP_END as u32);

/// Returns the first physical address that is high memory.
#[inline]
pub fn limit() -> u64 {
    LIMIT.load(Ordering::Relaxed).into()
}

/// Makes high memory of the frames above `limit`. Boot does it, before any access.
pub fn set_limit(limit: u64) {
    LIMIT.store(limit.min(DIRECT_MAP_END) as u32, Ordering::Relaxed);
}

// The assembly fills them in.
#[unsafe(no_mangle)]
static boot_root: TablePage<4> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directory: TablePage<512> = TablePage::new();
/// Returns the root that the machine booted on: every other one copies its kernel entry from it.
pub fn kernel_root() -> &'static TablePage<4> {
    &boot_root
}

/// Returns where a physical address below the limit is reached, whatever the current space maps.
#[inline]
pub fn direct<T>(physical: u64) -> *mut T {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

/// Returns the direct map.
pub fn direct_map() -> DirectMap {
    // SAFETY: 1. Frames below the limit are covered by the direct map in every space.
    // 2. Programs' mappings are used by programs alone, in which there are no Rust objects.
    unsafe { DirectMap::new(ptr::with_exposed_provenance_mut(DIRECT_MAP as usize), limit()) }
        .unwrap_or_else(|e| panic!("{e}"))
}

/// The image's functions for the hardware.
pub struct Cpus;

/// TLBs, and interrupts between CPUs.
pub type Hardware = ptarmigan_kernel_x86::hardware::Hardware<Cpus>;

// SAFETY: 1. The root that the machine booted on maps the kernel and is a static; its entries of
// programs' addresses are gone before there are any programs (`drop_identity`).
unsafe impl hardware::Cpus for Cpus {
    #[inline]
    fn forgets() -> bool {
        KERNEL.forgets()
    }

    #[inline]
    fn interrupts() -> bool {
        !leaves_out(Part::Ipi)
    }

    fn kernel_root() -> u64 {
        kernel_root().physical(DIRECT_MAP)
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
