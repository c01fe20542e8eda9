//! Makes slots of mappings of the host.
use crate::mapping::Mapping;
use core::ptr::NonNull;
use ptarmigan::addr::{FRAME_SHIFT, FRAME_SIZE, Pfn};
use ptarmigan::highmem::{Install, Remove, SlotError, Slots};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::sync::Arc;

/// High memory of a hosted machine: a file in memory, whose pages slots show.
#[derive(Clone)]
pub struct HighMemory {
    file: Arc<OwnedFd>,
    first: Pfn,
    frames: u32,
}

impl HighMemory {
    /// Makes the memory of `frames` frames from `first` on, all zero. Only pages that are touched
    /// take memory of the host.
    ///
    /// # Errors
    ///
    /// The error of the system call that the host refuses.
    pub fn new(first: Pfn, frames: u32) -> rustix::io::Result<Self> {
        let file = memfd_create("ptarmigan-high", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, u64::from(frames) << FRAME_SHIFT)?;
        Ok(HighMemory { file: Arc::new(file), first, frames })
    }

    /// Maps the memory where it lies in an arena: slots are another way to the same bytes.
    pub(crate) fn map_into(&self, arena: &Mapping) -> rustix::io::Result<()> {
        let (start, bytes) = ((self.first.0 as usize) << FRAME_SHIFT, (self.frames as usize) << FRAME_SHIFT);
        if start.checked_add(bytes).is_none_or(|end| end > arena.len()) {
            return Err(Errno::INVAL);
        }
        let at = arena.base().as_ptr().wrapping_add(start);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the stretch lies in the arena, which no code uses yet.
        unsafe { mmap(at.cast(), bytes, prot, flags, &*self.file, 0) }.map(drop)
    }

    /// Where a frame is in the file.
    fn offset(&self, frame: Pfn) -> Option<u64> {
        let at = frame.0.wrapping_sub(self.first.0);
        (at < self.frames).then_some(u64::from(at) << FRAME_SHIFT)
    }
}

/// Slots of one stretch of the process's addresses, each mapped on its own: showing a frame is a
/// system call, and so is hiding it, which takes the translation out of all TLBs of the host.
///
/// Each slot may take a mapping of the host, of which a process has some 65,000.
pub struct RealSlots {
    memory: HighMemory,
    base: NonNull<u8>,
    n: usize,
}

// SAFETY: it owns a range of addresses; its users answer for accesses there.
unsafe impl Send for RealSlots {}
// SAFETY: as above; each slot is used by the caller that has it for itself.
unsafe impl Sync for RealSlots {}

impl RealSlots {
    /// Reserves addresses for `n` slots of frames of `memory`.
    ///
    /// # Errors
    ///
    /// The error of the system call that the host refuses.
    pub fn new(memory: HighMemory, n: usize) -> rustix::io::Result<Self> {
        let bytes = n.max(1) << FRAME_SHIFT;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice changes no mapping that
        // exists.
        let base = unsafe { mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::empty(), flags)? };
        Ok(RealSlots { memory, base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, n })
    }

    fn at(&self, index: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(index << FRAME_SHIFT)
    }
}

fn error(index: usize, e: Errno) -> SlotError {
    SlotError { index, code: e.raw_os_error() }
}

// SAFETY: 1. the slot's addresses map the frame's page of the file until they are mapped anew. 2.
// the stretch was reserved as a whole, and each slot is a page of it. 3. that is where the host's
// MMU finds them; the host flushes when it maps anew. 4. both are fixed. 5. errors of the host are
// returned. 6. neither goes on.
unsafe impl Slots for RealSlots {
    fn len(&self) -> usize {
        self.n
    }

    fn install(&self, install: Install) -> Result<u64, SlotError> {
        let (index, frame) = (install.index(), install.frame());
        let offset = self.memory.offset(frame).filter(|_| index < self.n);
        let offset = offset.ok_or(SlotError { index, code: Errno::INVAL.raw_os_error() })?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the page is one of the stretch, which is this value's, and the slot is the
        // caller's alone (`Install::new`, 1.), so that no code uses the mapping that was there.
        unsafe { mmap(self.at(index).cast(), FRAME_SIZE, prot, flags, &*self.memory.file, offset) }
            .map_err(|e| error(index, e))?;
        Ok(frame.addr().0)
    }

    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        let index = remove.index();
        if index >= self.n {
            return Err(SlotError { index, code: Errno::INVAL.raw_os_error() });
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as above, and no code uses its address (`Remove::new`, 2.).
        unsafe { mmap_anonymous(self.at(index).cast(), FRAME_SIZE, ProtFlags::empty(), flags) }
            .map_err(|e| error(index, e))?;
        Ok(())
    }

    fn address(&self, index: usize) -> *mut u8 {
        self.at(index)
    }

    fn page(&self, index: usize) -> u64 {
        self.at(index) as u64
    }

    fn shift(&self) -> u32 {
        FRAME_SHIFT
    }
}

impl Drop for RealSlots {
    fn drop(&mut self) {
        // SAFETY: the stretch is this value's, and its users borrow it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.n.max(1) << FRAME_SHIFT) };
    }
}
