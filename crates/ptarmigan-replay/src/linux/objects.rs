//! The objects that areas map: files, of which the trace does not say how long they are, and shared
//! anonymous memory, which is as long as it was when it was mapped.

/// Any file.
pub const FILE: u32 = 1;
/// Marks shared memory; the other bits are its pages.
const SHARED: u32 = 1 << 31;

/// Shared anonymous memory of so many pages. Memory of equal length has the same number: areas of
/// it join only if one continues the other, too.
pub fn of_pages(pages: u64) -> u32 {
    SHARED | u32::try_from(pages).unwrap_or(u32::MAX).min(SHARED - 1)
}

/// Returns whether an object has a page.
#[inline]
pub fn has_page(object: u32, page: u64) -> bool {
    object & SHARED == 0 || page < u64::from(object & !SHARED) || object == u32::MAX
}
