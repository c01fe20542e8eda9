//! The crate `page-table-generic`, which clears its tables. It gives tables back that it has found
//! empty, and full ones when a space ends, by the same hook.
use super::Home;
use crate::tree::{ENTRY, Entries, Tree};
use core::marker::PhantomData;
use page_table_generic::{
    FrameAllocator, MapConfig, PageTableEntry, PageTableRef, PagingError, PagingResult,
    PhysAddr as TheirPhysAddr, PteConfigOf, TableMeta, VirtAddr as TheirVirtAddr,
};
use ptarmigan::addr::{FRAME_SIZE, PhysAddr};
use ptarmigan::page::Level;

/// Bytes of the smallest large page.
const LARGE: usize = FRAME_SIZE << 9;

fn theirs(at: PhysAddr) -> TheirPhysAddr {
    TheirPhysAddr::from_usize(at.0 as usize)
}

fn ours(at: TheirPhysAddr) -> PhysAddr {
    PhysAddr(at.as_usize() as u64)
}

/// The crate's hooks over pages, for its own `PageTable`. The crate clears each table that comes,
/// and each one that goes is cleared as a whole: [`Space`] is the fast way.
#[derive(Debug)]
pub struct Frames<H>(PhantomData<H>);

impl<H> Frames<H> {
    /// Makes the hooks.
    pub const fn new() -> Self {
        Frames(PhantomData)
    }
}

impl<H> Default for Frames<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> Clone for Frames<H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Frames<H> {}

impl<H: Home> FrameAllocator for Frames<H> {
    fn alloc_frame(&self) -> Option<TheirPhysAddr> {
        H::pages().alloc().map(theirs)
    }

    fn dealloc_frame(&self, at: TheirPhysAddr) {
        // SAFETY: 1. and 3. the crate had it of `alloc_frame`, and gives it back once, when no
        // entry leads to it (contract of `Home`, 2.).
        unsafe { H::pages().give_back_full(ours(at)) };
    }

    #[inline]
    fn phys_to_virt(&self, at: TheirPhysAddr) -> *mut u8 {
        H::pointer(ours(at))
    }
}

/// Internal allocator of a [`Space`]. It never allocates, and it frees tables whose written lines
/// are all recorded.
#[derive(Clone, Copy)]
struct Noted<H>(PhantomData<H>);

impl<H: Home> FrameAllocator for Noted<H> {
    fn alloc_frame(&self) -> Option<TheirPhysAddr> {
        // The space has made the tables.
        None
    }

    fn dealloc_frame(&self, at: TheirPhysAddr) {
        // SAFETY: 1. to 3. only the crate calls this, with a table of a space that it has unlinked
        // and found empty; the space has recorded its written lines.
        unsafe { H::pages().give_back(ours(at)) };
    }

    #[inline]
    fn phys_to_virt(&self, at: TheirPhysAddr) -> *mut u8 {
        H::pointer(ours(at))
    }
}

/// An entry whose tables can be told from its pages.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. It has 8 bytes, every one of which is part of its value, and any value of theirs is an entry.
///    One of zeroes [is unused](PageTableEntry::unused), and [`clear`](PageTableEntry::clear) makes
///    one.
/// 2. One that [`new_table`](PageTableEntry::new_table) made is present, not huge, not unused, and
///    has the address that it was made with.
/// 3. One that [`new_page`](PageTableEntry::new_page) made as a huge one is huge, whatever its
///    configuration, or not present.
pub unsafe trait TableEntry: PageTableEntry {}

struct Descriptors<E>(PhantomData<E>);

// SAFETY: 1. by the contract of `TableEntry`, 1.; `Space` checks the size. 2. by the same, 2. and
// 3.
unsafe impl<E: TableEntry> Entries for Descriptors<E> {
    type Entry = E;

    #[inline]
    fn is_none(&self, entry: E) -> bool {
        entry.unused()
    }

