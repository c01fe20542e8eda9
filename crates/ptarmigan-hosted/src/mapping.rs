//! Maps anonymous memory of the host.
use core::ptr::NonNull;
use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::bootmem::BootMemory;
use std::sync::Arc;

/// A block of zeroed memory, given back when dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns plain memory.
unsafe impl Send for Mapping {}
// SAFETY: it hands out an address; its users answer for accesses there.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, of which only touched pages take memory.
    pub fn new(len: usize) -> rustix::io::Result<Self> {
        Ok(Mapping { base: system::map(len)?, len })
    }

    /// Makes boot memory of `bytes` bytes or more, which goes when all that is carved from it has
    /// gone. In huge pages if the host has them, as a kernel's direct map is: arrays of all frames
    /// are written from end to end, with a fault of the host's for each page otherwise.
    pub fn boot_memory(bytes: usize) -> rustix::io::Result<BootMemory> {
        let len = bytes.next_multiple_of(FRAME_SIZE).max(FRAME_SIZE);
        let mapping = Mapping::new(len)?;
        system::advise_huge_pages(&mapping, 0..len);
        let base = mapping.base();
        // SAFETY: 1. the block is the whole of a new mapping, which exists as long as its owner
        // does; no other code has its address.
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
        system::advise_huge_pages(self, from..end);
        for at in (from..end).step_by(4096) {
            // SAFETY: `at` is below `len`; called before anything uses the memory.
            unsafe { self.base.as_ptr().add(at).write_volatile(0) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        system::unmap(self);
    }
}

#[cfg(not(miri))]
mod system {
    use super::Mapping;
    use core::ops::Range;
    use core::ptr::NonNull;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Maps `len` zeroed bytes.
    pub fn map(len: usize) -> rustix::io::Result<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice changes no mapping that
        // exists.
        let base =
            unsafe { mmap_anonymous(core::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)
    }

    /// Asks for huge pages in the part of `bytes` that the mapping has.
    pub fn advise_huge_pages(mapping: &Mapping, bytes: Range<usize>) {
        let from = bytes.start.min(mapping.len);
        let len = bytes.end.min(mapping.len).saturating_sub(from);
        // SAFETY: the range lies in the mapping, which exists while it is borrowed, and the advice
        // does not change the content of the range.
        let _ = unsafe { madvise(mapping.base.as_ptr().add(from).cast(), len, Advice::LinuxHugepage) };
    }

    /// Ends a mapping that is being dropped.
    pub fn unmap(mapping: &mut Mapping) {
        // SAFETY: `map` made it with this length, and its users borrow or keep its owner.
        let _ = unsafe { munmap(mapping.base.as_ptr().cast(), mapping.len) };
    }
}

/// The interpreter knows no mappings such as these: memory of the heap stands for them.
#[cfg(miri)]
mod system {
    use super::Mapping;
    use core::ops::Range;
    use core::ptr::NonNull;
    use ptarmigan::addr::FRAME_SIZE;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> rustix::io::Result<Layout> {
        Layout::from_size_align(len.max(1), FRAME_SIZE).map_err(|_| rustix::io::Errno::NOMEM)
    }

    /// Allocates `len` zeroed bytes.
    pub fn map(len: usize) -> rustix::io::Result<NonNull<u8>> {
        // SAFETY: the layout's size is not 0.
        let base = unsafe { alloc_zeroed(layout(len)?) };
        NonNull::new(base).ok_or(rustix::io::Errno::NOMEM)
    }

    /// Has no effect.
    pub fn advise_huge_pages(_: &Mapping, _: Range<usize>) {}

    /// Frees a block that is being dropped.
    pub fn unmap(mapping: &mut Mapping) {
        let Ok(layout) = layout(mapping.len) else { return };
        // SAFETY: `map` made it with this length, and its users borrow or keep its owner.
        unsafe { dealloc(mapping.base.as_ptr(), layout) };
    }
}
