//! The library's pool for programs, as a contender. Its pages are known to be zero because they are
//! given back zeroed, as tables are.
//!
//! A thread is a CPU of the pool, and keeps its magazines from one case to the next. No page goes
//! back to the host during the benchmark, as with the other contenders: pages that decay between
//! two cases would be faulted in again, and only that would be measured.
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};

use ptarmigan_pool::{PagePool, PoolConfig, PoolError, Topology};

use super::contender::{PAGE, PageContender, Pages};

/// The library's pool for programs.
pub const POOL: &str = "ptarmigan-pool";

/// The pool as a contender.
pub struct PoolContender {
    pool: PagePool,
}

impl PoolContender {
    /// Creates a pool with memory for `pages` pages on one node.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if the configuration is invalid or the host has no memory.
    pub fn new(pages: usize) -> Result<Self, PoolError> {
        let config = PoolConfig {
            capacity: pages * PAGE,
            page_size: PAGE,
            decay: None,
            topology: Topology::one(),
            ..PoolConfig::default()
        };
        Ok(PoolContender { pool: PagePool::new(config)? })
    }
}

/// The pool, as used by one thread.
pub struct Thread<'a>(&'a PagePool);

impl PageContender for PoolContender {
    type Cpu<'a> = Thread<'a>;

    fn name(&self) -> &'static str {
        POOL
    }

    fn cpu(&self, _: usize) -> Result<Thread<'_>, String> {
        Ok(Thread(&self.pool))
    }

    fn finish(&self) -> Result<(), String> {
        self.pool.trim();
        let stats = self.pool.stats();
        let (out, left) = (stats.in_use, stats.cached);
        if out + left == 0 { Ok(()) } else { Err(format!("{out} bytes are lost, {left} are still cached")) }
    }
}

// SAFETY: 1. a page of a pool of zero pages is all zero when it is handed out, as large and aligned
// as `page_size` says, and its owner's until it is given back. 2. pages of a pool may be given back
// on any thread.
unsafe impl Pages for Thread<'_> {
    #[inline]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        let page = self.0.page().ok()?.into_raw();
        NonZeroU64::new(page.base().as_ptr().expose_provenance() as u64)
    }

    #[inline]
    unsafe fn free(&mut self, page: NonZeroU64) {
        let Some(base) = NonNull::new(self.entries(page).cast()) else { return };
        // SAFETY: 1. `alloc` kept the page as an address, and the caller gives it away. 2.
        // likewise.
        let page = unsafe { self.0.page_from_raw(base) };
        // SAFETY: 1. by the contract of this function.
        unsafe { page.give_back_clean() };
    }

    #[inline]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        ptr::with_exposed_provenance_mut(page.get() as usize)
    }
}
