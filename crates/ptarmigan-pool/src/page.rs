//! A page in use.
use super::state::{PageState, Zeroed};
use super::{PagePool, RawPage};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

mod sealed {
    pub trait Sealed {}
}

/// How a page holds on to its pool: by a borrow, or by a share of it.
pub trait PoolHandle: sealed::Sealed + Deref<Target = PagePool<Self::State>> {
    /// The state of the pool's pages.
    type State: PageState;
}

impl<S: PageState> sealed::Sealed for &PagePool<S> {}
impl<S: PageState> PoolHandle for &PagePool<S> {
    type State = S;
}
impl<S: PageState> sealed::Sealed for Arc<PagePool<S>> {}
impl<S: PageState> PoolHandle for Arc<PagePool<S>> {
    type State = S;
}

/// A page that borrows its pool.
pub type Page<'p, S = Zeroed> = PageIn<&'p PagePool<S>>;
/// A page that owns a share of its pool, and so may live anywhere; taking and dropping it counts
/// the share with two atomic operations.
pub type ArcPage<S = Zeroed> = PageIn<Arc<PagePool<S>>>;

/// A page of a pool: owned, in its state when it is handed out, brought into it again when it is
/// dropped, on any thread.
///
/// A page that is zero is lent as bytes. It remembers how far it was lent for writing, from its
/// beginning on, and clears that when it is dropped: no byte of a page that was only read, `n`
/// bytes after [`prefix_mut(n)`](Self::prefix_mut), all of it after any other way to write.
/// Clearing 4 KiB takes some ten times as long as everything else that a pool does. Code that
/// writes to the front of pages only should say so.
///
/// Uses that a borrow does not allow do not compile. Use after it was given back:
///
/// ```compile_fail,E0382
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// let pool = PagePool::new(PoolConfig::default()).unwrap();
/// let page = pool.page().unwrap();
/// drop(page);
/// assert_eq!(page[0], 0); // borrow of moved value
/// ```
///
/// Giving back twice:
///
/// ```compile_fail,E0382
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// let pool = PagePool::new(PoolConfig::default()).unwrap();
/// let page = pool.page().unwrap();
/// drop(page);
/// drop(page); // use of moved value
/// ```
///
/// A page that outlives its pool:
///
/// ```compile_fail,E0505
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// let pool = PagePool::new(PoolConfig::default()).unwrap();
/// let page = pool.page().unwrap();
/// drop(pool); // cannot move out of `pool` because it is borrowed
/// drop(page);
/// ```
///
/// Its bytes, after it:
///
/// ```compile_fail,E0505
/// # use ptarmigan_pool::{PagePool, PoolConfig};
/// let pool = PagePool::new(PoolConfig::default()).unwrap();
/// let page = pool.page().unwrap();
/// let bytes = &page[..];
/// drop(page); // cannot move out of `page` because it is borrowed
/// assert_eq!(bytes[0], 0);
/// ```
#[must_use = "a page that is dropped goes back at once"]
pub struct PageIn<H: PoolHandle> {
    pool: H,
    base: NonNull<u8>,
    /// Bytes from the beginning on that have been lent for writing.
    dirty: usize,
}

// SAFETY: the page is owned, as a box is, and may be given back on any thread; pools may be shared
// between threads.
unsafe impl<H: PoolHandle + Send> Send for PageIn<H> {}
// SAFETY: through a shared reference it lends its bytes for reading, or only its address.
unsafe impl<H: PoolHandle + Sync> Sync for PageIn<H> {}

impl<H: PoolHandle> PageIn<H> {
    /// A page that has just been taken.
    ///
    /// # Safety
    ///
    /// 1. `base` must have come from `take` of the core of `pool`, and nobody else has it.
    #[inline]
    pub(super) unsafe fn new(pool: H, base: NonNull<u8>) -> Self {
        PageIn { pool, base, dirty: 0 }
    }

    /// A page that was kept as an address, `dirty` bytes of it lent for writing.
    ///
    /// # Safety
    ///
    /// 1. As for [`new`](Self::new).
    /// 2. In pools of zero pages only the first `dirty` bytes may differ from zero.
    #[inline]
    pub(super) unsafe fn again(pool: H, base: NonNull<u8>, dirty: usize) -> Self {
        PageIn { pool, base, dirty }
    }

    /// Takes it apart without giving the page back: handle, address, bytes lent for writing.
    #[inline]
    pub(super) fn into_parts(self) -> (H, NonNull<u8>, usize) {
        let page = ManuallyDrop::new(self);
        // SAFETY: the page is not used again, so its handle has one owner: the caller.
        (unsafe { std::ptr::read(&page.pool) }, page.base, page.dirty)
    }

    /// Returns the number of the page in its pool, from 0 on: the place of its memory in the pool's
    /// [region](super::RegionIn). It tells pages apart that are out at the same time, and says
    /// nothing of who has the page: no call takes it for a page.
    #[inline]
    pub fn index(&self) -> usize {
        self.pool.core().map().number(self.base)
    }

    /// The pool it belongs to.
    pub fn pool(&self) -> &PagePool<H::State> {
        &self.pool
    }

    /// Returns where it is. The permitted accesses depend on its state. To write to a page that is
    /// to be zero, use [`as_mut_ptr`](Self::as_mut_ptr) instead.
    #[inline]
    pub fn raw(&self) -> RawPage {
        self.pool.core().map().raw(self.base)
    }
}