    #[inline]
    fn table(&self, entry: E) -> Option<PhysAddr> {
        (!entry.unused() && entry.present() && !entry.huge(true)).then(|| ours(entry.paddr(true)))
    }

    #[inline]
    fn link(&self, at: PhysAddr) -> E {
        E::new_table(theirs(at))
    }
}

/// A tree of the crate's entries, with tables that the space makes, notes and takes apart. The
/// crate works on it through [`PageTableRef`], its view of a tree that is another's.
pub struct Space<T: TableMeta<P: TableEntry>, H: Home> {
    tree: Tree,
    of: PhantomData<(T, H)>,
}

impl<T: TableMeta<P: TableEntry>, H: Home> Space<T, H> {
    const FITS: () = {
        assert!(size_of::<T::P>() == ENTRY, "entries have 8 bytes");
        assert!(T::PAGE_SIZE == FRAME_SIZE, "tables are frames");
        let levels = T::LEVEL_BITS.len();
        assert!(1 < levels && levels <= ptarmigan::page::MAX_LEVELS, "two levels to five");
        let mut level = 0;
        while level < levels {
            assert!(T::LEVEL_BITS[level] == 9, "512 entries in each table");
            level += 1;
        }
    };

    /// Makes an empty space.
    ///
    /// # Errors
    ///
    /// [`PagingError::NoMemory`].
    pub fn new() -> PagingResult<Self> {
        let () = Self::FITS;
        let root = H::pages().alloc().ok_or(PagingError::NoMemory)?;
        Ok(Space { tree: Tree::new(root, Level(T::LEVEL_BITS.len() as u8 - 1)), of: PhantomData })
    }

    /// Returns the physical address of the root.
    pub fn root_paddr(&self) -> TheirPhysAddr {
        theirs(self.tree.root)
    }

    fn view(&self) -> PageTableRef<T, Noted<H>> {
        // SAFETY: the root is a table of the space, zero when it came, and all tables below it are
        // reached by the hooks. The view lives for one call that has the space, alone if it writes.
        unsafe { PageTableRef::from_paddr(self.root_paddr(), Noted(PhantomData)) }
    }

