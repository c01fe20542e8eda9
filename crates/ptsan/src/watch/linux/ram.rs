//! The memory that is watched.
use crate::Memory;
use crate::watch::error::Error;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut, without_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// The only small page size of x86-64.
pub(super) const PAGE: usize = 4096;

/// Memory of the watch, zero at first.
///
/// Threads may share it. Every access through it is atomic.
pub struct Ram {
    base: NonNull<u8>,
    bytes: usize,
    /// Physical address of the first byte.
    start: u64,
}

// SAFETY: the mapping belongs to this value alone, does not depend on a thread, and lives until it
// is dropped.
unsafe impl Send for Ram {}
// SAFETY: through a shared reference memory is only read and written atomically.
unsafe impl Sync for Ram {}

impl Ram {
    /// Maps memory at an address of the system's choice, whose first byte has physical address
    /// `start`.
    pub(super) fn new(start: u64, bytes: usize) -> Result<Self, Error> {
        let len = whole_pages(bytes)?;
        if !start.is_multiple_of(PAGE as u64) || start.checked_add(len as u64).is_none() {
            return Err(Error::BadStart { start });
        }
        let refused = |e: rustix::io::Errno| Error::System { call: "mmap", errno: e.raw_os_error() };
        Self::map(null_mut(), start, len).map_err(refused)?
    }

    /// Maps memory whose physical addresses are its own addresses, from `start` on.
    pub(super) fn identity(start: u64, bytes: usize) -> Result<Self, Error> {
        let len = whole_pages(bytes)?;
        let fits = |&first: &usize| first.is_multiple_of(PAGE) && first.checked_add(len + PAGE).is_some();
        let first = usize::try_from(start).ok().filter(fits).ok_or(Error::BadStart { start })?;
        // The page before it must not be the one at address -1.
        let outer = first.checked_sub(PAGE).ok_or(Error::BadStart { start })?;
        let refused = |e: rustix::io::Errno| Error::Identity { start, bytes: len, errno: e.raw_os_error() };
        let ram = Self::map(without_provenance_mut(outer), start, len).map_err(refused)??;
        // The code under test makes pointers from the addresses that its tables hold.
        if ram.base.as_ptr().expose_provenance() != first {
            // A system that does not know the flag takes the address for a wish.
            return Err(refused(rustix::io::Errno::EXIST));
        }
        Ok(ram)
    }

