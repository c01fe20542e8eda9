//! The memory of a pool, seen by the library as physical memory.
//!
//! To the frame allocator and the lists a page of the pool is one frame, whatever its size: frame n
//! is the page n * page size from the start of the arena. So larger pages need no larger blocks,
//! and the budgets count pages.
use super::super::mapping::Mapping;
use crate::addr::{FRAME_SIZE, PhysAddr};
use crate::window::{Window, WindowGuard};
use rustix::mm::{Advice, madvise};
use std::convert::Infallible;
use std::ptr::NonNull;

/// The memory of one page.
#[derive(Clone, Copy, Debug)]
pub struct RawPage {
    base: NonNull<u8>,
    size: usize,
}

impl RawPage {
    /// Its first byte, aligned to the page's size.
    pub fn base(self) -> NonNull<u8> {
        self.base
    }

    /// Its bytes.
    pub fn size(self) -> usize {
        self.size
    }
}

/// Pages of one size, and where they are.
#[derive(Clone, Copy)]
pub(super) struct Map {
    base: NonNull<u8>,
    /// Binary logarithm of the page size, less that of a frame.
    shift: u32,
}

// SAFETY: it is an address; only the holder of a page uses what lies there.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

/// A block of memory of the host's for all pages; gone when dropped.
pub(super) struct Arena {
    map: Map,
    _mapping: Mapping,
}

impl Arena {
    /// Memory for `pages` pages of 2^(`shift` + 12) bytes, all zero.
    pub fn new(pages: usize, shift: u32) -> rustix::io::Result<Self> {
        let size = FRAME_SIZE << shift;
        let len = pages * size;
        let mapping = Mapping::new(len + size)?;
        let pad = mapping.base().as_ptr().align_offset(size);
        // SAFETY: the mapping is a whole page longer than `len`, and `pad` is less than a page.
        let base = unsafe { mapping.base().add(pad) };
        // What a page takes is to be what is touched of it, so that it can be given back exactly.
        // Failure is no failure: a host may be built without huge pages.
        let advice = if size < 2 << 20 { Advice::LinuxNoHugepage } else { Advice::LinuxHugepage };
        // SAFETY: the range lies in this mapping; the advice does not change what it holds.
        let _ = unsafe { madvise(base.as_ptr().cast(), len, advice) };
        Ok(Arena { map: Map { base, shift }, _mapping: mapping })
    }

    #[inline(always)]
    pub fn map(&self) -> Map {
        self.map
    }
}

impl Map {
    #[inline(always)]
    pub fn page(self, at: PhysAddr) -> RawPage {
        // SAFETY: addresses are those of frames under management, each of which is a page of the
        // arena.
        let base = unsafe { self.base.add((at.0 as usize) << self.shift) };
        RawPage { base, size: FRAME_SIZE << self.shift }
    }

    /// The page at `base`.
    #[inline(always)]
    pub fn raw(self, base: NonNull<u8>) -> RawPage {
        RawPage { base, size: self.size() }
    }

    #[inline(always)]
    pub fn size(self) -> usize {
        FRAME_SIZE << self.shift
    }

    /// The address under which the library knows the page at `base`.
    #[inline(always)]
    pub fn addr(self, base: NonNull<u8>) -> PhysAddr {
        let offset = base.as_ptr() as usize - self.base.as_ptr() as usize;
        debug_assert!(offset.is_multiple_of(self.size()), "{base:p} is not the base of a page");
        PhysAddr((offset >> self.shift) as u64)
    }

    /// Gives a page's memory back to the host; the page is zero then. False if the host did not
    /// take it (memory that is locked, say), and it was cleared instead.
    ///
    /// # Safety
    ///
    /// 1. `page` is a page of this map, readable and writable, and the caller owns it.
    pub unsafe fn give_back(self, page: RawPage) -> bool {
        let at = page.base.as_ptr();
        // SAFETY: the page lies in the arena, which is private anonymous memory, and is the
        // caller's (1.).
        if unsafe { madvise(at.cast(), page.size, Advice::LinuxDontNeed) }.is_ok() {
            return true;
        }
        // SAFETY: the caller's, and writable (1.).
        unsafe { at.write_bytes(0, page.size) };
        false
    }

    /// Whether every byte of `page` is zero.
    ///
    /// # Safety
    ///
    /// 1. `page` is readable, and nobody writes to it meanwhile.
    pub unsafe fn is_zero(page: RawPage) -> bool {
        // SAFETY: readable (1.), aligned to its size, and its size is a multiple of 8.
        let words = unsafe { std::slice::from_raw_parts(page.base.cast::<u64>().as_ptr(), page.size / 8) };
        words.iter().all(|w| *w == 0)
    }
}

/// An open window; nothing to close.
pub(super) struct MapGuard(*mut u8);

// SAFETY: 1. frames are handed out singly, and a frame's memory begins a page, which is at least as
// long. 2. one address, one page. 3. pages are aligned to their size.
unsafe impl Window for Map {
    type Guard<'a> = MapGuard;
    type Error = Infallible;

    #[inline(always)]
    fn map(&self, at: PhysAddr) -> Result<MapGuard, Infallible> {
        Ok(MapGuard(self.base.as_ptr().wrapping_add((at.0 as usize) << self.shift)))
    }
}

// SAFETY: the arena outlives the guard and never moves.
unsafe impl WindowGuard for MapGuard {
    #[inline(always)]
    fn base(&self) -> *mut u8 {
        self.0
    }
}
