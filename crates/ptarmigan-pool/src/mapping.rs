//! Anonymous memory of the host.
use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::bootmem::BootMemory;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::Arc;

/// A block of zeroed memory, given back when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns plain memory.
unsafe impl Send for Mapping {}
// SAFETY: it gives out an address; its users answer for their accesses.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, of which only those that are touched take memory.
    pub fn new(len: usize) -> rustix::io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags)? };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Mapping { base, len })
    }

    /// Makes boot memory of `bytes` bytes or more, which goes with the last array in it.
    pub fn boot_memory(bytes: usize) -> rustix::io::Result<BootMemory> {
        let len = bytes.next_multiple_of(FRAME_SIZE).max(FRAME_SIZE);
        let mapping = Mapping::new(len)?;
        let base = mapping.base;
        // SAFETY: 1. the block is the whole of a new mapping, which exists as long as its owner
        // does; nothing else has its address.
        Ok(unsafe { BootMemory::kept_by(Arc::new(mapping), base, len) })
    }

    /// Returns its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns its first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping with this length, and its users borrow or keep it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
