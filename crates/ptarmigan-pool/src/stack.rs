//! Stacks: pages that are not cleared, each above a guard.
use super::arena::RawPage;
use super::config::PoolConfig;
use super::error::{PoolError, StateError};
use super::page::{PageIn, PoolHandle};
use super::state::PageState;
use super::{ArcPage, Page, PagePool};
use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::ptr::NonNull;

/// Pages are stacks: below each is a guard, and they hold the data of their last user, or zero.
/// [`PagePool::stacks`] makes pools of them.
#[derive(Debug)]
pub struct Stacks(());

/// A stack that borrows its pool.
pub type Stack<'p> = Page<'p, Stacks>;
/// A stack that owns a share of its pool, and so may live anywhere.
pub type ArcStack = ArcPage<Stacks>;

// SAFETY: 1. to 3. the page is not touched, and no pointer is kept.
unsafe impl PageState for Stacks {
    const DESTRUCTS: bool = false;
    const NEEDS_ZERO: bool = false;
    const TRACKS_ADDRESSES: bool = true;

    unsafe fn construct(&self, _: RawPage) -> Result<(), StateError> {
        Ok(())
    }
    unsafe fn destruct(&self, _: RawPage) {}
    #[inline]
    unsafe fn restore(&self, _: RawPage, _: usize) {}

    /// Whether the caller runs on it.
    #[inline]
    fn is_in_use(&self, page: RawPage) -> bool {
        let here = 0_u8;
        let offset = (&raw const here).addr().wrapping_sub(page.base().addr().get());
        offset < page.size()
    }
}

impl PagePool<Stacks> {
    /// A pool of stacks: for coroutines, green threads, fibers, and runtimes that call foreign code
    /// on stacks of their own.
    ///
    /// Each has all of [`PoolConfig::page_size`] to itself, and below it [`PoolConfig::guard`]
    /// bytes that end the process with a fault when they are touched. A stack comes with the memory
    /// that its last user touched, which is not cleared; stacks that are not needed decay.
    ///
    /// ```
    /// use ptarmigan_pool::{PagePool, PoolConfig};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PagePool::stacks(PoolConfig::stacks(256 << 10, 1000))?;
    /// let stack = pool.page()?;
    /// assert_eq!(stack.top().addr().get() - stack.bottom().addr().get(), 256 << 10);
    /// assert_eq!(stack.guard().end, stack.bottom().addr().get());
    /// // SAFETY: the words below the top are the stack's.
    /// unsafe { stack.top().cast::<u64>().sub(1).write(7) };
    /// drop(stack);
    /// assert_eq!(pool.stats().cached, 256 << 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A stack that is in use is owned by its user, so it cannot be given back:
    ///
    /// ```compile_fail,E0505
    /// use ptarmigan_pool::{PagePool, PoolConfig, Stack};
    /// struct Coroutine<'s>(&'s mut Stack<'s>);
    /// let pool = PagePool::stacks(PoolConfig::stacks(65536, 10)).unwrap();
    /// let mut stack = pool.page().unwrap();
    /// let coroutine = Coroutine(&mut stack);
    /// drop(stack); // cannot move out of `stack` because it is borrowed
    /// drop(coroutine);
    /// ```
    ///
    /// One that is given back by code that runs on it is not handed out again; it stays where it is
    /// and is counted ([`PoolStats::still_in_use`](super::PoolStats::still_in_use)).
    ///
    /// Its bytes cannot be reached as a slice, as their content is unknown:
    ///
    /// ```compile_fail,E0608
    /// use ptarmigan_pool::{PagePool, PoolConfig};
    /// let pool = PagePool::stacks(PoolConfig::stacks(65536, 10)).unwrap();
    /// let stack = pool.page().unwrap();
    /// assert_eq!(stack[0], 0); // cannot index
    /// ```
    ///
    /// # Errors
    ///
    /// As [`PagePool::new`]; also if there is no guard.
    pub fn stacks(config: PoolConfig) -> Result<Self, PoolError> {
        if config.guard == 0 {
            return Err(PoolError::OutOfRange("guards of 0 bytes: stacks need a page of the host's".into()));
        }
        Self::with_state(config, Stacks(()))
    }
}

impl<H: PoolHandle<State = Stacks>> PageIn<H> {
    /// Returns the first address above the stack, where a stack that grows downwards begins. It is
    /// a multiple of the host's page size.
    #[inline]
    pub fn top(&self) -> NonNull<u8> {
        let page = self.raw();
        // SAFETY: the page ends there.
        unsafe { page.base().add(page.size()) }
    }

    /// Returns the lowest address of the stack, right above its guard. It is a multiple of the
    /// host's page size.
    #[inline]
    pub fn bottom(&self) -> NonNull<u8> {
        self.raw().base()
    }

    /// Returns the addresses of the guard below the stack.
    pub fn guard(&self) -> Range<usize> {
        self.pool().core().map().gap_below(self.raw())
    }

    /// Makes every byte of the stack zero. The upper `keep` bytes are written, the rest goes back
    /// to the host in one call; if the host does not take it, it is written, too.
    ///
    /// ```
    /// use ptarmigan_pool::{PagePool, PoolConfig};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PagePool::stacks(PoolConfig::stacks(256 << 10, 10))?;
    /// let mut stack = pool.page()?;
    /// // SAFETY: the top is at the end of 256 KiB.
    /// let word = unsafe { stack.top().cast::<u64>().sub(1) };
    /// // SAFETY: the word is the stack's.
    /// unsafe { word.write(7) };
    /// stack.clear(8 << 10);
    /// // SAFETY: as above.
    /// assert_eq!(unsafe { word.read() }, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear(&mut self, keep: usize) {
        let page = self.raw();
        let keep = keep.checked_next_multiple_of(rustix::param::page_size()).unwrap_or(usize::MAX);
        let below = page.size().saturating_sub(keep);
        // SAFETY: the range lies in the page, which is ours and private anonymous memory.
        let gone = below == 0
            || unsafe { madvise(page.base().as_ptr().cast(), below, Advice::LinuxDontNeed) }.is_ok();
        let from = if gone { below } else { 0 };
        // SAFETY: the rest of the page, which is ours.
        unsafe { page.base().as_ptr().add(from).write_bytes(0, page.size() - from) };
    }
}
