//! Memory below each page that nobody can touch.
//!
//! A guard is put in place before its page is handed out for the first time, and stays: giving the
//! page's memory back leaves it where it is. Linux since 6.13 keeps guards in page tables
//! (`MADV_GUARD_INSTALL`), elsewhere each is a mapping of its own (`mprotect`), of which a process
//! has 65,530 by default, two for each guard.
use super::bits::Bits;
use super::map::{Map, RawPage};
use crate::error::Refusal;
use rustix::mm::{MprotectFlags, mprotect};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Linux's number for guards in page tables, of all architectures.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// Guards of the pages of an arena.
pub(crate) struct Guards {
    installed: Bits,
    /// Whether the host may know guards in page tables.
    in_tables: AtomicBool,
}

impl Guards {
    /// None of `pages` guards is in place. `None` if there is no memory for the bits.
    pub fn new(pages: usize) -> Option<Self> {
        Some(Guards { installed: Bits::new(pages)?, in_tables: AtomicBool::new(true) })
    }

    /// Puts the guard below a page in place, unless it is there.
    ///
    /// # Errors
    ///
    /// The host's refusal; the gap is readable and writable as it was.
    ///
    /// # Safety
    ///
    /// 1. `page` must be a page of `map`, and one of those that the guards were made for.
    /// 2. The caller must own it.
    pub unsafe fn install(&self, map: Map, page: RawPage) -> Result<(), Refusal> {
        let number = map.number(page.base());
        if self.installed.is_set(number) {
            return Ok(());
        }
        let gap = map.gap();
        // SAFETY: the arena has a gap below each of its pages (1.).
        let at = unsafe { page.base().sub(gap) };
        // SAFETY: the gap lies in the arena, and nothing uses it.
        let in_tables = || unsafe { libc::madvise(at.as_ptr().cast(), gap, MADV_GUARD_INSTALL) } == 0;
        if !(self.in_tables.load(Relaxed) && in_tables()) {
            // SAFETY: as above.
            let protected = unsafe { mprotect(at.as_ptr().cast(), gap, MprotectFlags::empty()) };
            protected.map_err(|e| {
                let advice =
                    "the process has too many mappings: raise vm.max_map_count, or make fewer stacks";
                Refusal::new("mprotect", at.addr().get(), gap, e.raw_os_error(), advice)
            })?;
            // The host does not know them, or not here; asking for each costs a call.
            self.in_tables.store(false, Relaxed);
        }
        self.installed.replace(number, true);
        Ok(())
    }
}
