//! The user program of an image: a flat binary in pages of its own, which spaces map as an object.

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};
use ptarmigan::setup::Objects;

/// The bytes of a program, whole pages, from the start of a page on.
#[repr(C, align(4096))]
pub struct Pages<B: ?Sized>(pub B);

impl Pages<[u8]> {
    /// Returns it as an object.
    ///
    /// # Safety
    ///
    /// 1. The program's physical address must be its own minus `direct_map`.
    pub unsafe fn object(&'static self, direct_map: u64) -> Program {
        let first = PhysAddr(self.0.as_ptr().addr() as u64 - direct_map).pfn();
        Program { first, len: self.0.len() as u64, page: FRAME_SIZE as u64 }
    }
}

/// A program in the image.
#[derive(Clone, Copy)]
pub struct Program {
    first: Pfn,
    len: u64,
    page: u64,
}

impl Program {
    /// Describes one of `len` bytes in memory, of pages of `page` bytes. `at`, `len` and `page` are
    /// multiples of `page` and of a frame.
    ///
    /// # Safety
    ///
    /// 1. Nobody writes to that memory, and it is no machine's.
    pub unsafe fn in_memory(at: PhysAddr, len: u64, page: u64) -> Self {
        Program { first: at.pfn(), len, page }
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }
}

/// The object that a program is.
pub const OBJECT: u32 = 1;

// SAFETY: 1. Programs are constants of the image (`Pages::object`, point 1) or memory apart
// (`in_memory`, point 1), aligned to pages, mapped without the permission to write, and no frames
// of the machine's.
unsafe impl Objects for Program {
    fn frame(&self, object: u32, page: u64) -> Option<Pfn> {
        let at = page.checked_mul(self.page).filter(|at| object == OBJECT && *at < self.len)?;
        Some(Pfn(self.first.0 + (at / FRAME_SIZE as u64) as u32))
    }
}
