//! The state that a pool's pages are in when they are handed out.
use super::arena::{Arena, Map, RawPage};
use super::error::{Refusal, StateError};
use super::hook::{MetricsHook, PoolEvent};
use ptarmigan::addr::{FRAME_SHIFT, FRAME_SIZE, PhysAddr};
use ptarmigan::frames::Frames;
use ptarmigan::page::Construct;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A state of pages: made once for each page that the host gives, kept while the page goes round,
/// unmade when it goes back.
///
/// Its functions run in slow paths only, on whichever thread comes to need them,
/// [`restore`](Self::restore) excepted, which runs each time a page is given back. They must not
/// use the pool they belong to: a thread without magazines of its own would wait for itself. A
/// panic in a constructor is an error, one in a destructor is caught. A page that `restore` unwinds
/// over stays out until the pool ends.
///
/// # Safety
///
/// An implementation must ensure:
/// 1. The page must stay mapped where it is, and memory beyond it must not be touched.
/// 2. After [`destruct`](Self::destruct), and after a [`construct`](Self::construct) that failed,
///    all of it is readable and writable, and nobody uses it. So it is after either has unwound.
/// 3. Whatever it keeps a pointer for (a guard, a register of pages) it uses between the two only.
pub unsafe trait PageState: Send + Sync + 'static {
    /// Whether [`destruct`](Self::destruct) has anything to do; if not, a pool that ends does not
    /// call it.
    const DESTRUCTS: bool = true;

    /// Whether [`construct`](Self::construct) relies on a page that is all zero. If not, it gets
    /// pages as they are: memory that the host does not take back is not cleared, but for its first
    /// 4 KiB.
    const NEEDS_ZERO: bool = true;

    /// Whether the pool knows which pages are kept as addresses
    /// ([`Page::into_raw`](super::PageIn::into_raw)), so that
    /// [`try_page_from_raw`](super::PagePool::try_page_from_raw) refuses all others. It costs an
    /// atomic operation on both ways.
    const TRACKS_ADDRESSES: bool = false;

    /// Brings a page that is all zero (see [`NEEDS_ZERO`](Self::NEEDS_ZERO)) into the state.
    ///
    /// # Errors
    ///
    /// Whatever is short; the page's content does not matter then. It may be tried a second time
    /// for the same request, after everything that was kept has been given back.
    ///
    /// # Safety
    ///
    /// 1. The caller must own `page`, a page of a pool that is there, which no other code uses.
    /// 2. It must be readable and writable, and all zero unless the state does not need that.
    unsafe fn construct(&self, page: RawPage) -> Result<(), StateError>;

    /// Undoes [`construct`](Self::construct); the content does not matter.
    ///
    /// # Safety
    ///
    /// 1. The caller must own `page`, a page of a pool that is there, which no other code uses.
    /// 2. This state has constructed it, and not destructed it since.
    unsafe fn destruct(&self, page: RawPage);

    /// Brings a page that is given back into the state again; its first `dirty` bytes have been
    /// lent for writing.
    ///
    /// A [`RawPage`] says where a page is, not that it is the caller's:
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan_pool::{PagePool, PageState, PoolConfig, Zeroed};
    /// let pool = PagePool::new(PoolConfig { capacity: 1 << 20, ..PoolConfig::default() })?;
    /// let raw = pool.page()?.raw();
    /// Zeroed.restore(raw, 4096); // whose page is it by now?
    /// # Ok::<(), ptarmigan_pool::PoolError>(())
    /// ```
    ///
    /// # Safety
    ///
    /// 1. The caller must own `page`, a page of a pool that is there, which no other code uses.
    /// 2. This state has constructed it, and not destructed it since. Only its first `dirty` bytes
    ///    may have changed since it was in the state.
    unsafe fn restore(&self, page: RawPage, dirty: usize);

    /// Whether the page is in the state. Asked in debug builds only, of every page given back.
    ///
    /// # Safety
    ///
    /// 1. The caller must own `page`, a page of a pool that is there, which no other code uses.
    /// 2. This state has constructed it, and not destructed it since.
    unsafe fn holds(&self, _page: RawPage) -> bool {
        true
    }

    /// Whether the code that gives `page` back still uses it, as far as that can be told. Asked of
    /// every page given back. One that is in use stays out until the pool ends, its memory until
    /// the process does, and [`PoolStats::still_in_use`](super::PoolStats) counts it.
    #[inline]
    fn is_in_use(&self, _page: RawPage) -> bool {
        false
    }
}

/// All bytes are zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Zeroed;

// SAFETY: 1. and 3. only bytes of the page are touched, in `restore`. 2. its protection never
// changes.
unsafe impl PageState for Zeroed {
    const DESTRUCTS: bool = false;

