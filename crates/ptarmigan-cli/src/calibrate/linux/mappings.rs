//! Real mappings of this process: pages that become stale, and pages that are in use beside them.
use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::io::{Errno, Result};
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mprotect, mremap_fixed,
    munmap,
};

use super::case::{Call, Grid, WORKING_SETS};
use super::random::Random;

const PAGE: usize = 4096;
/// Pages of a leaf table. Both ends of a move lie in one, so no call needs or frees a table.
const TABLE: usize = 512;
/// Bytes in a cache line.
const LINE: usize = 64;
const _: () = assert!(4 * Grid::HIGHEST <= TABLE / 2);

/// Pages at home, which calls change, and pages in use.
pub(super) struct Mappings {
    /// Home, and behind it the place that pages are moved to.
    moving: PrivateMemory,
    /// The first page of `moving` that is at the beginning of a leaf table.
    home: usize,
    /// Pages at home.
    pages: usize,
    in_use: PrivateMemory,
    /// Where to read in `in_use`: one line of each page, in random order.
    order: Vec<usize>,
}

impl Mappings {
    /// Maps `pages` pages for calls, and pages in use, and touches all of them.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(super) fn new(pages: usize, random: &mut Random) -> Result<Self> {
        let moving = PrivateMemory::new(2 * TABLE)?;
        let home = moving.start.as_ptr().align_offset(TABLE * PAGE) / PAGE;
        (home..home + pages).for_each(|page| moving.write(page * PAGE));
        let used = WORKING_SETS[WORKING_SETS.len() - 1];
        let in_use = PrivateMemory::new(used)?;
        (0..used).for_each(|page| in_use.write(page * PAGE));
        let mut order: Vec<usize> = (0..used).map(|page| page * PAGE + page * LINE % PAGE).collect();
        random.shuffle(&mut order);
        Ok(Mappings { moving, home, pages, in_use, order })
    }

    /// Reads the first pages of the working set.
    #[inline]
    pub(super) fn read(&self, working_set: usize) {
        self.order.iter().take(working_set).for_each(|offset| self.in_use.read(*offset));
    }

    /// Touches the first pages at home, and brings them into the state that `call` changes.
    pub(super) fn prepare(&mut self, call: Call, pages: usize) -> Result<()> {
        (self.home..self.home + pages).for_each(|page| self.moving.write(page * PAGE));
        match call {
            Call::Revoke | Call::Move => Ok(()),
            // All pages, so that the entries in the TLB do not depend on how many there are.
            Call::Allow => self.moving.protect(self.home, self.pages, MprotectFlags::empty()),
        }
    }

    /// Makes the call on the first pages at home.
    #[inline]
    pub(super) fn call(&mut self, call: Call, pages: usize) -> Result<()> {
        match call {
            Call::Revoke => self.moving.protect(self.home, pages, MprotectFlags::empty()),
            Call::Allow => self.moving.protect(self.home, pages, MprotectFlags::READ),
            Call::Move => self.moving.relocate(self.home, self.away(), pages),
        }
    }

    /// Brings the pages back into the state before `prepare`.
    pub(super) fn undo(&mut self, call: Call, pages: usize) -> Result<()> {
        match call {
            Call::Revoke | Call::Allow => {
                self.moving.protect(self.home, self.pages, MprotectFlags::READ | MprotectFlags::WRITE)
            }
            Call::Move => self.moving.relocate(self.away(), self.home, pages),
        }
    }

    /// The first page that pages are moved to.
    fn away(&self) -> usize {
        self.home + TABLE / 2
    }
}

/// Private memory in small pages. It belongs to this value from beginning to end, whatever moves
/// inside.
struct PrivateMemory {
    start: NonNull<u8>,
    pages: usize,
}

impl PrivateMemory {
    fn new(pages: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so no memory of anything else's is mapped over.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), pages * PAGE, protection, MapFlags::PRIVATE) }?;
        let area = PrivateMemory { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, pages };
        // SAFETY: the range is the area's. The advice changes no contents.
        let advice = unsafe { madvise(start, pages * PAGE, Advice::LinuxNoHugepage) };
        // A kernel without huge pages does not know the advice, and does not need it.
        advice.or_else(|e| if e == Errno::INVAL { Ok(()) } else { Err(e) })?;
        Ok(area)
    }

    /// Returns the address of a byte.
    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.pages * PAGE);
        self.start.as_ptr().wrapping_add(offset)
    }

    #[inline]
    fn write(&self, offset: usize) {
        assert!(offset < self.pages * PAGE);
        // SAFETY: 1. The byte lies in the area, which is mapped; no reference to it exists. 2. Only
        // pages between `call` and `undo` are not writable, and no page is written to there.
        unsafe { self.at(offset).write_volatile(1) };
    }

    #[inline]
    fn read(&self, offset: usize) {
        assert!(offset < self.pages * PAGE);
        // SAFETY: the byte lies in the area, all of which is mapped and readable, always.
        unsafe { self.at(offset).read_volatile() };
    }

    #[inline]
    fn protect(&mut self, first: usize, pages: usize, protection: MprotectFlags) -> Result<()> {
        let start = self.range(first, pages)?;
        // SAFETY: 1. The range lies in the area (`range`). 2. No reference into it exists.
        unsafe { mprotect(start, pages * PAGE, protection) }
    }

    /// Moves pages inside. Where they were there are fresh ones, so that the area has no hole that
    /// another mapping could come into.
    #[inline]
    fn relocate(&mut self, from: usize, to: usize, pages: usize) -> Result<()> {
        let (from, to) = (self.range(from, pages)?, self.range(to, pages)?);
        let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
        // SAFETY: 1. Both addresses are those of pages. 2. Both ranges lie in the area (`range`),
        // so the call replaces only its pages. 3. No reference into it exists.
        unsafe { mremap_fixed(from, pages * PAGE, pages * PAGE, flags, to) }.map(|_| ())
    }

    /// Returns the address of a page.
    ///
    /// # Errors
    ///
    /// If pages from there on are not all in the area.
    fn range(&self, first: usize, pages: usize) -> Result<*mut c_void> {
        let inside = first.checked_add(pages).is_some_and(|end| end <= self.pages);
        if inside { Ok(self.at(first * PAGE).cast()) } else { Err(Errno::FAULT) }
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        // SAFETY: the area is mapped from beginning to end, and this was the last use. If the
        // kernel refuses, the memory stays until the process ends.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.pages * PAGE) };
    }
}
