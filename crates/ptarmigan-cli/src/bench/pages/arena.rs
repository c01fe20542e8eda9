//! Memory for contenders that bring none of their own.
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::contender::PAGE;

/// Zeroed pages next to each other, as a kernel's direct map shows them: aligned for huge pages and, if the host has any,
/// made of them; touched in advance.
pub struct Arena {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns plain memory and gives out its address alone.
unsafe impl Send for Arena {}
// SAFETY: as above; who was handed a page says who may use it.
unsafe impl Sync for Arena {}

impl Arena {
    /// Memory for `pages` pages.
    ///
    /// # Errors
    ///
    /// If that is more than an address space holds.
    pub fn new(pages: usize) -> Result<Self, String> {
        let bytes = pages.max(1).checked_mul(PAGE);
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, 2 << 20).ok());
        let layout = layout.ok_or_else(|| format!("{pages} pages do not fit an address space"))?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        // SAFETY: the range is that of the block just made; the advice does not change what it holds. A kernel without
        // huge pages refuses, and has none.
        unsafe { libc::madvise(base.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        for at in (0..layout.size()).step_by(PAGE) {
            // SAFETY: inside the block, which nobody else knows yet.
            unsafe { base.as_ptr().add(at).write_volatile(0) };
        }
        Ok(Arena { base, layout })
    }

    /// The first page.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: `new` made it with this layout; pages in use borrow whoever owns the arena.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
