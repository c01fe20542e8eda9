//! The user program: a flat binary in pages of its own, which spaces map as an object.

use ptarmigan::addr::{FRAME_SIZE, Pfn, PhysAddr};

use crate::mmu;

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/user.bin"));

#[repr(C, align(4096))]
struct Pages([u8; BYTES.len()]);

static PROGRAM: Pages = Pages({
    let mut pages = [0; BYTES.len()];
    let mut at = 0;
    while at < BYTES.len() {
        pages[at] = BYTES[at];
        at += 1;
    }
    pages
});

/// Its name as an object.
pub const OBJECT: u32 = 1;

/// Its size, whole pages.
pub const LEN: u64 = BYTES.len() as u64;

/// The frame in which a page of an object is kept.
pub fn frame(object: u32, page: u64) -> Option<Pfn> {
    let offset = page.checked_mul(FRAME_SIZE as u64)?;
    (object == OBJECT && offset < LEN).then(|| PhysAddr(mmu::physical(&raw const PROGRAM) + offset).pfn())
}
