//! Anonymous memory of the host.
use crate::addr::FRAME_SIZE;
use crate::bootmem::BootMemory;
use core::ptr::NonNull;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::sync::Arc;

/// A block of zeroed memory, given back when dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns plain memory.
unsafe impl Send for Mapping {}
// SAFETY: it gives out an address; what is done there is the business of its users.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` bytes, of which only what is touched takes memory.
    pub fn new(len: usize) -> rustix::io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base =
            unsafe { mmap_anonymous(core::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Mapping { base, len })
    }

    /// Makes boot memory of `bytes` bytes or more, which goes when all that is carved from it has
    /// gone.
    pub fn boot_memory(bytes: usize) -> rustix::io::Result<BootMemory> {
        let len = bytes.next_multiple_of(FRAME_SIZE).max(FRAME_SIZE);
        let mapping = Mapping::new(len)?;
        let base = mapping.base();
        // SAFETY: 1. the block is the whole of a new mapping, which exists as long as its owner
        // does; nothing else has its address.
        Ok(unsafe { BootMemory::kept_by(Arc::new(mapping), base, len) })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Asks for huge pages, as a kernel's direct map has, and touches `len` bytes from `from` on,
    /// so that no fault of the host's falls into a measurement. Failure to get huge pages is no
    /// failure.
    pub fn prefault(&self, from: usize, len: usize) {
        let end = (from + len).min(self.len);
        if from >= end {
            return;
        }
        // SAFETY: the range lies in this mapping; the advice does not change what it holds.
        let _ = unsafe { madvise(self.base.as_ptr().add(from).cast(), end - from, Advice::LinuxHugepage) };
        for at in (from..end).step_by(4096) {
            // SAFETY: `at` is below `len`; called before anything uses the memory.
            unsafe { self.base.as_ptr().add(at).write_volatile(0) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, made by `new`, and its users borrow or keep its owner.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