    /// Maps a page as [`PageTableRef::map_page`] does.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn map_page(
        &mut self,
        vaddr: TheirVirtAddr,
        paddr: TheirPhysAddr,
        page_size: usize,
        config: PteConfigOf<T>,
    ) -> PagingResult {
        if let Some(level) = level(page_size).filter(|level| *level <= self.tree.top) {
            let entries = Descriptors::<T::P>(PhantomData);
            // SAFETY: 1. all tables are of these pages, and `&mut self` has them alone.
            if !unsafe { self.tree.on(H::pages(), &entries) }.grow(vaddr.as_usize() as u64, level) {
                return Err(PagingError::NoMemory);
            }
        }
        self.view().map_page(vaddr, paddr, page_size, config)
    }

    /// Maps a region as [`PageTableRef::map_region`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn map_region(
        &mut self,
        start: TheirVirtAddr,
        get_paddr: impl Fn(TheirVirtAddr) -> TheirPhysAddr,
        size: usize,
        config: PteConfigOf<T>,
    ) -> PagingResult {
        let mut view = self.view();
        let tree = &mut self.tree;
        // Asked before each page is written: so a region that fails leaves no tables behind it.
        let resolve = |va: TheirVirtAddr| {
            let entries = Descriptors::<T::P>(PhantomData);
            // SAFETY: 1. as in `map_page`; the crate does not read or write it meanwhile.
            let grown = unsafe { tree.on(H::pages(), &entries) }.grow(va.as_usize() as u64, Level::PTE);
            if grown { Ok(get_paddr(va)) } else { Err(PagingError::NoMemory) }
        };
        let result = view.map_region_checked(start, resolve, size, config);
        // If it has failed, tables have gone.
        self.tree.forget();
        result
    }

    /// Maps a linear range as [`PageTableRef::map`] does, with pages as large as there.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn map(&mut self, config: &MapConfig<PteConfigOf<T>>) -> PagingResult {
        let (va, pa) = (config.vaddr.as_usize(), config.paddr.as_usize());
        let ends = [va, pa].map(|at| at.checked_add(config.size));
        let fits = config.size > 0 && (va | pa | config.size).is_multiple_of(FRAME_SIZE);
        let [Some(end), Some(_)] = ends.map(|end| end.filter(|_| fits)) else {
            // The crate returns the error, and does not write.
            return self.view().map(config);
        };
        let mut at = va;
        while at < end {
            let large = |level: &u32| {
                let size = FRAME_SIZE << (9 * level);
                (at | (at - va + pa)).is_multiple_of(size) && size <= end - at
            };
            // The crate's lowest level is 1.
            let levels = (T::MAX_BLOCK_LEVEL as u32).min(u32::from(self.tree.top.0) + 1);
            let levels = if config.allow_huge { levels } else { 0 };
            let level = (1..levels).rev().find(large).unwrap_or(0);
            // A large page, or the pages of one leaf table: if they fail, no tables are left
            // behind.
            let next = match level {
                0 => (at | (LARGE - 1)).checked_add(1).map_or(end, |next| next.min(end)),
                level => at + (FRAME_SIZE << (9 * level)),
            };
            let entries = Descriptors::<T::P>(PhantomData);
            // SAFETY: 1. as in `map_page`.
            let mut tree = unsafe { self.tree.on(H::pages(), &entries) };
            let grown = match level {
                0 => tree.grow_range(at as u64, next as u64),
                _ => tree.grow(at as u64, Level(level as u8)),
            };
            if !grown {
                return Err(PagingError::NoMemory);
            }
            let (vaddr, paddr) = (TheirVirtAddr::from_usize(at), TheirPhysAddr::from_usize(at - va + pa));
            let allow_huge = level > 0;
            self.view().map(&MapConfig { vaddr, paddr, size: next - at, allow_huge, ..*config })?;
            at = next;
        }
        Ok(())
    }

    /// Unmaps a page as [`PageTableRef::unmap_page`] does. Tables that are empty then go back.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn unmap_page(
        &mut self,
        vaddr: TheirVirtAddr,
    ) -> PagingResult<(TheirPhysAddr, PteConfigOf<T>, usize)> {
        self.tree.forget();
        self.view().unmap_page(vaddr)
    }

    /// Unmaps a region as [`PageTableRef::unmap`] does. Tables that are empty then go back.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn unmap(&mut self, start: TheirVirtAddr, size: usize) -> PagingResult {
        self.tree.forget();
        self.view().unmap(start, size)
    }

    /// Changes a page's configuration as [`PageTableRef::protect_page`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn protect_page(&mut self, vaddr: TheirVirtAddr, config: PteConfigOf<T>) -> PagingResult<usize> {
        self.view().protect_page(vaddr, config)
    }

    /// Looks a page up as [`PageTableRef::query`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn query(&self, vaddr: TheirVirtAddr) -> PagingResult<(TheirPhysAddr, PteConfigOf<T>, usize)> {
        self.view().query(vaddr)
    }
}

/// Returns the level whose entries hold pages of this size.
fn level(page_size: usize) -> Option<Level> {
    let shift = page_size.checked_ilog2()?.checked_sub(FRAME_SIZE.ilog2())?;
    (page_size.is_power_of_two() && shift % 9 == 0).then_some(Level((shift / 9) as u8))
}

impl<T: TableMeta<P: TableEntry>, H: Home> Drop for Space<T, H> {
    fn drop(&mut self) {
        // SAFETY: 1. all tables are of these pages. Of `take_apart`: 1. this is the end of the
        // space. 2. calls record their writes.
        unsafe { self.tree.on(H::pages(), &Descriptors::<T::P>(PhantomData)).take_apart() };
    }
}
