//! The functions for C, by subject.
pub mod counts;
pub mod cpu;
pub mod dirty;
pub mod gather;
pub mod kernel;
pub mod kmap;
pub mod large;
pub mod machine;
pub mod page;
pub mod quicklist;
pub mod space;
pub mod text;
pub mod tree;

use crate::arch::PT_PAGE_SIZE;
use crate::error::PtError;

/// Refuses a number that is not at the border of a page.
pub(crate) fn aligned(number: u64) -> Result<(), PtError> {
    if number.is_multiple_of(PT_PAGE_SIZE) { Ok(()) } else { Err(PtError::Range) }
}
