//! Provides pages in a known state outside a kernel; any thread may allocate and free:
//! [`PagePool`], and [`PagePool::stacks`] for stacks with guards.
//!
//! `machine` is the pool, made of the parts of the crate `ptarmigan`; `seats` says which of its
//! CPUs a thread is; `state` and `arena` make its pages, `stack` makes stacks. `acquire` is the
//! future that waits for a page, `raw` and `region` are for kernels and devices.
#[cfg(not(target_os = "linux"))]
compile_error!("ptarmigan-pool needs Linux: its README has the platforms");

mod acquire;
mod arena;
mod config;
mod error;
mod fork;
mod hook;
mod machine;
mod mapping;
mod meminfo;
mod page;
mod raw;
mod region;
mod seats;
mod stack;
mod state;
mod topology;

pub use acquire::{Acquire, AcquireIn, ArcAcquire};
pub use arena::RawPage;
pub use config::{Bind, HugePages, PoolConfig};
pub use error::{PoolError, Refusal, StateError};
pub use hook::{MetricsHook, PoolEvent};
pub use meminfo::{PoolMemory, PoolNodeMemory};
pub use page::{ArcPage, Page, PageIn, PoolHandle};
pub use raw::RawArcPage;
pub use region::{ArcRegion, Region, RegionIn};
pub use stack::{ArcStack, Stack, Stacks};
pub use state::{PageState, Zeroed};
pub use topology::Topology;

use machine::Core;
use ptarmigan::quicklist::Policy;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Pages in a known state for programs that are no kernel: zero, or as a constructor made them,
/// from any thread.
///
/// A buffer pool hands out memory that somebody has used before, so each user clears it or takes
/// care; the host's allocator clears by unmapping and faulting in again. A [`PagePool`] takes pages
/// back in the state in which it handed them out, and hands them out again as they are:
///
/// ```
/// use ptarmigan_pool::{PagePool, PoolConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = PagePool::new(PoolConfig { capacity: 64 << 20, ..PoolConfig::default() })?;
/// let mut page = pool.page()?;                    // 4 KiB, all zero
/// page.prefix_mut(100).fill(7);                   // only these will be cleared
/// std::thread::scope(|s| {
///     s.spawn(|| drop(page)).join()              // on any thread
/// }).expect("it does not panic");
/// pool.trim();                                    // or let it decay
/// let stats = pool.stats();
/// assert_eq!((stats.in_use, stats.returned), (0, 4096));
/// # Ok(())
/// # }
/// ```
///
/// It is a small machine made of the library's parts: the pages are its frames, threads its CPUs,
/// the [quicklists](ptarmigan::quicklist) construct the state and keep it constructed.
///
/// * **A hit** takes a page from the thread's own magazines: no lock, no atomic read-modify-write,
///   no access to the page. Behind them is a depot for each node, behind it the allocator, whose
///   free pages take no memory of the host.
/// * **Threads** get magazines the first time they need a page and leave them when they end, their
///   pages to the depot. Those that come when all are taken share some behind a lock.
/// * **Nodes** are the host's ([`Topology`]). A page freed on another node goes to the depot of its
///   own. Where its memory lies [`Bind`] says; by default the host decides when it is touched
///   first, mostly by the thread that took it.
/// * **Guards** lie below pages where [`PoolConfig::guard`] says so, outside their size. They are
///   put in place once, and stay.
/// * **Stacks** are pages that are not cleared and have guards: [`PagePool::stacks`].
/// * **Decay**: pages that a depot held for a whole interval without a request for them go back to
///   the host, a few pages in each slow path, or all of it in [`PagePool::decay`]: after one to two
///   intervals. It costs one call of the host's for each run of neighbours. Magazines do not decay;
///   a thread that will be idle calls [`PagePool::hand_over`].
/// * **Counts** are in [`PagePool::stats`], memory by node in [`PagePool::meminfo`], and
///   [`PoolConfig::hook`] hears of everything that is no hit.
/// * **Failure**: no function panics for lack of memory. A pool that is full says so; pages that
///   rest in other threads' magazines count against it, at most as many as [`PoolConfig`] sets. A
///   page that is forgotten (`mem::forget`), or kept as an address, is not destructed, and its
///   memory stays until the process ends.
/// * **Back-pressure**: [`acquire`](PagePool::acquire) waits for a page, in order.
/// * **Kernels and devices** hold pages as [`RawArcPage`]s, and are told of the memory of all pages
///   as a [`RegionIn`].
/// * **Fork**: a child has copies of the pages that are out, and may use and drop them. A pool of
///   its parent's hands out the pages in the magazines of the thread that forked, and then says
///   [`PoolError::Forked`]; it neither takes pages back nor gives them to the host.
pub struct PagePool<S: PageState = Zeroed> {
    /// Owned; a pointer, because threads that end reach it beside the pool.
    core: NonNull<Core<S>>,
}

