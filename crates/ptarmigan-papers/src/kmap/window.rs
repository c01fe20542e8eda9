//! A window of real slots: pages of a file in memory, whose translations the host forgets on
//! request.
//!
//! The window is one mapping, as a kernel's is one table. To forget a slot is `madvise` with
//! `MADV_DONTNEED`: the host takes the entry out of its page table and the translation out of its
//! TLBs. Of a free slot there is neither. A live slot that is forgotten with others stays mapped,
//! and its next use is a fault that finds the same page.
use ptarmigan::tlb::{Scope, SlotSet};
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

const SHIFT: u32 = 12;
const PAGE: usize = 1 << SHIFT;
const BYTES: usize = SlotSet::SLOTS << SHIFT;

/// 1,024 slots.
pub(super) struct RealWindow {
    base: NonNull<u8>,
    /// Calls that the host refused.
    refused: Cell<bool>,
}

impl RealWindow {
    /// Maps the window. All pages exist, and no page has a translation.
    ///
    /// # Errors
    ///
    /// The error of the host.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the name is a string, and the call makes a new file.
        let file = unsafe { libc::memfd_create(c"ptarmigan-window".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of that file at an address of the host's choice. The descriptor is
        // not used again.
        let mapped = unsafe {
            let sized = libc::ftruncate(file, BYTES as libc::off_t) == 0;
            let at = libc::mmap(std::ptr::null_mut(), BYTES, prot, libc::MAP_SHARED, file, 0);
            libc::close(file);
            (sized && at != libc::MAP_FAILED).then_some(at)
        };
        let base = mapped.and_then(|at| NonNull::new(at.cast())).ok_or_else(io::Error::last_os_error)?;
        let window = RealWindow { base, refused: Cell::new(false) };
        window.advise(0, BYTES, libc::MADV_NOHUGEPAGE);
        // A host without huge pages knows no such advice.
        window.refused.set(false);
        (0..SlotSet::SLOTS).for_each(|slot| window.touch(slot));
        window.forget_all();
        Ok(window)
    }

    /// Returns an empty set of its slots.
    pub fn set(&self) -> SlotSet {
        SlotSet::new(self.base.as_ptr() as u64, SHIFT)
    }

    /// Writes to a slot: a fault, if the host has no translation.
    #[inline]
    pub fn touch(&self, slot: usize) {
        let at = self.base.as_ptr().wrapping_add(slot % SlotSet::SLOTS * PAGE).cast::<u64>();
        // SAFETY: a word of the window, which has no other users.
        unsafe { at.write_volatile(slot as u64) };
    }

    /// Makes the host forget the slots that `scope` covers; runs are a call each.
    #[inline]
    pub fn forget(&self, scope: &Scope) {
        let base = self.base.as_ptr() as u64;
        let one = |start: u64, end: u64| {
            self.advise((start - base) as usize, (end - start) as usize, libc::MADV_DONTNEED);
        };
        match scope {
            Scope::Page { at, shift } => one(*at, at + (1 << shift)),
            Scope::Range { start, end, .. } => one(*start, *end),
            Scope::Runs(_) => scope.runs().into_iter().flatten().for_each(|(start, end, _)| one(start, end)),
            Scope::Full => one(base, base + BYTES as u64),
        }
    }

    /// Has the host forget all slots.
    pub fn forget_all(&self) {
        self.forget(&Scope::Full);
    }

    /// Returns whether the host has refused a call: the times are then meaningless.
    pub fn refused(&self) -> bool {
        self.refused.get()
    }

    fn advise(&self, offset: usize, len: usize, advice: i32) {
        debug_assert!(offset + len <= BYTES);
        // SAFETY: the range lies in the window, whose pages are the file's: none is lost.
        if unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, advice) } != 0 {
            self.refused.set(true);
        }
    }
}

impl Drop for RealWindow {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.base.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan::tlb::Plan;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Which slots the host has translations for.
    fn present(window: &RealWindow) -> Vec<bool> {
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut entries = vec![0; 8 * SlotSet::SLOTS];
        pagemap.read_exact_at(&mut entries, (window.base.as_ptr() as u64 >> SHIFT) * 8).unwrap();
        entries.chunks(8).map(|entry| entry[7] >> 7 == 1).collect()
    }

    #[test]
    fn every_plan_takes_stale_slots_and_only_the_window_others() {
        let window = RealWindow::new().unwrap();
        assert!(present(&window).iter().all(|present| !present));
        let mut stale = window.set();
        [3, 4, 9, 700].into_iter().for_each(|slot| stale.insert(slot));
        for plan in [Plan::Pages, Plan::Runs, Plan::Window] {
            (0..SlotSet::SLOTS).for_each(|slot| window.touch(slot));
            assert!(present(&window).iter().all(|present| *present));
            stale.each_scope(plan, |scope| window.forget(scope));
            for (slot, present) in present(&window).into_iter().enumerate() {
                let gone =
                    if plan == Plan::Window { (3..=700).contains(&slot) } else { stale.contains(slot) };
                assert_eq!(present, !gone, "{plan:?}: slot {slot}");
            }
            let at = window.base.as_ptr().wrapping_add(500 * PAGE).cast::<u64>();
            // SAFETY: a word of the window.
            assert_eq!(unsafe { at.read_volatile() }, 500, "a live slot shows another page");
        }
        assert!(!window.refused());
    }
}
