//! Addresses of all pages of a pool, fixed for as long as a value exists.
use super::PagePool;
use super::arena::RawPage;
use super::error::PoolError;
use super::page::PoolHandle;
use super::state::{PageState, Zeroed};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A region that borrows its pool.
pub type Region<'p, S = Zeroed> = RegionIn<&'p PagePool<S>>;
/// A region that owns a share of its pool.
pub type ArcRegion<S = Zeroed> = RegionIn<Arc<PagePool<S>>>;

/// The memory of all pages of a pool, for a kernel or a device that is told of it once: made by
/// [`PagePool::region`] and [`PagePool::arc_region`].
///
/// Pages never move. But a pool gives memory of unused pages back to the host, and a kernel that
/// has registered a buffer (`IORING_REGISTER_BUFFERS`) holds on to the memory that was there then:
/// it would go on to write where the pool does not look any more. So while a region exists the pool
/// gives no memory back: [`decay`](PagePool::decay) and [`trim`](PagePool::trim) return 0. Keep the
/// region until the kernel has forgotten the buffers. One that is forgotten (`mem::forget`) keeps
/// the memory until the process ends.
///
/// ```
/// use ptarmigan_pool::{PagePool, PoolConfig};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = PoolConfig { capacity: 1 << 20, page_size: 64 << 10, ..PoolConfig::default() };
/// let pool = Arc::new(PagePool::new(config)?);
/// let region = pool.arc_region()?;
/// // One buffer for all pages: an iovec of this address and length.
/// let (base, len) = (region.base(), region.len());
/// assert_eq!(len, 1 << 20);
/// // Or a buffer for each: `index` is the buffer's number then.
/// let buffers: Vec<_> = region.pages().map(|page| (page.base(), page.size())).collect();
/// let page = pool.arc_page()?;
/// assert_eq!(buffers[page.index()].0, page.raw().base());
/// # let _ = base;
/// # Ok(())
/// # }
/// ```
///
/// The pool cannot end before it:
///
/// ```compile_fail,E0505
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// let pool = PagePool::new(PoolConfig::default()).unwrap();
/// let region = pool.region().unwrap();
/// drop(pool); // cannot move out of `pool` because it is borrowed
/// assert!(region.len() > 0);
/// ```
#[must_use = "the memory is fixed only as long as the region exists"]
pub struct RegionIn<H: PoolHandle> {
    pool: H,
}

impl<S: PageState> PagePool<S> {
    /// Fixes the memory of all pages, and says where it is.
    ///
    /// # Errors
    ///
    /// [`PoolError::Forked`] in a child of the process that made the pool.
    pub fn region(&self) -> Result<Region<'_, S>, PoolError> {
        RegionIn::new(self)
    }

    /// As [`region`](Self::region); the region owns a share of the pool.
    ///
    /// # Errors
    ///
    /// As [`region`](Self::region).
    pub fn arc_region(self: &Arc<Self>) -> Result<ArcRegion<S>, PoolError> {
        RegionIn::new(self.clone())
    }
}

impl<H: PoolHandle> RegionIn<H> {
    fn new(pool: H) -> Result<Self, PoolError> {
        if pool.core().is_forked() {
            return Err(PoolError::Forked);
        }
        pool.core().workshop().arena.fix();
        Ok(RegionIn { pool })
    }

    /// Returns the first byte of the first page.
    pub fn base(&self) -> NonNull<u8> {
        self.pool.core().map().nth(0).base()
    }

    /// Returns the bytes from [`base`](Self::base) to the end of the last page. With guards these
    /// lie in between, and no kernel takes such a buffer: name the [pages](Self::pages) then.
    #[expect(clippy::len_without_is_empty, reason = "a pool has a page at least")]
    pub fn len(&self) -> usize {
        let map = self.pool.core().map();
        self.pool.core().pages() * (map.size() + map.gap()) - map.gap()
    }

    /// Returns the page of a number, or `None` if there are fewer.
    pub fn page(&self, index: usize) -> Option<RawPage> {
        let core = self.pool.core();
        (index < core.pages()).then(|| core.map().nth(index))
    }

    /// Returns all pages in the order of their [numbers](super::PageIn::index).
    pub fn pages(&self) -> impl ExactSizeIterator<Item = RawPage> + use<H> {
        let map = self.pool.core().map();
        (0..self.pool.core().pages()).map(move |n| map.nth(n))
    }

    /// Returns the pool.
    pub fn pool(&self) -> &PagePool<H::State> {
        &self.pool
    }
}

impl<H: PoolHandle> Drop for RegionIn<H> {
    fn drop(&mut self) {
        // In a child the lock may be held for ever.
        if !self.pool.core().is_forked() {
            self.pool.core().workshop().arena.unfix();
        }
    }
}

impl<H: PoolHandle> fmt::Debug for RegionIn<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region of {} bytes at {:p}", self.len(), self.base())
    }
}