    /// Maps `len` bytes with a page without access on either side: no instruction stores to two
    /// watched memories, and the kernel never merges this mapping with a neighbour. The outer error
    /// is that of the mapping. If `outer` is not null, the mapping begins there and does not
    /// replace another.
    fn map(outer: *mut c_void, start: u64, len: usize) -> rustix::io::Result<Result<Self, Error>> {
        let fixed = if outer.is_null() { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
        // SAFETY: a new mapping, either at an address of the kernel's choice or at one where the
        // flag makes the call fail if there is something.
        let outer =
            unsafe { mmap_anonymous(outer, len + 2 * PAGE, ProtFlags::empty(), MapFlags::PRIVATE | fixed) }?;
        // SAFETY: PAGE bytes on are within the mapping just made.
        let inner = unsafe { outer.cast::<u8>().add(PAGE) };
        let Some(base) = NonNull::new(inner) else { return Ok(Err(Error::BadSize { bytes: len })) };
        let ram = Self { base, bytes: len, start };
        if let Err(e) = ram.protect(0, len, true) {
            return Ok(Err(Error::System { call: "mprotect", errno: e.raw_os_error() }));
        }
        // A huge page would be split at the first store, so do not ask for one. A refusal does no
        // harm. SAFETY: the range is the mapping's own, and the advice does not change its content.
        let _ = unsafe { madvise(inner.cast(), len, Advice::LinuxNoHugepage) };
        Ok(Ok(ram))
    }

    /// Returns where the code under test finds the memory: [`Ram::bytes`] bytes, at a multiple of
    /// 4096.
    ///
    /// The pointer stays valid until the watch is dropped. Stores through it may be of any width.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the size in bytes, a multiple of 4096.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Physical address of the first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns where the code under test finds the byte at physical address `phys`, or `None`
    /// outside memory.
    #[must_use]
    pub fn pointer(&self, phys: u64) -> Option<*mut u8> {
        self.at(phys, 1)
    }

    /// Returns the physical address behind a pointer into the memory, or `None` for others.
    #[must_use]
    pub fn phys(&self, pointer: *const u8) -> Option<u64> {
        let offset = pointer.addr().checked_sub(self.base.addr().get())?;
        (offset < self.bytes).then(|| self.start + offset as u64)
    }

    /// Reads the 8 bytes at `phys`. Returns `None` if they are outside memory or `phys` is no
    /// multiple of 8.
    #[must_use]
    pub fn load(&self, phys: u64) -> Option<u64> {
        self.word(phys).map(|word| word.load(Relaxed))
    }

    /// Stores 8 bytes at `phys`, as the code under test would: inside [`crate::watch::Watch::run`]
    /// the watch sees it. Returns `false` without a store if they are outside memory or `phys` is
    /// no multiple of 8.
    #[must_use = "nothing was stored if this is false"]
    pub fn store(&self, phys: u64, value: u64) -> bool {
        self.word(phys).map(|word| word.store(value, Relaxed)).is_some()
    }

    fn at(&self, phys: u64, bytes: usize) -> Option<*mut u8> {
        let start = usize::try_from(phys.checked_sub(self.start)?).ok()?;
        let fits = start.is_multiple_of(bytes) && start.checked_add(bytes)? <= self.bytes;
        // SAFETY: `start` lies within the mapping.
        fits.then(|| unsafe { self.base.as_ptr().add(start) })
    }

    fn word(&self, phys: u64) -> Option<&AtomicU64> {
        let at = self.at(phys, 8)?.cast();
        // SAFETY: 1. `at` is 8 bytes of the mapping, aligned to 8, which live as long as `self`. 2.
        // Rust code reaches them by atomics through `self`. The code under test stores on its own
        // terms, as a program does before a page walker.
        Some(unsafe { AtomicU64::from_ptr(at) })
    }

    /// Allows or forbids stores to `bytes` bytes from offset `start`, both multiples of the page
    /// size.
    pub(super) fn protect(&self, start: usize, bytes: usize, writable: bool) -> rustix::io::Result<()> {
        debug_assert!(start + bytes <= self.bytes);
        let how = if writable { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::READ };
        // SAFETY: the range lies within this mapping. Taking away the right to store makes the code
        // under test fault, as intended.
        unsafe { mprotect(self.base.as_ptr().add(start).cast::<c_void>(), bytes, how) }
    }
}

/// Rounds a size up to whole pages.
fn whole_pages(bytes: usize) -> Result<usize, Error> {
    bytes
        .checked_next_multiple_of(PAGE)
        .filter(|&b| b > 0 && b <= isize::MAX as usize - 2 * PAGE)
        .ok_or(Error::BadSize { bytes })
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping with a page on either side, and no code borrows it any
        // more. The call cannot fail, because the range is a whole mapping.
        let _ = unsafe { munmap(self.base.as_ptr().sub(PAGE).cast(), self.bytes + 2 * PAGE) };
    }
}

impl Memory for Ram {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        match bytes {
            8 => self.load(phys),
            4 => {
                let at = self.at(phys, 4)?.cast();
                // SAFETY: as in `word`, with 4 bytes.
                Some(u64::from(unsafe { AtomicU32::from_ptr(at) }.load(Relaxed)))
            }
            _ => None,
        }
    }

    /// Stores without a fault to a page that is watched. The watch calls walkers under its lock,
    /// and every other store to such a page takes it: none comes in between.
    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        let (found, width) = (self.read(phys, bytes)?, usize::from(bytes));
        let at = self.at(phys, width)?;
        let stored = found != old || store_by_force(at, new.to_le_bytes().get(..width)?);
        stored.then_some(found)
    }
}

/// Stores to memory of this process that it must not store to itself, as a debugger does.
fn store_by_force(at: *mut u8, value: &[u8]) -> bool {
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::FileExt;
    static MEMORY: OnceLock<Option<File>> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| OpenOptions::new().write(true).open("/proc/self/mem").ok());
    memory.as_ref().is_some_and(|memory| memory.write_all_at(value, at.addr() as u64).is_ok())
}

impl std::fmt::Debug for Ram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ram").field("base", &self.base).field("bytes", &self.bytes).finish()
    }
}