// SAFETY: it owns its core, which may be used and dropped on any thread (checked in `with_state`).
unsafe impl<S: PageState> Send for PagePool<S> {}
// SAFETY: as above.
unsafe impl<S: PageState> Sync for PagePool<S> {}

/// The counts of a pool. Exact while no operation is in progress; otherwise off by the operations
/// in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Pages handed out so far.
    pub allocs: usize,
    /// Pages taken back so far.
    pub frees: usize,
    /// Pages handed out from a thread's own magazines.
    pub hits: usize,
    /// Pages handed out after a turn of the depot.
    pub refills: usize,
    /// Pages handed out that came fresh from the host.
    pub misses: usize,
    /// Pages constructed so far.
    pub constructed: usize,
    /// Pages destructed so far.
    pub destructed: usize,
    /// Bytes handed out now.
    pub in_use: usize,
    /// Bytes that rest in magazines and depots now.
    pub cached: usize,
    /// Bytes given back to the host so far; wraps around, as all counts do, where `usize` is too
    /// narrow.
    pub returned: usize,
    /// Calls of the host's that this took: one for each run of neighbours.
    pub return_calls: usize,
    /// Calls that the host refused so far: guards, huge pages, nodes, memory given back.
    pub refused: usize,
    /// Stacks that were dropped by code that ran on them. They stay out until the pool ends.
    pub still_in_use: usize,
    /// Bytes that may be handed out in all.
    pub capacity: usize,
    /// Threads that have magazines of their own now.
    pub threads: usize,
    /// Futures that wait for a page now ([`PagePool::acquire`]).
    pub waiting: usize,
    /// Pages that went from their last owner to a future so far, without the magazines. They are
    /// counted as taken back and as handed out, too.
    pub passed_on: usize,
}

impl PagePool<Zeroed> {
    /// A pool of pages that are zero.
    ///
    /// # Errors
    ///
    /// [`PoolError::OutOfRange`] names the number and its range; [`PoolError::Host`] if the host
    /// has no memory.
    pub fn new(config: PoolConfig) -> Result<Self, PoolError> {
        Self::with_state(config, Zeroed)
    }
}

impl<S: PageState> PagePool<S> {
    /// A pool of pages in the state that `state` makes.
    ///
    /// # Errors
    ///
    /// As [`PagePool::new`].
    pub fn with_state(config: PoolConfig, state: S) -> Result<Self, PoolError> {
        fn may_be_shared<T: Send + Sync>(core: T) -> T {
            core
        }
        let core = Box::new(may_be_shared(Core::new(&config, state)?));
        let core = NonNull::from(Box::leak(core));
        let pool = PagePool { core };
        // SAFETY: 1. the core lives until the pool is dropped, which closes the link first.
        unsafe { pool.core().link().open(core.as_ptr()) };
        Ok(pool)
    }

    #[inline]
    fn core(&self) -> &Core<S> {
        // SAFETY: it is the pool's own until it is dropped, and used through shared references
        // only.
        unsafe { self.core.as_ref() }
    }

