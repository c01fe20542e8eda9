//! Memory for a hash table.
//!
//! # Why
//!
//! The table must be aligned to its size, as the hardware takes its address by bits, and `Vec`
//! promises no such alignment. The library and the sanitizer use it at the same time, so that
//! clones share it. A reader takes the word with the valid bit first: the library stores it last.
//!
//! ```text
//!  library     first word ──> word with the valid bit, release ──┐
//!  sanitizer                  read: valid bit, then first word <──┘
//!  drop        the last clone ──> dealloc
//! ```
use ptarmigan::tlb::hash::HashSize;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory for a hash table, aligned to its size. Clones share it.
#[derive(Clone, Debug)]
pub struct HashMemory(Arc<Block>);

#[derive(Debug)]
struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is used as atomic words alone.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: 1. `HashMemory::new` allocated it with the same allocator, 2. of the same layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl HashMemory {
    /// The physical address at which the sanitizer finds it: above all memory of a host, and a
    /// multiple of all sizes.
    pub const PHYS: u64 = 1 << 48;

    /// Allocates memory for a table of that size, all zero; `None` if the host refuses it.
    pub fn new(size: HashSize) -> Option<Self> {
        let layout = Layout::from_size_align(size.bytes(), size.bytes()).ok()?;
        // SAFETY: no table has 0 bytes.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(HashMemory(Arc::new(Block { base, layout })))
    }

    /// Returns the address of the memory, which is there as long as a clone is.
    pub fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.0.layout.size() as u64
    }

    /// Reads a word of 4 or 8 bytes as a big-endian machine has it in memory, of which the first
    /// byte is the lowest one here.
    pub(crate) fn read(&self, offset: u64, bytes: u8) -> Option<u64> {
        match bytes {
            4 => Some(self.word(offset)?.swap_bytes().into()),
            8 => {
                // The valid bit is in the second word: stores to the first one, which come before
                // it, are seen.
                let low = self.word(offset.checked_add(4)?)?;
                let high = self.word(offset)?;
                Some((u64::from(high) << 32 | u64::from(low)).swap_bytes())
            }
            _ => None,
        }
    }

    fn word(&self, offset: u64) -> Option<u32> {
        let inside = offset < self.bytes() && offset.is_multiple_of(4);
        let word = self.0.base.as_ptr().wrapping_add(offset as usize).cast::<AtomicU32>();
        // SAFETY: the word lies within the memory and is aligned; it is written as an atomic alone.
        inside.then(|| unsafe { (*word).load(Ordering::Acquire) })
    }
}
