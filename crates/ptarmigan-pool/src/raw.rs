//! Pages of a shared pool that code outside Rust holds: the kernel, a device, a C library.
use super::PagePool;
use super::arena::RawPage;
use super::page::{ArcPage, PageIn};
use super::state::{PageState, Zeroed};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A page of a shared pool that foreign code may use: made by [`ArcPage::into_raw`].
///
/// A borrow cannot say how long a kernel uses a buffer: an operation goes on when the future that
/// waits for it is dropped. This says it instead. While it exists the page is out, and its memory
/// stays where it is, as it owns the page's share of the pool. To drop it is safe and leaks both:
/// the page and the pool stay until the process ends, so a write that comes late hits memory that
/// no other code uses. Only [`into_page`](Self::into_page) ends that, and it is `unsafe`, as only
/// the caller knows whether the foreign code has finished.
///
/// ```
/// use ptarmigan_pool::{PagePool, PoolConfig};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(PagePool::new(PoolConfig { page_size: 64 << 10, ..PoolConfig::default() })?);
/// let raw = pool.arc_page()?.into_raw_prefix(1500);   // the kernel may write 1,500 bytes
/// let buffer: std::ptr::NonNull<[u8]> = raw.buffer(); // for the submission
/// assert_eq!(buffer.len(), 1500);
/// drop(pool);                                         // the page keeps the memory
/// // SAFETY: no kernel was told of the buffer.
/// let page = unsafe { raw.into_page() };
/// assert_eq!(page.dirty(), 1500, "only these are cleared");
/// # Ok(())
/// # }
/// ```
///
/// It gives up its share once:
///
/// ```compile_fail,E0382
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// # use std::sync::Arc;
/// let pool = Arc::new(PagePool::new(PoolConfig::default()).unwrap());
/// let raw = pool.arc_page().unwrap().into_raw();
/// // SAFETY: no foreign code has it.
/// let pages = unsafe { (raw.into_page(), raw.into_page()) }; // use of moved value
/// ```
///
/// Safe code neither makes a page of it nor reads it:
///
/// ```compile_fail,E0133
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// # use std::sync::Arc;
/// let pool = Arc::new(PagePool::new(PoolConfig::default()).unwrap());
/// let page = pool.arc_page().unwrap().into_raw().into_page(); // call to unsafe function
/// ```
///
/// ```compile_fail,E0608
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// # use std::sync::Arc;
/// let pool = Arc::new(PagePool::new(PoolConfig::default()).unwrap());
/// let raw = pool.arc_page().unwrap().into_raw();
/// assert_eq!(raw[0], 0); // cannot index
/// ```
#[must_use = "a raw page that is dropped is lost until the process ends, and its pool with it"]
pub struct RawArcPage<S: PageState = Zeroed> {
    /// A share of the pool, from `Arc::into_raw`.
    pool: NonNull<PagePool<S>>,
    base: NonNull<u8>,
    /// Bytes from the beginning on that may have been written once it is a page again.
    dirty: usize,
    /// Bytes from the beginning on that foreign code may use.
    lent: usize,
}

// SAFETY: it is the page, as an address, and a share of the pool, both of which may go to any
// thread (`PageIn`).
unsafe impl<S: PageState> Send for RawArcPage<S> {}
// SAFETY: through a shared reference it gives out addresses and numbers only.
unsafe impl<S: PageState> Sync for RawArcPage<S> {}

impl<S: PageState> ArcPage<S> {
    /// Gives up the type, to lend all of the page to foreign code. It keeps its share of the pool.
    pub fn into_raw(self) -> RawArcPage<S> {
        self.lend(usize::MAX)
    }

    /// As [`into_raw`](Self::into_raw), of the first `n` bytes only (all, if the page has fewer): a
    /// page that is to be zero is cleared only so far later, if it was not lent further before.
    pub fn into_raw_prefix(self, n: usize) -> RawArcPage<S> {
        self.lend(n)
    }

    fn lend(self, n: usize) -> RawArcPage<S> {
        if S::TRACKS_ADDRESSES {
            self.pool().core().workshop().arena.keep(self.raw(), true);
        }
        let (pool, base, dirty) = self.into_parts();
        let lent = n.min(pool.page_size());
        // SAFETY: an `Arc` is never null.
        let pool = unsafe { NonNull::new_unchecked(Arc::into_raw(pool).cast_mut()) };
        RawArcPage { pool, base, dirty: dirty.max(lent), lent }
    }
}

impl<S: PageState> RawArcPage<S> {
    fn pool(&self) -> &PagePool<S> {
        // SAFETY: the share that `self` owns keeps the pool.
        unsafe { self.pool.as_ref() }
    }

    /// Returns where the page is.
    pub fn raw(&self) -> RawPage {
        self.pool().core().map().raw(self.base)
    }

    /// Returns the bytes that foreign code may read and write: from the beginning of the page on,
    /// as many as were lent.
    pub fn buffer(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.base, self.lent)
    }

    /// Returns the number of the page in its pool: see [`PageIn::index`].
    pub fn index(&self) -> usize {
        self.pool().core().map().number(self.base)
    }

    /// Makes it a page again. A page that is to be zero will be cleared as far as it was lent;
    /// [`dirty_to`](PageIn::dirty_to) may say that fewer bytes were written.
    ///
    /// # Safety
    ///
    /// 1. Foreign code must have finished with the page: it neither reads nor writes it from now
    ///    on. For an operation of io_uring that is so once its last completion was seen.
    /// 2. If the page is one that is to be zero, no byte beyond [`buffer`](Self::buffer) may have
    ///    been written, unless it was lent before.
    pub unsafe fn into_page(self) -> ArcPage<S> {
        if S::TRACKS_ADDRESSES {
            self.pool().core().workshop().arena.keep(self.raw(), false);
        }
        // SAFETY: `lend` had it from `Arc::into_raw`, and `self`, which owns it, ends here.
        let pool = unsafe { Arc::from_raw(self.pool.as_ptr()) };
        // SAFETY: 1. the page has been out since `lend`, and is given to this page alone. 2. by the
        // caller.
        unsafe { PageIn::again(pool, self.base, self.dirty) }
    }

    /// Gives up all but the address, for an interface that has room for one word, such as
    /// `user_data` of io_uring. [`from_base`](Self::from_base) is the way back.
    pub fn into_base(self) -> NonNull<u8> {
        self.base
    }

    /// Makes it of its address again, all of it lent.
    ///
    /// # Safety
    ///
    /// 1. `base` must have come from [`into_base`](Self::into_base) of a raw page of this very
    ///    `pool` (not of [`Page::into_raw`](super::Page::into_raw), which has no share of it).
    /// 2. It must be the only call for that `into_base`.
    pub unsafe fn from_base(pool: &Arc<PagePool<S>>, base: NonNull<u8>) -> Self {
        let size = pool.page_size();
        // SAFETY: an `Arc` is never null. The share is the one of `into_base` (1., 2.).
        let pool = unsafe { NonNull::new_unchecked(Arc::as_ptr(pool).cast_mut()) };
        RawArcPage { pool, base, dirty: size, lent: size }
    }
}

impl<S: PageState> fmt::Debug for RawArcPage<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "raw page at {:p}, {} bytes lent", self.base, self.lent)
    }
}
