//! The kernel's half of the machine of 2001: entries with their hash bits, over a hash table.
//!
//! Each of its 262,144 pages has an entry, which is assumed: the mail does not say how many there
//! were.
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use ptarmigan::tlb::hash::{HashLayout, HashTable, Hashed64, Mapping, Refill, Tag};

/// A page of the machine has 4 KiB.
pub(super) const PAGE_SHIFT: u32 = 12;
/// The first address of the kernel's half.
const KERNEL: u32 = 0xc000_0000;
/// The hash table of the machine, in bytes: a quarter of the size that its memory of 1 GiB would
/// get.
const BYTES: usize = 4 << 20;
/// The kernel's context.
const CONTEXT: u32 = 0;

/// Counts of the flush of a page.
#[derive(Clone, Copy)]
pub(super) struct Flushed {
    /// The hash bit was set.
    pub hashed: bool,
    /// Pages that the TLBs were told to forget.
    pub invalidations: u32,
}

/// The kernel's half of a machine with a hash table.
pub(super) struct HashedMachine {
    // Before the memory that it is in: fields are dropped in order.
    table: HashTable<Hashed64>,
    memory: Memory,
    /// For each page of the kernel's half: it was put into the hash table.
    hash_bits: Vec<bool>,
}

impl HashedMachine {
    /// Makes a machine without any mapping.
    ///
    /// # Errors
    ///
    /// If there is no memory for the hash table.
    pub(super) fn new() -> Result<Self, String> {
        let memory = Memory::new().ok_or("no memory for a hash table of 4 MiB")?;
        // SAFETY: 1. The memory is `BYTES` long and freed after the table; nothing else uses it.
        let table = unsafe { HashTable::new(memory.0, BYTES as u64) }.map_err(|e| e.to_string())?;
        let pages = ((u32::MAX - KERNEL) >> PAGE_SHIFT) as usize + 1;
        Ok(HashedMachine { table, memory, hash_bits: vec![false; pages] })
    }

    /// Uses a page: it is missed, and put into the hash table.
    pub(super) fn touch(&mut self, va: u32) {
        let was_hashed = std::mem::replace(&mut self.hash_bits[page(va)], true);
        let entry = Mapping(va & 0x3fff_f000);
        // SAFETY: 1. no MMU reads the table. 2. it is the bit, which a flush takes away.
        unsafe { self.table.insert(Tag::of(CONTEXT, va), Refill { entry, was_hashed }) };
    }

    /// Flushes a page: looks at its hash bit, and takes it out of the hash table and the TLBs if
    /// the bit is set.
    pub(super) fn flush_page(&mut self, va: u32) -> Flushed {
        let hashed = std::mem::take(&mut self.hash_bits[page(va)]);
        let mut invalidations = 0;
        if hashed {
            self.table.remove(Tag::of(CONTEXT, va), || invalidations += 1);
        }
        Flushed { hashed, invalidations }
    }

    /// Calls `visit` with the address of each page of the kernel's half.
    pub(super) fn each_kernel_page(&mut self, mut visit: impl FnMut(&mut Self, u32)) {
        for page in 0..self.hash_bits.len() as u32 {
            visit(self, KERNEL + (page << PAGE_SHIFT));
        }
    }

    /// Clears the table's memory at one stroke, as the mail's `memset` does, and returns the bytes
    /// that were cleared.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub(super) fn clear(&mut self) -> Result<u64, String> {
        // SAFETY: 1. as in `new`: the table that had the memory before is not used any more.
        self.table = unsafe { HashTable::new(self.memory.0, BYTES as u64) }.map_err(|e| e.to_string())?;
        self.hash_bits.fill(false);
        Ok((self.table.entries() * Hashed64::WORDS * size_of::<u32>()) as u64)
    }

    /// Takes all entries out of the table one by one, each of them synchronised. Returns the pages
    /// that the TLBs were told to forget.
    pub(super) fn wipe_synchronised(&mut self) -> u64 {
        let mut invalidations = 0;
        self.table.wipe_synchronised(|| invalidations += 1);
        self.hash_bits.fill(false);
        invalidations
    }

    /// Uses every page of the kernel's half.
    pub(super) fn touch_all(&mut self) {
        self.each_kernel_page(HashedMachine::touch);
    }

    /// Returns the entries of the hash table that were looked at.
    pub(super) fn probes(&self) -> u64 {
        self.table.counts().probes as u64
    }
}

/// The index of a page in the kernel's half.
fn page(va: u32) -> usize {
    ((va - KERNEL) >> PAGE_SHIFT) as usize
}

/// Memory for the hash table, aligned to its size.
struct Memory(NonNull<u8>);

const LAYOUT: Layout = match Layout::from_size_align(BYTES, BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

impl Memory {
    fn new() -> Option<Self> {
        // SAFETY: the layout is not of size 0.
        NonNull::new(unsafe { alloc_zeroed(LAYOUT) }).map(Memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: 1. `new` allocated it with the same allocator, 2. of the same layout.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
    }
}
