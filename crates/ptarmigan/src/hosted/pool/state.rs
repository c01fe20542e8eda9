//! The state that a pool's pages are in when they are handed out.
use super::arena::{Arena, Map, RawPage};
use super::config::StateError;
use crate::addr::PhysAddr;
use crate::frames::Frames;
use crate::page::Construct;
use rustix::mm::{MprotectFlags, mprotect};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A state of pages: made once for each page that the host gives, kept while the page goes round,
/// unmade when it goes back.
///
/// Its functions run in slow paths only, on whichever thread comes to need them,
/// [`restore`](Self::restore) excepted, which runs each time a page is given back. They must not
/// use the pool they belong to: a thread without magazines of its own would wait for itself. A
/// panic in a constructor is an error, one in a destructor is caught.
///
/// # Safety
///
/// An implementation promises:
/// 1. The page stays mapped where it is, and nothing beyond it is touched.
/// 2. After [`destruct`](Self::destruct), and after a [`construct`](Self::construct) that failed,
///    all of it is readable and writable, and nobody uses it.
/// 3. Whatever it keeps a pointer for (a guard, a register of pages) it uses between the two only.
pub unsafe trait PageState: Send + Sync + 'static {
    /// Whether [`destruct`](Self::destruct) has anything to do; if not, a pool that ends does not
    /// call it.
    const DESTRUCTS: bool = true;

    /// Brings a page that is all zero into the state.
    ///
    /// # Errors
    ///
    /// Whatever is short; the page's content does not matter then. It may be tried a second time
    /// for the same request, after everything that was kept has been given back.
    ///
    /// # Safety
    ///
    /// 1. The caller owns `page`, a page of a pool that is there, and nothing else uses it.
    /// 2. It is all zero, readable and writable.
    unsafe fn construct(&self, page: RawPage) -> Result<(), StateError>;

    /// Undoes what [`construct`](Self::construct) did; the content does not matter.
    ///
    /// # Safety
    ///
    /// 1. The caller owns `page`, a page of a pool that is there, and nothing else uses it.
    /// 2. This state has constructed it, and not destructed it since.
    unsafe fn destruct(&self, page: RawPage);

    /// Brings a page that is given back into the state again; its first `dirty` bytes have been
    /// lent for writing.
    ///
    /// A [`RawPage`] says where a page is, not that it is the caller's:
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::hosted::{PagePool, PageState, PoolConfig, Zeroed};
    /// let pool = PagePool::new(PoolConfig { capacity: 1 << 20, ..PoolConfig::default() })?;
    /// let raw = pool.page()?.raw();
    /// Zeroed.restore(raw, 4096); // whose page is it by now?
    /// # Ok::<(), ptarmigan::hosted::PoolError>(())
    /// ```
    ///
    /// # Safety
    ///
    /// 1. The caller owns `page`, a page of a pool that is there, and nothing else uses it.
    /// 2. This state has constructed it, and not destructed it since. Nothing but its first `dirty`
    ///    bytes has changed since it was in the state.
    unsafe fn restore(&self, page: RawPage, dirty: usize);

    /// Whether the page is in the state. Asked in debug builds only, of every page given back.
    ///
    /// # Safety
    ///
    /// 1. The caller owns `page`, a page of a pool that is there, and nothing else uses it.
    /// 2. This state has constructed it, and not destructed it since.
    unsafe fn holds(&self, _page: RawPage) -> bool {
        true
    }
}

/// All bytes are zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Zeroed;

// SAFETY: 1. and 3. only bytes of the page are touched, in `restore`. 2. its protection never
// changes.
unsafe impl PageState for Zeroed {
    const DESTRUCTS: bool = false;

    #[inline(always)]
    unsafe fn construct(&self, _: RawPage) -> Result<(), StateError> {
        Ok(())
    }
    #[inline(always)]
    unsafe fn destruct(&self, _: RawPage) {}
    #[inline(always)]
    unsafe fn restore(&self, page: RawPage, dirty: usize) {
        if dirty > 0 {
            // SAFETY: the page is the caller's alone (1.); no more than its size is written.
            unsafe { page.base().as_ptr().write_bytes(0, dirty.min(page.size())) };
        }
    }
    unsafe fn holds(&self, page: RawPage) -> bool {
        // SAFETY: 1. pages of this state are readable, and this one is the caller's alone (1.).
        unsafe { Map::is_zero(page) }
    }
}

