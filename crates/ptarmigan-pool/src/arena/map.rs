//! Converts between the addresses and the frame numbers of a pool's pages: an address for each
//! number, and back.
//!
//! To the frame allocator and the lists a page of the pool is one frame, whatever its size: frame n
//! is page n of the arena. So larger pages need no larger blocks, and the budgets count pages.
//! Pages lie side by side, or each above a gap, its guard:
//!
//! ```text
//! | gap | page 0 | gap | page 1 | …
//!       ^ base         ^ base + stride
//! ```
use ptarmigan::addr::{FRAME_SHIFT, FRAME_SIZE, PhysAddr};
use ptarmigan::window::{Window, WindowGuard};
use std::convert::Infallible;
use std::ops::Range;
use std::ptr::NonNull;

/// The memory of one page.
#[derive(Clone, Copy, Debug)]
pub struct RawPage {
    base: NonNull<u8>,
    size: usize,
}

impl RawPage {
    /// Returns its first byte. It is aligned to the host's page size at least; to the page's own
    /// size if that is a power of two and the pool's pages have no guards.
    pub fn base(self) -> NonNull<u8> {
        self.base
    }

    /// Returns its bytes.
    pub fn size(self) -> usize {
        self.size
    }
}

/// Pages of one size, and where they are.
#[derive(Clone, Copy)]
pub(crate) struct Map {
    base: NonNull<u8>,
    size: usize,
    /// Bytes from one page to the next.
    stride: usize,
    /// The same in frames.
    scale: usize,
    /// How often `scale` can be halved, and the inverse of what is left, modulo 2^64 (or 2^32): a
    /// multiple of the stride is divided by it with a shift and a multiplication.
    shift: u32,
    inverse: usize,
}

// SAFETY: it is an address; only the holder of a page uses its memory.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Describes pages of `size` bytes from `base` on, with `gap` bytes before each.
    pub fn new(base: NonNull<u8>, size: usize, gap: usize) -> Self {
        let stride = size + gap;
        let scale = stride / FRAME_SIZE;
        let shift = scale.trailing_zeros();
        Map { base, size, stride, scale, shift, inverse: inverse(scale >> shift) }
    }

    /// Returns the page of a number under management.
    #[inline]
    pub fn nth(self, number: usize) -> RawPage {
        // SAFETY: numbers under management are those of pages of the arena.
        RawPage { base: unsafe { self.base.add(number * self.stride) }, size: self.size }
    }

    /// Returns the page of an address under management.
    #[inline]
    pub fn page(self, at: PhysAddr) -> RawPage {
        // SAFETY: as in `nth`; the address of a frame is its number in frames.
        RawPage { base: unsafe { self.base.add(at.0 as usize * self.scale) }, size: self.size }
    }

    /// Returns the page at `base`.
    #[inline]
    pub fn raw(self, base: NonNull<u8>) -> RawPage {
        RawPage { base, size: self.size }
    }

    /// Returns the bytes of a page.
    #[inline]
    pub fn size(self) -> usize {
        self.size
    }

    /// Returns the bytes between two pages.
    pub fn gap(self) -> usize {
        self.stride - self.size
    }

    /// Returns the addresses of the gap below a page.
    pub fn gap_below(self, page: RawPage) -> Range<usize> {
        let base = page.base.addr().get();
        base - self.gap()..base
    }

    /// Returns the number of the page at `base`.
    #[inline]
    pub fn number(self, base: NonNull<u8>) -> usize {
        self.addr(base).0 as usize >> FRAME_SHIFT
    }

    /// Returns the number of the page at `base` if it is the base of one of the first `pages`.
    pub fn find(self, base: NonNull<u8>, pages: usize) -> Option<usize> {
        let offset = base.addr().get().checked_sub(self.base.addr().get())?;
        let number = offset / self.stride;
        (number < pages && offset.is_multiple_of(self.stride)).then_some(number)
    }

    /// Returns the address under which the library knows the page at `base`.
    #[inline]
    pub fn addr(self, base: NonNull<u8>) -> PhysAddr {
        let offset = base.addr().get() - self.base.addr().get();
        // The offset is n * scale * 4096. What is left of that is n * 4096.
        let at = PhysAddr((offset >> self.shift).wrapping_mul(self.inverse) as u64);
        debug_assert_eq!(self.page(at).base, base, "not the base of a page");
        at
    }

    /// Returns whether every byte of `page` is zero.
    ///
    /// # Safety
    ///
    /// 1. `page` must be readable, and nobody writes to it meanwhile.
    pub unsafe fn is_zero(page: RawPage) -> bool {
        // SAFETY: readable (1.), aligned to the host's pages, and its size is a multiple of 8.
        let words = unsafe { std::slice::from_raw_parts(page.base.cast::<u64>().as_ptr(), page.size / 8) };
        words.iter().all(|w| *w == 0)
    }
}

/// Returns the inverse of an odd number, modulo 2^64 (or 2^32): each step of Newton's doubles the
/// bits that are right, of which 3 are to begin with.
fn inverse(odd: usize) -> usize {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2_usize.wrapping_sub(odd.wrapping_mul(x))))
}

/// An open window; nothing to close.
pub(crate) struct MapGuard(*mut u8);

// SAFETY: 1. frames are handed out singly, and a frame's memory begins a page, which is at least as
// long. 2. one address, one page. 3. pages are aligned to the host's pages, which are no smaller
// than frames.
unsafe impl Window for Map {
    type Guard<'a> = MapGuard;
    type Error = Infallible;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<MapGuard, Infallible> {
        Ok(MapGuard(self.base.as_ptr().wrapping_add(at.0 as usize * self.scale)))
    }
}

// SAFETY: the arena outlives the guard and never moves.
unsafe impl WindowGuard for MapGuard {
    #[inline]
    fn base(&self) -> *mut u8 {
        self.0
    }
}
