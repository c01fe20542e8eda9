//! Keeps the address of the kernel's root.
use crate::addr::PhysAddr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The physical address of a root without entries of programs. It is a whole word: a 32-bit machine
/// has its roots below 4 GiB.
pub(super) struct KernelRootCell(AtomicUsize);

/// No root lies at an odd address.
const UNSET: usize = usize::MAX;

impl KernelRootCell {
    /// Makes one that holds no address.
    pub(super) const fn new() -> Self {
        KernelRootCell(AtomicUsize::new(UNSET))
    }

    /// Makes one that holds an address.
    pub(super) const fn holding(at: PhysAddr) -> Self {
        KernelRootCell(AtomicUsize::new(at.0 as usize))
    }

    /// Sets the address.
    pub(super) fn set(&self, at: PhysAddr) {
        self.0.store(at.0 as usize, Ordering::Relaxed);
    }

    /// Returns the address.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            UNSET => unset(),
            at => at as u64,
        }
    }
}

#[cold]
fn unset() -> ! {
    panic!(
        "a CPU leaves a space, and the MMU has no kernel's root: set it up with `set_kernel_root` or `with_kernel_root`"
    )
}
