//! The functions for C, by what they are about.
pub mod counts;
pub mod cpu;
pub mod gather;
pub mod kernel;
pub mod kmap;
pub mod machine;
pub mod page;
pub mod quicklist;
pub mod space;
pub mod text;
pub mod tree;
#[cfg(feature = "yardstick")]
pub mod yardstick;

use crate::arch::PT_PAGE_SIZE;
use crate::error::PtError;

/// A page of a tree, or of a C kernel's own: where it is mapped to and what may be done with it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtPage {
    /// Its address.
    pub va: u64,
    /// The physical address of its frame.
    pub phys: u64,
    /// Values of `enum pt_attr`, combined with `|`.
    pub attr: u32,
}

/// What may be done with a page, combined with `|`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtAttr {
    /// It may be read. A page without this is not present for the MMU and keeps its frame.
    Read = 1,
    /// It may be written.
    Write = 2,
    /// Instructions may be fetched.
    Exec = 4,
    /// The user may use it.
    User = 8,
    /// The MMU has used it. Only in answers.
    Accessed = 32,
    /// The MMU has written through it. Only in answers.
    Dirty = 64,
}

/// What a caller may ask for.
const ASKED: u32 = PtAttr::Read as u32 | PtAttr::Write as u32 | PtAttr::Exec as u32 | PtAttr::User as u32;

/// Reads attributes that are asked for.
pub(crate) fn asked(attr: u32) -> Result<ptarmigan::format::Attr, PtError> {
    if attr & !ASKED == 0 { Ok(ptarmigan::format::Attr(attr as u16)) } else { Err(PtError::Argument) }
}

/// Refuses what is not at the border of a page.
pub(crate) fn aligned(number: u64) -> Result<(), PtError> {
    if number.is_multiple_of(PT_PAGE_SIZE) { Ok(()) } else { Err(PtError::Range) }
}

/// Writes an answer to where C wants it.
///
/// # Safety
///
/// 1. `to` is NULL, misaligned, or may be written.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), PtError> {
    if to.is_null() || !to.is_aligned() {
        return Err(PtError::Pointer);
    }
    // SAFETY: 1.
    unsafe { to.write(value) };
    Ok(())
}

/// Refuses a pointer that [`put`] would refuse.
pub(crate) fn takes<T>(to: *mut T) -> Result<(), PtError> {
    if to.is_null() || !to.is_aligned() { Err(PtError::Pointer) } else { Ok(()) }
}
