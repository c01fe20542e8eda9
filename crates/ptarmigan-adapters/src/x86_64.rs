//! The crate `x86_64`, whose mappers clear each new table after they have linked it. Tables come
//! back empty, before any flush.
//!
//! ```
//! use ptarmigan_adapters::{Pages, x86_64::Space};
//! use ptarmigan::format::X86_64;
//! use ptarmigan_hosted::{Host, HostConfig};
//! use x86_64::structures::paging::{Page, PageTableFlags as Flags, PhysFrame, Size4KiB};
//! use x86_64::{PhysAddr, VirtAddr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
//! let lists = host.quicklists()?;
//! // SAFETY: 1. no MMU walks the tables.
//! let pages = unsafe { Pages::new(&lists, host.slot(0).ok_or("the CPU is taken")?)?.at_once() };
//! let mut space = Space::new(&pages).ok_or("no memory")?;
//! let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x7000));
//! let frame = PhysFrame::containing_address(PhysAddr::new(0x123_4000));
//! let flags = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
//! // SAFETY: no program runs in the space.
//! unsafe { space.map_to(page, frame, flags) }.map_err(|e| format!("{e:?}"))?.ignore();
//! drop(space); // four tables go back; one line of each was cleared
//! # Ok(())
//! # }
//! ```
use crate::Pages;
use crate::tree::{Entries, Tree};
use ptarmigan::addr::{FRAME_SIZE, PhysAddr};
use ptarmigan::cpu::WithPin;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use x86_64::structures::paging::mapper::{
    CleanUp, FlagUpdateError, MapToError, MappedPageTable, Mapper, MapperFlush, PageTableFrameMapping,
    Translate, TranslateResult, UnmapError,
};
use x86_64::structures::paging::page::PageRangeInclusive;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Page, PageSize, PageTable, PageTableFlags, PhysFrame, Size4KiB,
};
use x86_64::{PhysAddr as TheirPhysAddr, VirtAddr as TheirVirtAddr};

fn theirs(at: PhysAddr) -> PhysFrame {
    PhysFrame::containing_address(TheirPhysAddr::new_truncate(at.0))
}

fn ours(frame: PhysFrame) -> PhysAddr {
    PhysAddr(frame.start_address().as_u64())
}

/// The crate's hooks over pages, for its own mappers. Each table that comes is cleared by the
/// crate; a table that goes is not read, as [`CleanUp`] has found it empty.
pub struct Frames<'a, 'm, P, N>(&'a Pages<'m, P, N>);

impl<'a, 'm, P, N> Frames<'a, 'm, P, N> {
    /// Makes the hooks.
    ///
    /// # Safety
    ///
    /// 1. Each frame that goes to [`deallocate_frame`](FrameDeallocator::deallocate_frame) must
    ///    have come from these pages, as a table, and all of its entries are unused: so are those
    ///    of [`CleanUp`]. No frames of data come from here, or go here.
    pub unsafe fn new(pages: &'a Pages<'m, P, N>) -> Self {
        Frames(pages)
    }
}

// SAFETY: a page of a policy is owned, and nobody else has it until it is given back.
unsafe impl<P: Policy, N: WithPin> FrameAllocator<Size4KiB> for Frames<'_, '_, P, N> {
    #[inline]
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.0.alloc().map(theirs)
    }
}

impl<P: Policy, N: WithPin> FrameDeallocator<Size4KiB> for Frames<'_, '_, P, N> {
    #[inline]
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        // SAFETY: 1. to 3. by the contract of `new`, and by the caller, to whom it is unused.
        unsafe { self.0.give_back(ours(frame)) };
    }
}

/// How the crate's mapper reaches the tables of a [`Space`].
pub struct Reach<'a, 'm, P, N>(&'a Pages<'m, P, N>);

// SAFETY: the direct map reaches all tables as long as their pages are there, which this borrows.
unsafe impl<P: Policy, N: WithPin> PageTableFrameMapping for Reach<'_, '_, P, N> {
    #[inline]
    fn frame_to_pointer(&self, frame: PhysFrame) -> *mut PageTable {
        self.0.pointer(ours(frame)).cast()
    }
}

/// The mapper's allocator in a space: the tables are there.
struct NoFrames;

// SAFETY: it hands out no frame.
unsafe impl FrameAllocator<Size4KiB> for NoFrames {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        None
    }
}

/// Entries, and the flags of those that lead to new tables.
struct Words(u64);

// SAFETY: 1. 8 bytes. 2. present and not large, at a level above the lowest: bit 7 is set in pages
// of such levels by the crate, whatever flags it is given.
unsafe impl Entries for Words {
    type Entry = u64;

    #[inline]
    fn is_none(&self, entry: u64) -> bool {
        entry == 0
    }

    #[inline]
    fn table(&self, entry: u64) -> Option<PhysAddr> {
        let (present, large) = (PageTableFlags::PRESENT.bits(), PageTableFlags::HUGE_PAGE.bits());
        (entry & (present | large) == present).then_some(PhysAddr(entry & 0x000f_ffff_ffff_f000))
    }

    #[inline]
    fn link(&self, at: PhysAddr) -> u64 {
        at.0 | self.0
    }
}

/// An address space of four levels, with tables that the space makes, notes and takes apart. It has
/// the same entries as the crate's [`MappedPageTable`].
pub struct Space<'a, 'm, P: Policy, N: WithPin> {
    pages: &'a Pages<'m, P, N>,
    tree: Tree,
}