impl<S: PageState> Page<'_, S> {
    /// Gives up the type, to keep the page as an address: for pages that foreign code holds. The
    /// page is out until [`PagePool::page_from_raw`] or [`PagePool::try_page_from_raw`] makes it a
    /// page again. If the pool ends before, the memory of the page stays until the process ends.
    ///
    /// Code that holds a page for longer than a borrow lasts should use an [`ArcPage`], whose
    /// [`into_raw`](ArcPage::into_raw) keeps the pool.
    #[inline]
    pub fn into_raw(self) -> RawPage {
        let page = ManuallyDrop::new(self);
        if S::TRACKS_ADDRESSES {
            page.pool.core().workshop().arena.keep(page.raw(), true);
        }
        page.raw()
    }
}

impl<H: PoolHandle<State = Zeroed>> PageIn<H> {
    /// The first `n` bytes (all, if the page has fewer), to write to. Only these are cleared when
    /// the page is dropped, if it is lent in no other way.
    #[inline]
    pub fn prefix_mut(&mut self, n: usize) -> &mut [u8] {
        let n = n.min(self.pool.page_size());
        self.dirty = self.dirty.max(n);
        // SAFETY: the page is ours and at least `n` bytes long; `&mut self` makes the reference
        // exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), n) }
    }

    /// The first `n` bytes (all, if the page has fewer), as a pointer with its length: for code
    /// that writes and takes no slice, such as a system call. It may be used until the page is
    /// given back. Only these bytes are cleared when the page is dropped, if it is lent in no other
    /// way; to write beyond them through it is to write beyond the end of a buffer.
    ///
    /// ```
    /// # use ptarmigan_pool::{PagePool, PoolConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PagePool::new(PoolConfig { page_size: 64 << 10, ..PoolConfig::default() })?;
    /// let mut page = pool.page()?;
    /// let buffer = page.prefix_ptr(1500);
    /// // recv(socket, buffer.cast(), buffer.len(), 0)
    /// # // SAFETY: the first byte of 1,500 that are ours.
    /// # unsafe { buffer.cast::<u8>().write(7) };
    /// assert_eq!((buffer.len(), page.dirty(), page[0]), (1500, 1500, 7));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn prefix_ptr(&mut self, n: usize) -> NonNull<[u8]> {
        let n = n.min(self.pool.page_size());
        self.dirty = self.dirty.max(n);
        NonNull::slice_from_raw_parts(self.base, n)
    }

    /// A pointer to write through, anywhere in the page: all of it will be cleared. Code that
    /// writes to the front only should use [`prefix_ptr`](Self::prefix_ptr), which costs as much
    /// clearing as it lends.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.dirty = self.pool.page_size();
        self.base.as_ptr()
    }

    /// Bytes from the beginning on that will be cleared when the page is dropped.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// Only the first `n` bytes need to be cleared. Debug builds look at the rest when the page is
    /// dropped.
    ///
    /// # Safety
    ///
    /// 1. When the page is dropped, every byte from `n` on is zero, unless it is lent for writing
    ///    again.
    #[inline]
    pub unsafe fn dirty_to(&mut self, n: usize) {
        self.dirty = n.min(self.pool.page_size());
    }

    /// Gives the page back as it is, without clearing. Debug builds verify it.
    ///
    /// # Safety
    ///
    /// 1. Every byte of the page must be zero.
    #[inline]
    pub unsafe fn give_back_clean(self) {
        // Not through the destructor, which would have to look whether there is anything to clear.
        let page = ManuallyDrop::new(self);
        // SAFETY: the page is not used again below, and no other code drops its hold on the pool; a
        // share that is held until the end of this function keeps the pool while the page goes
        // back.
        let pool = unsafe { std::ptr::read(&page.pool) };
        let core = pool.core();
        // SAFETY: 1. the page was the caller's alone and is given back here. 2. the core's state
        // made it, and pages that are out are not destructed.
        let holds = || unsafe { core.workshop().state.holds(page.raw()) };
        debug_assert!(holds(), "{:?} is given back and is not in its state", *page);
        // SAFETY: 1. `new` was promised it, and this is its end. 2. as the caller says.
        unsafe { core.give(page.base) };
    }
}

impl<H: PoolHandle<State = Zeroed>> Deref for PageIn<H> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the page is ours, initialised (zero) and readable throughout.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.pool.page_size()) }
    }
}

/// Lends all of it for writing: all of it will be cleared.
impl<H: PoolHandle<State = Zeroed>> DerefMut for PageIn<H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.prefix_mut(usize::MAX)
    }
}

impl<H: PoolHandle> Drop for PageIn<H> {
    #[inline]
    fn drop(&mut self) {
        let core = self.pool.core();
        let state = &core.workshop().state;
        if state.is_in_use(self.raw()) {
            core.leave_in_use(self.raw());
            return;
        }
        // SAFETY: 1. the page is `self`'s alone, and this is its end. 2. the core's state made it,
        // and pages that are out are not destructed; `dirty` counts the bytes lent for writing.
        unsafe { state.restore(self.raw(), self.dirty) };
        // SAFETY: 1. and 2. as above.
        let holds = || unsafe { state.holds(self.raw()) };
        debug_assert!(holds(), "{self:?} is given back and is not in its state");
        // SAFETY: 1. `new` was promised it, and this is its end. 2. restored just now; for zero
        // pages all that was lent for writing has been cleared, or the caller of an unsafe function
        // has promised that it need not be.
        unsafe { core.give(self.base) };
    }
}

impl<H: PoolHandle> fmt::Debug for PageIn<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page of {} bytes at {:p}", self.pool.page_size(), self.base)
    }
}
