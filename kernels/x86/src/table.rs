//! Pages of tables that an image makes itself, and the instructions of address translation.
//!
//! ```text
//!  set      entries of the table below ──> link, release
//!  MMU                                      └─> walks: the table is complete
//!  get      acquire ──> the table that it links can be read
//! ```
//!
//! # Why
//!
//! Boot code makes a few tables before the library is there. An MMU may walk ahead at any time,
//! also while paging is on for this very code: a table must be complete before its link is stored.
//! Entries are atomics because the MMU sets accessed and dirty bits in them.

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// A table of `N` entries. Atomics, because the MMU writes accessed and dirty bits at any time.
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

    /// Sets an entry; whatever it links is complete before it can be seen.
    pub fn set(&self, index: usize, entry: u64) {
        self.0[index].store(entry, Ordering::Release);
    }

    /// Returns its physical address; `direct_map` is where physical address 0 is mapped. The image,
    /// and so every static, is in the direct map.
    pub fn physical(&'static self, direct_map: u64) -> u64 {
        ptr::from_ref(self).addr() as u64 - direct_map
    }
}

/// Drops this CPU's translation of one page.
#[inline]
pub fn invalidate_page(at: u64) {
    // SAFETY: 1. Forgetting a translation changes no memory; the walk that follows reads the
    // current tables.
    unsafe { asm!("invlpg [{}]", in(reg) at as usize, options(nostack, preserves_flags)) };
}

/// Returns the physical address of the root that is loaded.
pub fn current_root() -> u64 {
    let root: usize;
    // SAFETY: 1. Reading the register has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root as u64
}

/// Loads a root, and drops all translations of this CPU that are not global.
///
/// # Safety
///
/// 1. The tree maps the kernel as the current one does, and stays until the next load.
#[inline]
pub unsafe fn load_root(root: u64) {
    // SAFETY: 1. Point 1 is passed on.
    unsafe { asm!("mov cr3, {}", in(reg) root as usize, options(nostack, preserves_flags)) };
}
