//! The direct map, and the image's part of the TLBs of [`Hardware`].

use core::ptr;

use ptarmigan::window::DirectMap;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel::without::{Part, leaves_out};
use ptarmigan_kernel_x86::table::TablePage;
use ptarmigan_kernel_x86::{hardware, smp, table};

use crate::KERNEL;

/// Where the low 4 GiB of physical memory are mapped: slot 256 of every root.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;
/// The first physical address that is not mapped there.
pub const DIRECT_MAP_LIMIT: u64 = 4 << 30;

// The assembly fills them in.
#[unsafe(no_mangle)]
static boot_top: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_upper: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directories: [TablePage<512>; 4] = [const { TablePage::new() }; 4];
/// Returns the root that the machine booted on: every other one copies its kernel entries from it.
pub fn kernel_top() -> &'static TablePage<512> {
    &boot_top
}

/// Returns where a physical address below 4 GiB is reached, whatever the current space maps.
#[inline]
pub fn direct<T>(physical: u64) -> *mut T {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

/// Returns the direct map.
pub fn direct_map() -> DirectMap {
    // SAFETY: 1. Frames of the library are below 4 GiB, which the direct map covers in every space.
    // 2. Programs' mappings are used by programs alone, in which there are no Rust objects.
    unsafe { DirectMap::new(ptr::with_exposed_provenance_mut(DIRECT_MAP as usize), DIRECT_MAP_LIMIT) }
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
        kernel_top().physical(DIRECT_MAP)
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
    kernel_top().set(0, 0);
    // SAFETY: 1. The tree that is loaded already.
    unsafe { table::load_root(table::current_root()) };
}