    #[inline]
    unsafe fn construct(&self, _: RawPage) -> Result<(), StateError> {
        Ok(())
    }
    #[inline]
    unsafe fn destruct(&self, _: RawPage) {}
    #[inline]
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

/// The functions that the lists call when a page comes from the host or goes back to it.
pub(super) struct Workshop<S> {
    pub state: S,
    pub arena: Arena,
    pub constructed: AtomicUsize,
    pub destructed: AtomicUsize,
    /// Pages that the host has taken back, and the calls that it took.
    pub returned: AtomicUsize,
    pub return_calls: AtomicUsize,
    /// Calls that the host has refused.
    pub refused: AtomicUsize,
    /// Pages that were given back while they were in use.
    pub still_in_use: AtomicUsize,
    pub hook: Option<MetricsHook>,
}

/// Pages whose memory goes back in one piece.
const PIECE: usize = 256;

thread_local! {
    /// Why the last constructor on this thread failed.
    static WHY: Cell<Option<StateError>> = const { Cell::new(None) };
}

impl<S> Workshop<S> {
    /// Makes the parts of a pool's pages from its state and its memory.
    pub fn new(state: S, arena: Arena, hook: Option<MetricsHook>) -> Self {
        Workshop {
            state,
            arena,
            constructed: AtomicUsize::new(0),
            destructed: AtomicUsize::new(0),
            returned: AtomicUsize::new(0),
            return_calls: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            still_in_use: AtomicUsize::new(0),
            hook,
        }
    }

    /// Why the calling thread has just got no page; `None` if it was not the constructor.
    pub fn why() -> Option<StateError> {
        WHY.try_with(Cell::take).ok().flatten()
    }

    /// Tells the hook, if there is one.
    pub fn tell(&self, event: &PoolEvent) {
        if let Some(hook) = &self.hook {
            hook.tell(event);
        }
    }

    /// Counts refusals of the host.
    pub fn refused(&self, refusal: Refusal) {
        self.refused.fetch_add(1, Relaxed);
        self.tell(&PoolEvent::Refused(refusal));
    }
}

impl<S: PageState> Workshop<S> {
    /// Gives the memory of pages back to the host.
    ///
    /// # Safety
    ///
    /// 1. As for [`Arena::give_back`].
    unsafe fn give_back(&self, numbers: &mut [u32]) {
        let needed = if S::NEEDS_ZERO { usize::MAX } else { FRAME_SIZE };
        // SAFETY: 1. by the caller.
        let given = unsafe { self.arena.give_back(numbers, needed) };
        self.returned.fetch_add(given.pages, Relaxed);
        self.return_calls.fetch_add(given.calls, Relaxed);
        if let Some(refused) = given.refused {
            self.refused(refused);
        }
        if given.pages > 0 {
            self.tell(&PoolEvent::Returned { pages: given.pages, calls: given.calls });
        }
    }
}

fn number(at: PhysAddr) -> u32 {
    (at.0 >> FRAME_SHIFT) as u32
}

// SAFETY: 1. `give_back` leaves the page all zero, or as much of it as is a table to the lists: a
// frame. 2. and 3. by the promises of `PageState`.
unsafe impl<S: PageState> Construct for Workshop<S> {
    unsafe fn construct(&self, frames: &Frames, at: PhysAddr) {
        // SAFETY: 1. and 2. passed on.
        unsafe { self.try_construct(frames, at) };
    }

    unsafe fn try_construct(&self, _: &Frames, at: PhysAddr) -> bool {
        let page = self.arena.map().page(at);
        // SAFETY: 1. a page of this arena that the caller owns (contract of `construct`, 1.).
        let guarded = unsafe { self.arena.guard(page) };
        let result = match guarded {
            Err(refused) => {
                self.refused(refused.clone());
                Err(refused.into())
            }
            // SAFETY: 1. as above. 2. it is zero as far as the state needs (2.), and no state has
            // changed its protection, or one that has was destructed.
            Ok(()) => catch_unwind(AssertUnwindSafe(|| unsafe { self.state.construct(page) }))
                .unwrap_or_else(|_| Err("the constructor panicked".into())),
        };
        let Err(why) = result else {
            self.constructed.fetch_add(1, Relaxed);
            self.tell(&PoolEvent::Fresh);
            return true;
        };
        // SAFETY: 1. readable and writable by the promise of `PageState`, 2., and the caller's.
        unsafe { self.give_back(&mut [number(at)]) };
        // Without its thread's storage a thread that ends learns less.
        let _ = WHY.try_with(|cell| cell.set(Some(why)));
        false
    }

    unsafe fn destruct(&self, frames: &Frames, at: PhysAddr) {
        // SAFETY: 1. passed on.
        unsafe { self.destruct_all(frames, std::iter::once(at)) };
    }

    unsafe fn destruct_all(&self, _: &Frames, mut pages: impl Iterator<Item = PhysAddr>) {
        loop {
            let (mut numbers, mut n) = ([0; PIECE], 0);
            for at in pages.by_ref().take(PIECE) {
                let page = self.arena.map().page(at);
                // The memory goes back whatever the destructor does.
                // SAFETY: 1. a page of this arena that the caller owns. 2. `try_construct` had the
                // state construct it (contract of `destruct_all`, 1.).
                let _ = catch_unwind(AssertUnwindSafe(|| unsafe { self.state.destruct(page) }));
                numbers[n] = number(at);
                n += 1;
            }
            if n == 0 {
                return;
            }
            self.destructed.fetch_add(n, Relaxed);
            // SAFETY: 1. readable and writable by the promise of `PageState`, 2.; the caller's,
            // each once.
            unsafe { self.give_back(&mut numbers[..n]) };
        }
    }
}
