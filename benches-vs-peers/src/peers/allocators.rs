//! Allocators that do not track a freed page's contents: each clears the page on allocation.
//!
//! The allocators for programs do this themselves, in their documented call for zeroed memory. They
//! may skip pages known to be fresh from the kernel. `buddy_system_allocator` hands out frame
//! numbers, and its user clears the frames.

use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroU64;
use std::ptr;

use buddy_system_allocator::LockedFrameAllocator;
use mimalloc::MiMalloc;
use ptarmigan_bench::pages::{Arena, Entrant, PAGE, PageContender, Pages, Workload, Zeroing};
#[cfg(feature = "jemalloc")]
use tikv_jemallocator::Jemalloc;

/// Returns all contenders. A new one is one line here and one `impl PageContender`.
///
/// # Errors
///
/// If a contender's memory cannot be allocated.
pub fn all(sizes: &Workload) -> Result<Vec<Box<dyn Entrant>>, String> {
    keep_memory();
    Ok(vec![
        Box::new(Malloc { name: "glibc", heap: System }),
        Box::new(Malloc { name: "mimalloc", heap: MiMalloc }),
        #[cfg(feature = "jemalloc")]
        Box::new(Malloc { name: "jemalloc", heap: Jemalloc }),
        Box::new(Zeroing::new("buddy_system_allocator", Buddy::new(sizes.most() + 1)?)),
    ])
}

/// Makes glibc keep its memory. By default it returns the end of its heap to the kernel after each
/// batch and faults it in again at 10 µs per page, and only that would be measured.
fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call accepts any number, and no pages are in use yet.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
    }
}

const LAYOUT: Layout = match Layout::from_size_align(PAGE, PAGE) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two is a valid alignment"),
};

/// An allocator for programs, with addresses as page numbers.
struct Malloc<A> {
    name: &'static str,
    heap: A,
}

/// The allocator on one CPU. It finds out by itself which CPU that is.
struct Heap<'a, A>(&'a A);

impl<A: GlobalAlloc + Sync> PageContender for Malloc<A> {
    type Cpu<'a>
        = Heap<'a, A>
    where
        A: 'a;

    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu(&self, _: usize) -> Result<Heap<'_, A>, String> {
        Ok(Heap(&self.heap))
    }
}

// SAFETY: 1. `alloc_zeroed` promises exactly this for the layout. 2. allocators take memory back on
// any thread.
unsafe impl<A: GlobalAlloc> Pages for Heap<'_, A> {
    #[inline]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        // SAFETY: the size of the layout is not zero.
        let page = unsafe { self.0.alloc_zeroed(LAYOUT) };
        NonZeroU64::new(page.expose_provenance() as u64)
    }

    #[inline]
    unsafe fn free(&mut self, page: NonZeroU64) {
        // SAFETY: `alloc` got the page from the same allocator with this layout, and the caller
        // gives it away.
        unsafe { self.0.dealloc(self.entries(page).cast(), LAYOUT) };
    }

    #[inline]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        ptr::with_exposed_provenance_mut(page.get() as usize)
    }
}

/// `buddy_system_allocator`: frames by number, behind the lock that comes with it. Its records are
/// on the program's heap (glibc), not in the frames.
struct Buddy {
    arena: Arena,
    frames: LockedFrameAllocator,
}

impl Buddy {
    fn new(pages: usize) -> Result<Self, String> {
        let frames = LockedFrameAllocator::new();
        // Number 0 is not a page number.
        frames.lock().add_frame(1, 1 + pages);
        Ok(Buddy { arena: Arena::new(1 + pages)?, frames })
    }
}

impl PageContender for Buddy {
    type Cpu<'a> = &'a Buddy;

    fn name(&self) -> &'static str {
        "buddy_system_allocator-dirty"
    }

    fn cpu(&self, _: usize) -> Result<&Buddy, String> {
        Ok(self)
    }
}

// SAFETY: 1. allocated frames are distinct, and their numbers are those of pages of the arena. They
// are zero at first, and callers give them back zeroed. 2. all CPUs share one allocator.
unsafe impl Pages for &Buddy {
    #[inline]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.frames.lock().alloc(1)? as u64)
    }

    #[inline]
    unsafe fn free(&mut self, page: NonZeroU64) {
        self.frames.lock().dealloc(page.get() as usize, 1);
    }

    #[inline]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        self.arena.base().wrapping_add(page.get() as usize * PAGE).cast()
    }
}