impl<'a, 'm, P: Policy, N: WithPin> Space<'a, 'm, P, N> {
    /// Makes an empty space, or returns `None` if there is no memory.
    pub fn new(pages: &'a Pages<'m, P, N>) -> Option<Self> {
        Some(Space { pages, tree: Tree::new(pages.alloc()?, Level(3)) })
    }

    /// Returns the root's frame.
    pub fn root(&self) -> PhysFrame {
        theirs(self.tree.root)
    }

    /// Has the upper half of the root lead to the tables to which that of `from` leads: the
    /// kernel's. By way of this space, no page can be mapped there
    /// ([`MapToError::FrameAllocationFailed`]), or changed ([`UnmapError::PageNotMapped`],
    /// [`FlagUpdateError::PageNotMapped`]).
    ///
    /// # Safety
    ///
    /// 1. The space must not map pages there.
    /// 2. `from` must be a root, which the direct map reaches. The tables under entries of its
    ///    upper half must stay as long as this space. No code may write to these entries while this
    ///    runs.
    pub unsafe fn share_upper_half(&mut self, from: PhysFrame) {
        // SAFETY: 1. all tables are of these pages, and `&mut self` has them alone. Of `share`:
        // 1. and 2. passed on.
        unsafe { self.tree.on(self.pages, &Words(0)).share(ours(from), FRAME_SIZE / 2..FRAME_SIZE) };
    }

    fn mapper<'s>(&'s mut self) -> MappedPageTable<'s, Reach<'s, 'm, P, N>> {
        let root = self.pages.pointer(self.tree.root).cast::<PageTable>();
        // SAFETY: the root is a table of this space, zero when it came, which `&mut self` has
        // alone; all tables below are reached by `Reach`.
        unsafe { MappedPageTable::new(&mut *root, Reach(self.pages)) }
    }

    /// Maps a page as [`Mapper::map_to`] does.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// 1. As there.
    #[inline]
    pub unsafe fn map_to<'s, S: PageSize>(
        &'s mut self,
        page: Page<S>,
        frame: PhysFrame<S>,
        flags: PageTableFlags,
    ) -> Result<MapperFlush<S>, MapToError<S>>
    where
        MappedPageTable<'s, Reach<'s, 'm, P, N>>: Mapper<S>,
    {
        // Those that the mapper would give them.
        let parents = PageTableFlags::PRESENT | PageTableFlags::WRITABLE | PageTableFlags::USER_ACCESSIBLE;
        let entries = Words((flags & parents | PageTableFlags::PRESENT).bits());
        let level = Level(((S::SIZE / Size4KiB::SIZE).ilog2() / 9) as u8);
        // SAFETY: 1. all tables are of these pages, and `&mut self` has them alone.
        if !unsafe { self.tree.on(self.pages, &entries) }.grow(page.start_address().as_u64(), level) {
            return Err(MapToError::FrameAllocationFailed);
        }
        // SAFETY: 1. by the caller.
        unsafe { self.mapper().map_to(page, frame, flags, &mut NoFrames) }
    }

    /// Unmaps a page as [`Mapper::unmap`] does.
    ///
    /// # Errors
    ///
    /// As there; [`UnmapError::PageNotMapped`] in [another space's](Self::share_upper_half) half.
    pub fn unmap<'s, S: PageSize>(
        &'s mut self,
        page: Page<S>,
    ) -> Result<(PhysFrame<S>, MapperFlush<S>), UnmapError>
    where
        MappedPageTable<'s, Reach<'s, 'm, P, N>>: Mapper<S>,
    {
        if self.tree.is_shared(page.start_address().as_u64()) {
            return Err(UnmapError::PageNotMapped);
        }
        self.mapper().unmap(page)
    }

    /// Changes a page's flags as [`Mapper::update_flags`] does.
    ///
    /// # Errors
    ///
    /// As there; [`FlagUpdateError::PageNotMapped`] in [another space's](Self::share_upper_half)
    /// half.
    ///
    /// # Safety
    ///
    /// 1. As there.
    pub unsafe fn update_flags<'s, S: PageSize>(
        &'s mut self,
        page: Page<S>,
        flags: PageTableFlags,
    ) -> Result<MapperFlush<S>, FlagUpdateError>
    where
        MappedPageTable<'s, Reach<'s, 'm, P, N>>: Mapper<S>,
    {
        if self.tree.is_shared(page.start_address().as_u64()) {
            return Err(FlagUpdateError::PageNotMapped);
        }
        // SAFETY: 1. by the caller.
        unsafe { self.mapper().update_flags(page, flags) }
    }

    /// Looks an address up as [`Translate::translate`] does.
    pub fn translate(&mut self, addr: TheirVirtAddr) -> TranslateResult {
        self.mapper().translate(addr)
    }

    /// Gives empty tables of a range back, as [`CleanUp::clean_up_addr_range`] does.
    ///
    /// # Safety
    ///
    /// 1. No address of the range is in [another space's](Self::share_upper_half) half.
    pub unsafe fn clean_up_addr_range(&mut self, range: PageRangeInclusive) {
        self.tree.forget();
        // SAFETY: 1. only tables of this space come, which its pages handed out, and they are
        // empty.
        let mut frames = unsafe { Frames::new(self.pages) };
        // SAFETY: each table is in this space alone, and there once (1.).
        unsafe { self.mapper().clean_up_addr_range(range, &mut frames) };
    }
}

impl<P: Policy, N: WithPin> Drop for Space<'_, '_, P, N> {
    fn drop(&mut self) {
        // SAFETY: 1. all tables are of these pages. Of `take_apart`: 1. this is the end of the
        // space. 2. `map_to` records its writes, and no other code makes an entry.
        unsafe { self.tree.on(self.pages, &Words(0)).take_apart() };
    }
}
