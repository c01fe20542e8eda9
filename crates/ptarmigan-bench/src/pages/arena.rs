//! Memory for contenders without memory of their own.
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::contender::PAGE;

/// Contiguous zeroed pages, like a kernel's direct map: aligned for huge pages, made of them if the
/// host has any, and touched in advance.
pub struct Arena {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the arena owns plain memory and hands out only its address.
unsafe impl Send for Arena {}
// SAFETY: as above; the owner of a page decides about its use.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates `pages` pages.
    ///
    /// # Errors
    ///
    /// If they do not fit an address space.
    pub fn new(pages: usize) -> Result<Self, String> {
        let bytes = pages.max(1).checked_mul(PAGE);
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, 2 << 20).ok());
        let layout = layout.ok_or_else(|| format!("{pages} pages do not fit an address space"))?;
        // SAFETY: the size of the layout is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        // SAFETY: the range is that of the block just made, and the advice does not change its
        // contents. A kernel without huge pages refuses the advice.
        unsafe { libc::madvise(base.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        for at in (0..layout.size()).step_by(PAGE) {
            // SAFETY: the address lies in the block, which nothing else uses yet.
            unsafe { base.as_ptr().add(at).write_volatile(0) };
        }
        Ok(Arena { base, layout })
    }

    /// Returns the first page.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the block with this layout, and pages in use borrow the owner of
        // the arena.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
