//! Registers and instructions of address translation, and what the library wants of them.

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, SpaceId};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel::counts::Count;
use ptarmigan_kernel::without::{Part, leaves_out};

use crate::{KERNEL, boot, smp};

/// Where the low 768 MiB of physical memory are mapped, in every space.
pub const DIRECT_MAP: u64 = 0xc000_0000;
/// The first physical address that cannot be mapped there.
pub const DIRECT_MAP_END: u64 = 768 << 20;
/// The first physical address that is not reached there.
static LIMIT: AtomicU32 = AtomicU32::new(DIRECT_MAP_END as u32);

/// Returns the first physical address that is high memory.
#[inline(always)]
pub fn limit() -> u64 {
    LIMIT.load(Ordering::Relaxed).into()
}

/// Makes high memory of what is above `limit`. Boot does it, before anything is reached.
pub fn set_limit(limit: u64) {
    LIMIT.store(limit.min(DIRECT_MAP_END) as u32, Ordering::Relaxed);
}

/// A table of `N` entries.
#[repr(C, align(4096))]
pub struct TablePage<const N: usize>([AtomicU64; N]);

impl<const N: usize> TablePage<N> {
    /// Makes an empty table.
    pub const fn new() -> Self {
        TablePage([const { AtomicU64::new(0) }; N])
    }

    /// Returns an entry.
    pub fn get(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Acquire)
    }

    /// Sets an entry.
    pub fn set(&self, index: usize, entry: u64) {
        self.0[index].store(entry, Ordering::Release);
    }

    /// Returns its physical address: the image, and so every static, is in the direct map.
    pub fn physical(&'static self) -> u64 {
        ptr::from_ref(self).addr() as u64 - DIRECT_MAP
    }
}

/// Returns where a physical address below the limit is reached, whatever the current space maps.
#[inline(always)]
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

/// Has this CPU forget a page.
#[inline(always)]
pub fn forget_page(at: u64) {
    if leaves_out(Part::Flush) {
        return;
    }
    KERNEL.count(Count::PageInvalidations);
    // SAFETY: 1. Forgetting a translation changes no memory; the walk that follows reads the
    // current tables.
    unsafe { asm!("invlpg [{}]", in(reg) at as u32, options(nostack, preserves_flags)) };
}

fn current_root() -> u64 {
    let root: u32;
    // SAFETY: 1. Reading the register has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root.into()
}

/// # Safety
///
/// 1. The tree maps the kernel as the current one does, and stays until the next load.
unsafe fn load_root(root: u64) {
    KERNEL.count(Count::RootLoads);
    // SAFETY: 1. Point 1 is passed on.
    unsafe { asm!("mov cr3, {}", in(reg) root as u32, options(nostack, preserves_flags)) };
}

/// What a CPU does to its own TLB, and how it interrupts others.
pub struct Hardware;

// SAFETY: 1. and 2. INVLPG drops the page, global or not, and all paging-structure caches; a load
// of CR3 drops everything that is not global, and nothing here is global. 3. Likewise. 4. The
// kernel's own root has no entries of programs. 5. INVLPG and CR3 are the CPU's own. Its MMU walks
// tables by itself and caches no entry that is not present. 6. No root is kept. 7. Nothing unwinds.
unsafe impl Mmu for Hardware {
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        if what.reload_root {
            // SAFETY: 1. The tree that is loaded already, whose root's entries have changed.
            unsafe { load_root(current_root()) };
            return;
        }
        self.invalidate_kernel(pin, &what.scope);
    }

    fn invalidate_kernel(&self, _: &Pinned<'_>, scope: &Scope) {
        match scope.pages() {
            Some(pages) => pages.for_each(forget_page),
            None if leaves_out(Part::Flush) => {}
            // SAFETY: 1. The tree that is loaded already.
            None => unsafe { load_root(current_root()) },
        }
    }

    fn load(&self, _: &Pinned<'_>, root: &Root) {
        // SAFETY: 1. The library's roots carry the kernel's half, and stay until `unload`.
        unsafe { load_root(root.at.0) };
    }

    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {
        // SAFETY: 1. The root that the machine booted on maps the kernel and is a static.
        unsafe { load_root(boot::kernel_root().physical()) };
    }
}

impl Ipi for Hardware {
    fn send(&self, _: &Pinned<'_>, cpus: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {
        for cpu in cpus.iter() {
            KERNEL.count(Count::Ipis);
            smp::interrupt(usize::from(cpu.0));
        }
    }
}

/// Leaves the lower half of the boot root to programs.
pub fn drop_identity() {
    boot::kernel_root().set(0, 0);
    // SAFETY: 1. The tree that is loaded already.
    unsafe { load_root(current_root()) };
}