    /// A page in its state.
    ///
    /// # Errors
    ///
    /// [`PoolError::Full`] or [`PoolError::State`]; the pool is unchanged then.
    #[inline]
    pub fn page(&self) -> Result<Page<'_, S>, PoolError> {
        let base = self.core().take()?;
        // SAFETY: 1. just taken.
        Ok(unsafe { PageIn::new(self, base) })
    }

    /// A page that owns a share of the pool.
    ///
    /// # Errors
    ///
    /// As [`page`](Self::page).
    pub fn arc_page(self: &Arc<Self>) -> Result<ArcPage<S>, PoolError> {
        let base = self.core().take()?;
        // SAFETY: 1. just taken.
        Ok(unsafe { PageIn::new(self.clone(), base) })
    }

    /// A page in its state, once there is one: the future waits while the pool is full, and gets
    /// the page that is given back next, after those that have waited longer. It needs no runtime.
    ///
    /// ```
    /// use ptarmigan_pool::{PagePool, PoolConfig};
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PagePool::new(PoolConfig { capacity: 4096, ..PoolConfig::default() })?;
    /// let only = pool.acquire();                      // `.await` it in an `async` function
    /// let mut cx = Context::from_waker(Waker::noop());
    /// let Poll::Ready(only) = pin!(only).poll(&mut cx) else { panic!("the pool has a page") };
    /// let mut next = pin!(pool.acquire());
    /// assert!(next.as_mut().poll(&mut cx).is_pending(), "it is full");
    /// drop(only?);                                    // wakes
    /// assert!(next.poll(&mut cx).is_ready());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Fairness
    ///
    /// Futures are served in the order in which they were first polled, and a new one joins behind
    /// them. [`page`](Self::page) does not wait in line: it takes a page that rests in its thread's
    /// magazines. While a future waits, no page that is given back goes there.
    ///
    /// # Threads that are idle
    ///
    /// Pages that rest in the magazines of a thread that does nothing with the pool are out of
    /// reach, twice [`PoolConfig::magazine`] of them at the most, and half of the pool in all
    /// threads together. So at least half of the pages of a full pool are with their users, whose
    /// next page goes to a future. A runtime's thread should call [`hand_over`](Self::hand_over)
    /// before it sleeps (`on_thread_park` of Tokio), which serves futures with the rest.
    ///
    /// # Errors
    ///
    /// The future's output is [`PoolError::State`] or [`PoolError::Forked`], never
    /// [`PoolError::Full`].
    pub fn acquire(&self) -> Acquire<'_, S> {
        AcquireIn::new(self)
    }

    /// As [`acquire`](Self::acquire); the future and its page own a share of the pool.
    pub fn arc_acquire(self: &Arc<Self>) -> ArcAcquire<S> {
        AcquireIn::new(self.clone())
    }

    /// The page at `base` again, which was kept as an address: all of it counts as lent for
    /// writing.
    ///
    /// # Safety
    ///
    /// 1. `base` must be the base of a page of this pool from [`Page::into_raw`](PageIn::into_raw),
    ///    and this is the only call for it.
    /// 2. Nobody uses the page through its address any more, or will before it is kept as an
    ///    address again.
    #[inline]
    pub unsafe fn page_from_raw(&self, base: NonNull<u8>) -> Page<'_, S> {
        if S::TRACKS_ADDRESSES {
            self.core().workshop().arena.keep(self.core().map().raw(base), false);
        }
        // SAFETY: 1. a page that is kept as an address has not been given back, and the caller
        // gives it to this call alone (1., 2.). 2. all of it counts as lent.
        unsafe { PageIn::again(self, base, self.page_size()) }
    }

    /// The page at `base` again, as [`page_from_raw`](Self::page_from_raw), for addresses that come
    /// from code that may be wrong. Pools of stacks, and of other states with
    /// [`TRACKS_ADDRESSES`](PageState::TRACKS_ADDRESSES), know which of their pages are kept as
    /// addresses; others refuse only an address that is not the base of a page of theirs.
    ///
    /// ```
    /// use ptarmigan_pool::{PagePool, PoolConfig, PoolError};
    ///
    /// # fn main() -> Result<(), PoolError> {
    /// let pool = PagePool::stacks(PoolConfig::stacks(64 << 10, 10))?;
    /// let another = PagePool::stacks(PoolConfig::stacks(64 << 10, 10))?;
    /// let base = pool.page()?.into_raw().base();
    /// // SAFETY: 1. nothing uses the stack.
    /// unsafe {
    ///     assert!(another.try_page_from_raw(base).is_err(), "it is the other pool's");
    ///     drop(pool.try_page_from_raw(base)?);
    ///     assert!(pool.try_page_from_raw(base).is_err(), "it was given back");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`PoolError::Address`]; the pool is unchanged then.
    ///
    /// # Safety
    ///
    /// 1. Nobody uses the page through its address any more, or will before it is kept as an
    ///    address again.
    /// 2. In pools that do not know that: if `base` is the base of a page of this pool, it must
    ///    have come from [`Page::into_raw`](PageIn::into_raw), and this is the only call for it.
    pub unsafe fn try_page_from_raw(&self, base: NonNull<u8>) -> Result<Page<'_, S>, PoolError> {
        self.core().unkeep(base)?;
        // SAFETY: 1. the page is kept as an address, and from now on no more. 2. all of it counts
        // as lent.
        Ok(unsafe { PageIn::again(self, base, self.page_size()) })
    }

    /// Bytes in a page.
    #[inline]
    pub fn page_size(&self) -> usize {
        self.core().map().size()
    }

    /// The state of its pages.
    pub fn state(&self) -> &S {
        &self.core().workshop().state
    }

    /// Gives back to the host pages that no thread needed for the time set in [`PoolConfig::decay`]
    /// before `now`. Returns the number of bytes. It is for an idle thread or a timer; slow paths
    /// do the same in small pieces.
    pub fn decay(&self, now: Instant) -> usize {
        self.core().decay(now)
    }

    /// Gives back to the host all unused pages, but for those in magazines of other threads; how
    /// many bytes.
    pub fn trim(&self) -> usize {
        self.core().trim()
    }

    /// Leaves the pages in the calling thread's magazines to the others: for threads that will be
    /// idle, whose magazines do not decay.
    pub fn hand_over(&self) {
        self.core().hand_over();
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> PoolStats {
        let core = self.core();
        let (counts, shop, size) = (core.lists.counts(), core.workshop(), core.map().size());
        let level = counts.levels[0];
        // Counts of a moment are made one after the other: a difference may be negative while much
        // is going on. At no moment is a count below 0 or above the number of pages.
        let sensible = |n: usize| if (n as isize) < 0 { 0 } else { n.min(core.pages()) };
        let above_zero = |n: usize| if (n as isize) < 0 { 0 } else { n };
        let passed_on = core.passed_on();
        PoolStats {
            allocs: level.allocs.wrapping_add(passed_on),
            frees: level.frees.wrapping_add(passed_on),
            hits: above_zero(level.allocs.wrapping_sub(level.refills).wrapping_sub(level.misses)),
            refills: level.refills,
            misses: level.misses,
            constructed: shop.constructed.load(Relaxed),
            destructed: shop.destructed.load(Relaxed),
            in_use: sensible(counts.live()) * size,
            cached: sensible(counts.cached()) * size,
            returned: shop.returned.load(Relaxed).wrapping_mul(size),
            return_calls: shop.return_calls.load(Relaxed),
            refused: shop.refused.load(Relaxed),
            still_in_use: shop.still_in_use.load(Relaxed),
            capacity: core.pages() * size,
            threads: core.seated(),
            waiting: core.waiting(),
            passed_on,
        }
    }
}

impl<S: PageState> Drop for PagePool<S> {
    fn drop(&mut self) {
        if self.core().is_forked() {
            // Its locks may be held for ever. It goes with this process.
            return;
        }
        self.core().link().close();
        // SAFETY: it came from a box in `with_state`, which is dropped here once; no thread reaches
        // it any more, as the link is closed and pages borrow the pool or own a share of it.
        let mut core = unsafe { Box::from_raw(self.core.as_ptr()) };
        core.keep_what_is_out();
        core.end();
    }
}

impl<S: PageState> fmt::Debug for PagePool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PagePool").field(&self.stats()).finish()
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
