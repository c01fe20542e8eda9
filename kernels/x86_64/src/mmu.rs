//! The instructions and the raw table page: what hardware offers below any library.

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Where the low 4 GiB of physical memory are mapped, the image among them: slot 256 of every root
/// table.
pub const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// Entry bit: present.
pub const PRESENT: u64 = 1;
/// Entry bit: writable.
pub const WRITABLE: u64 = 1 << 1;
/// Entry bit, set by the MMU: used.
pub const ACCESSED: u64 = 1 << 5;
/// Entry bit, set by the MMU: written through.
pub const DIRTY: u64 = 1 << 6;
/// Entry bit: not executable.
pub const NO_EXECUTE: u64 = 1 << 63;

/// A page of 512 entries. Atomics, because the MMU writes accessed and dirty bits at any time.
#[repr(C, align(4096))]
pub struct TablePage([AtomicU64; 512]);

impl TablePage {
    /// An empty table.
    pub const fn new() -> Self {
        TablePage([const { AtomicU64::new(0) }; 512])
    }

    /// The entry.
    pub fn get(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Acquire)
    }

    /// Sets the entry; whatever it links is complete before it can be seen.
    pub fn set(&self, index: usize, entry: u64) {
        self.0[index].store(entry, Ordering::Release);
    }

    /// Its physical address: the image, and so every table it has as a static, is in the direct
    /// map.
    pub fn physical(&'static self) -> u64 {
        ptr::from_ref(self).addr() as u64 - DIRECT_MAP
    }
}

/// Where a physical address below 4 GiB is reached for good, whatever the current space maps.
pub fn direct<T>(physical: u64) -> *mut T {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + physical) as usize)
}

/// Drops this CPU's translation of one page.
pub fn invlpg(address: u64) {
    // SAFETY: forgetting a translation changes no memory; the walk that follows reads the current
    // tables.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// The physical address of the current root table.
pub fn current_top() -> u64 {
    let top: u64;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) top, options(nomem, nostack, preserves_flags)) };
    top & 0x000f_ffff_ffff_f000
}

/// Switches to another root table and forgets all translations that are not global.
///
/// # Safety
///
/// The tree maps the running code, its stack and the trap tables as the current one does, and stays
/// valid until the next switch.
pub unsafe fn load_top(top: u64) {
    // SAFETY: the caller vouches for the tree.
    unsafe { asm!("mov cr3, {}", in(reg) top, options(nostack, preserves_flags)) };
}