/// The lowest page of the host's in each page is a guard: to touch it is a fault. For stacks, which
/// grow downwards. What else is in the page is whatever its last user left there.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuardPage;

impl GuardPage {
    /// Bytes of the guard, at the bottom of the page: one page of the host's.
    pub fn size() -> usize {
        rustix::param::page_size()
    }
}

// SAFETY: 1. only the protection of the page's own bottom changes (`construct` looks at the size).
// 2. `destruct` gives the protection back; a `construct` that failed has changed none. 3. it keeps
// nothing.
unsafe impl PageState for GuardPage {
    unsafe fn construct(&self, page: RawPage) -> Result<(), StateError> {
        if page.size() <= Self::size() {
            return Err(format!("a page of {} bytes has no room for a guard", page.size()).into());
        }
        // SAFETY: the range lies in the page, which is the caller's and in no use (1.).
        unsafe { mprotect(page.base().as_ptr().cast(), Self::size(), MprotectFlags::empty())? };
        Ok(())
    }
    unsafe fn destruct(&self, page: RawPage) {
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: as above. It joins the guard with its neighbour, so it needs no memory that the
        // host may not have.
        let _ = unsafe { mprotect(page.base().as_ptr().cast(), Self::size(), all) };
    }
    #[inline(always)]
    unsafe fn restore(&self, _: RawPage, _: usize) {}
}

/// What the lists call when a page comes from the host or goes back to it.
pub(super) struct Workshop<S> {
    pub state: S,
    pub arena: Arena,
    pub constructed: AtomicUsize,
    pub destructed: AtomicUsize,
    /// Pages that the host has taken back.
    pub returned: AtomicUsize,
}

thread_local! {
    /// Why the last constructor on this thread failed.
    static WHY: Cell<Option<StateError>> = const { Cell::new(None) };
}

impl<S> Workshop<S> {
    /// Why the calling thread has just got no page; `None` if it was not the constructor.
    pub fn why() -> Option<StateError> {
        WHY.try_with(Cell::take).ok().flatten()
    }

    fn give_back(&self, page: RawPage) {
        // SAFETY: 1. a page of this arena that is on its way to the allocator; readable and
        // writable by the promise of `PageState`, 2.
        if unsafe { self.arena.map().give_back(page) } {
            self.returned.fetch_add(1, Relaxed);
        }
    }
}

// SAFETY: 1. `give_back` leaves the page all zero. 2. and 3. by the promises of `PageState`.
unsafe impl<S: PageState> Construct for Workshop<S> {
    unsafe fn construct(&self, frames: &Frames, at: PhysAddr) {
        // SAFETY: 1. and 2. passed on.
        unsafe { self.try_construct(frames, at) };
    }

    unsafe fn try_construct(&self, _: &Frames, at: PhysAddr) -> bool {
        let page = self.arena.map().page(at);
        // SAFETY: 1. a page of this arena that the caller owns (contract of `construct`, 1.). 2. it
        // is all zero (2.), and no state has changed its protection, or one that has was
        // destructed.
        let result = catch_unwind(AssertUnwindSafe(|| unsafe { self.state.construct(page) }))
            .unwrap_or_else(|_| Err("the constructor panicked".into()));
        let Err(why) = result else {
            self.constructed.fetch_add(1, Relaxed);
            return true;
        };
        self.give_back(page);
        // Without its thread's storage a thread that ends learns less.
        let _ = WHY.try_with(|cell| cell.set(Some(why)));
        false
    }

    unsafe fn destruct(&self, _: &Frames, at: PhysAddr) {
        let page = self.arena.map().page(at);
        // The memory goes back whatever the destructor does.
        // SAFETY: 1. a page of this arena that the caller owns. 2. `try_construct` had the state
        // construct it (contract of `destruct`, 1.).
        let _ = catch_unwind(AssertUnwindSafe(|| unsafe { self.state.destruct(page) }));
        self.destructed.fetch_add(1, Relaxed);
        self.give_back(page);
    }
}
