//! What a CPU does to its own TLB, and how it interrupts others.

use core::marker::PhantomData;

use ptarmigan::cpu::{CpuSet, Pinned};
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, SpaceId, Structures};

use crate::table;

/// What an image brings.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. [`kernel_root`](Self::kernel_root) is the address of a root that maps the kernel as all roots
///    do, and nothing of programs, and that stays for good.
pub unsafe trait Cpus: Sync {
    /// Whether the calling CPU forgets translations when it should: always, but in runs that leave
    /// that out on purpose.
    fn forgets() -> bool;
    /// Whether CPUs are interrupted when they should be: always, but in such runs.
    fn interrupts() -> bool;
    /// Returns the physical address of the kernel's own root.
    fn kernel_root() -> u64;
    /// Interrupts another CPU.
    fn interrupt(cpu: usize);
    /// Counts a page that was forgotten.
    fn count_page();
    /// Counts a root that was loaded.
    fn count_load();
}

/// TLBs of x86 without global pages and without numbers of spaces.
pub struct Hardware<C>(PhantomData<C>);

impl<C: Cpus> Hardware<C> {
    /// Makes one.
    #[expect(clippy::new_without_default, reason = "a machine has one, which is made in one place")]
    pub const fn new() -> Self {
        Hardware(PhantomData)
    }

    /// Has this CPU forget a page.
    #[inline(always)]
    pub fn forget_page(at: u64) {
        if C::forgets() {
            C::count_page();
            table::invalidate_page(at);
        }
    }

    /// # Safety
    ///
    /// 1. The tree maps the kernel as the current one does, and stays until the next load.
    #[inline(always)]
    unsafe fn load_root(root: u64) {
        C::count_load();
        // SAFETY: 1. Point 1 is passed on.
        unsafe { table::load_root(root) };
    }

    /// Has this CPU forget everything.
    fn forget_all() {
        if C::forgets() {
            // SAFETY: 1. The tree that is loaded already.
            unsafe { Self::load_root(table::current_root()) };
        }
    }
}

// SAFETY: 1. and 2. INVLPG drops the page, global or not, and all paging-structure caches; a load
// of CR3 drops everything that is not global, and nothing here is global; under PAE it also reads
// the root's entries again. 3. Likewise. 4. The kernel's own root has no entries of programs
// (`Cpus`, point 1). 5. INVLPG and CR3 are the CPU's own. Its MMU walks tables by itself and caches
// no entry that is not present. 6. No root is kept. 7. Nothing unwinds.
unsafe impl<C: Cpus> Mmu for Hardware<C> {
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        if what.reload_root {
            Self::forget_all();
        } else {
            self.invalidate_kernel(pin, &what.scope);
        }
    }

    fn invalidate_kernel(&self, _: &Pinned<'_>, scope: &Scope) {
        match scope.pages() {
            Some(pages) => pages.for_each(Self::forget_page),
            None => Self::forget_all(),
        }
    }

    fn load(&self, _: &Pinned<'_>, root: &Root) {
        // SAFETY: 1. The library's roots carry the kernel's half, and stay until `unload`.
        unsafe { Self::load_root(root.at.0) };
    }

    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {
        // SAFETY: 1. `Cpus`, point 1.
        unsafe { Self::load_root(C::kernel_root()) };
    }
}

impl<C: Cpus> Ipi for Hardware<C> {
    /// The interrupt controller keeps what is sent until the CPU takes it.
    const RESEND_AFTER: u32 = u32::MAX;

    fn send(&self, _: &Pinned<'_>, cpus: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {
        if C::interrupts() {
            for cpu in cpus.iter() {
                C::interrupt(usize::from(cpu.0));
            }
        }
    }
}
