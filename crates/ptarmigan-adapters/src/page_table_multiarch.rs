//! The crate `page_table_multiarch`, which clears its tables and gives them back full.
//!
//! ```
//! use memory_addr::{PhysAddr, VirtAddr};
//! use page_table_multiarch::{MappingFlags, PageSize};
//! use ptarmigan_adapters::{Home, Pages, page_table_multiarch::Space};
//! use ptarmigan::format::X86_64;
//! use ptarmigan_hosted::{CpuSlot, Host, HostConfig};
//! use ptarmigan::page::NoConstruct;
//! use ptarmigan::quicklist::{ListsConfig, Quicklists};
//! use ptarmigan::window::DirectMap;
//! use std::cell::Cell;
//!
//! type Lists = Quicklists<'static, DirectMap, &'static ptarmigan::table::KernelMap<X86_64, DirectMap>>;
//! type Mine = Pages<'static, &'static Lists, CpuSlot>;
//! std::thread_local! {
//!     static PAGES: Cell<Option<&'static Mine>> = const { Cell::new(None) };
//! }
//!
//! /// Where the hooks find their pages: they have no argument for it.
//! #[derive(Clone, Copy)]
//! struct Here;
//! // SAFETY: 1. one thread has set one. 2. nothing else calls them. 3. it is the default.
//! unsafe impl Home for Here {
//!     type Policy = &'static Lists;
//!     type Pin = CpuSlot;
//!     fn pages() -> &'static Mine {
//!         PAGES.get().expect("set in main")
//!     }
//! }
//!
//! # #[cfg(target_arch = "x86_64")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use page_table_entry::x86_64::X64PTE;
//! use page_table_multiarch::x86_64::X64PagingMetaData;
//!
//! let host: &'static _ = Box::leak(Box::new(Host::<X86_64>::new(HostConfig::default())?));
//! let lists: &'static Lists = Box::leak(Box::new(host.quicklists()?));
//! // SAFETY: 1. no MMU walks the tables.
//! let pages = unsafe { Pages::new(lists, host.slot(0).ok_or("the CPU is taken")?)?.at_once() };
//! PAGES.set(Some(Box::leak(Box::new(pages))));
//!
//! let mut space = Space::<X64PagingMetaData, X64PTE, Here>::try_new().map_err(|e| format!("{e:?}"))?;
//! let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
//! let (va, frame) = (VirtAddr::from_usize(0x7000), PhysAddr::from_usize(0x123_4000));
//! space.cursor().map(va, frame, PageSize::Size4K, flags).map_err(|e| format!("{e:?}"))?;
//! assert_eq!(space.table().query(va).map_err(|e| format!("{e:?}"))?.0, frame);
//! # Ok(())
//! # }
//! # #[cfg(not(target_arch = "x86_64"))]
//! # fn main() {}
//! ```
use super::Home;
use crate::tree::{ENTRY, Entries, Tree};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Range;
use memory_addr::{MemoryAddr, PhysAddr as TheirPhysAddr, VirtAddr as TheirVirtAddr};
use page_table_multiarch::{
    GenericPTE, MappingFlags, PageSize, PageTable64, PageTable64Cursor, PagingError, PagingHandler,
    PagingMetaData, PagingResult,
};
use ptarmigan::addr::{FRAME_SIZE, PhysAddr};
use ptarmigan::page::Level;

fn theirs(at: PhysAddr) -> TheirPhysAddr {
    TheirPhysAddr::from_usize(at.0 as usize)
}

fn ours(at: TheirPhysAddr) -> PhysAddr {
    PhysAddr(at.as_usize() as u64)
}

/// Out of line: the crate's walk would have a copy of it, and of its own allocation, at each level.
#[inline(never)]
fn alloc<H: Home>(frames: usize, align: usize) -> Option<TheirPhysAddr> {
    (frames == 1 && align <= FRAME_SIZE).then(|| H::pages().alloc()).flatten().map(theirs)
}

#[inline]
fn pointer<H: Home>(at: TheirPhysAddr) -> TheirVirtAddr {
    TheirVirtAddr::from_mut_ptr_of(H::pointer(ours(at)))
}

/// The crate's hooks over pages, for its own `PageTable64`. The crate clears each table that comes,
/// and each one that goes is cleared as a whole, so this is slower than a stack of frames that
/// nobody clears: [`Space`] is the fast way.
#[derive(Clone, Copy, Debug)]
pub struct Handler<H>(PhantomData<H>);

impl<H: Home> PagingHandler for Handler<H> {
    fn alloc_frames(frames: usize, align: usize) -> Option<TheirPhysAddr> {
        alloc::<H>(frames, align)
    }

    fn dealloc_frames(at: TheirPhysAddr, _frames: usize) {
        // SAFETY: 1. and 3. the crate had it of `alloc_frames`, one frame, and gives it back once,
        // when no entry leads to it (contract of `Home`, 2.).
        unsafe { H::pages().give_back_full(ours(at)) };
    }

    #[inline]
    fn phys_to_virt(at: TheirPhysAddr) -> TheirVirtAddr {
        pointer::<H>(at)
    }
}

/// The hooks of a [`Space`]'s table. They hand out its root and take no frame back: the space does.
#[derive(Clone, Copy, Debug)]
pub struct RootOnly<H>(PhantomData<H>);

impl<H: Home> PagingHandler for RootOnly<H> {
    fn alloc_frames(frames: usize, align: usize) -> Option<TheirPhysAddr> {
        alloc::<H>(frames, align)
    }

    fn dealloc_frames(_: TheirPhysAddr, _: usize) {}

    #[inline]
    fn phys_to_virt(at: TheirPhysAddr) -> TheirVirtAddr {
        pointer::<H>(at)
    }
}

/// An entry whose tables can be told from its pages.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. It has 8 bytes, every one of which is part of its value, and any value of theirs is an entry.
///    One of zeroes [is unused](GenericPTE::is_unused).
/// 2. One that [`new_table`](GenericPTE::new_table) made is not unused, not
///    [huge](GenericPTE::is_huge), and has the [address](GenericPTE::paddr) that it was made with,
///    which is not 0.
/// 3. One that [`new_page`](GenericPTE::new_page) made as a huge one is huge, and stays so with
///    whatever [flags](GenericPTE::set_flags) and [address](GenericPTE::set_paddr) it gets,
///    as long as these are set as huge ones.
pub unsafe trait TableEntry: GenericPTE {}

// SAFETY: 1. a transparent `u64`. 2. present, writable, user, with all of a frame's address. 3. bit
// 7 says so, and is set with the flags.
#[cfg(target_arch = "x86_64")]
unsafe impl TableEntry for page_table_entry::x86_64::X64PTE {}

/// Metadata whose addresses are numbers.
///
/// [`VirtAddr`](PagingMetaData::VirtAddr) is a type of safe traits. A [`Space`] notes the lines of
/// the addresses that it is given, and the crate writes entries for the addresses that it makes of
/// them. So the two must be the same:
///
/// ```compile_fail,E0277
/// # use memory_addr::VirtAddr;
/// # use page_table_entry::x86_64::X64PTE;
/// # use page_table_multiarch::PagingMetaData;
/// # use ptarmigan_adapters::{Home, page_table_multiarch::Space};
/// struct Anybodys;
/// impl PagingMetaData for Anybodys {
///     type VirtAddr = VirtAddr; // or one that answers differently each time
///     // ...
/// #   const LEVELS: usize = 4;
/// #   const PA_MAX_BITS: usize = 52;
/// #   const VA_MAX_BITS: usize = 48;
/// #   fn flush_tlb(_: Option<VirtAddr>) {}
/// }
/// fn space<H: Home>(space: Space<Anybodys, X64PTE, H>) {}
/// ```
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. For every value of [`VirtAddr`](PagingMetaData::VirtAddr), `Into<usize>` returns the same
///    number each time, and for every number, the value that `From<usize>` makes of it returns that
///    number.
/// 2. The methods that [`MemoryAddr`] provides are not replaced by others.
pub unsafe trait Addresses: PagingMetaData {}

// SAFETY: 1. a transparent `usize`. 2. no frame is.
#[cfg(target_arch = "x86_64")]
unsafe impl Addresses for page_table_multiarch::x86_64::X64PagingMetaData {}

struct Descriptors<E>(PhantomData<E>);

// SAFETY: 1. by the contract of `TableEntry`, 1.; `Space` checks the size. 2. by the same, 2. and
// 3.
unsafe impl<E: TableEntry> Entries for Descriptors<E> {
    type Entry = E;

    #[inline]
    fn is_none(&self, entry: E) -> bool {
        entry.is_unused()
    }

    #[inline]
    fn table(&self, entry: E) -> Option<PhysAddr> {
        let at = ours(entry.paddr());
        (!entry.is_unused() && at.0 != 0 && !entry.is_huge()).then_some(at)
    }

    #[inline]
    fn link(&self, at: PhysAddr) -> E {
        E::new_table(theirs(at))
    }
}

/// The crate's table for 64-bit machines, with tables that the space makes, notes and takes apart.
///
/// It relies on the behaviour of version 0.6: a table is the tree of entries below
/// [`root_paddr`](PageTable64::root_paddr), and has no other state.
pub struct Space<M: Addresses, E: TableEntry, H: Home> {
    /// Never dropped: it would look at every entry of every table above the lowest.
    table: ManuallyDrop<PageTable64<M, E, RootOnly<H>>>,
    tree: Tree,
}

impl<M: Addresses, E: TableEntry, H: Home> Space<M, E, H> {
    const FITS: () = {
        assert!(size_of::<E>() == ENTRY, "entries have 8 bytes");
        assert!(M::LEVELS == 3 || M::LEVELS == 4, "the crate has three levels or four");
    };

    /// Makes an empty space.
    ///
    /// # Errors
    ///
    /// [`PagingError::NoMemory`].
    pub fn try_new() -> PagingResult<Self> {
        let () = Self::FITS;
        let table = ManuallyDrop::new(PageTable64::try_new()?);
        let tree = Tree::new(ours(table.root_paddr()), Level(M::LEVELS as u8 - 1));
        Ok(Space { table, tree })
    }

    /// Returns the table, to query and walk it.
    pub fn table(&self) -> &PageTable64<M, E, RootOnly<H>> {
        &self.table
    }

    /// Links the tables of `from` in the root's entries of `entries`, for example for the kernel's
    /// half. Entries that earlier calls have shared stay shared.
    ///
    /// By way of this space, no page can be mapped there ([`PagingError::NoMemory`]), or changed
    /// ([`PagingError::NotMapped`]).
    ///
    /// # Safety
    ///
    /// 1. The space must not map pages there.
    /// 2. `from` must be a root of the same format, which the direct map reaches. The tables under
    ///    its entries must stay as long as this space. No code may write to these
    ///    entries while this runs.
    pub unsafe fn share_root_entries(&mut self, from: TheirPhysAddr, entries: Range<usize>) {
        let bytes = entries.start.min(512) * ENTRY..entries.end.min(512) * ENTRY;
        // SAFETY: 1. all tables are of these pages, and `&mut self` has them alone. Of `share`:
        // 1. and 2. passed on.
        unsafe { self.tree.on(H::pages(), &Descriptors::<E>(PhantomData)).share(ours(from), bytes) };
    }

    /// Returns a cursor, which flushes the TLB when it is dropped as the crate's own does.
    pub fn cursor(&mut self) -> Cursor<'_, M, E, H> {
        Cursor { tree: &mut self.tree, cursor: self.table.cursor() }
    }
}

impl<M: Addresses, E: TableEntry, H: Home> Drop for Space<M, E, H> {
    fn drop(&mut self) {
        // SAFETY: 1. all tables are of these pages. Of `take_apart`: 1. this is the end of the
        // space. 2. cursors record their writes.
        unsafe { self.tree.on(H::pages(), &Descriptors::<E>(PhantomData)).take_apart() };
    }
}

/// Changes a [`Space`], as the crate's cursor changes its table. Borrowed from
/// [`Space::cursor`].
pub struct Cursor<'a, M: Addresses, E: TableEntry, H: Home> {
    tree: &'a mut Tree,
    cursor: PageTable64Cursor<'a, M, E, RootOnly<H>>,
}

fn level(size: PageSize) -> Level {
    match size {
        PageSize::Size1G => Level(2),
        PageSize::Size2M => Level(1),
        // The default size of the crate.
        PageSize::Size4K | PageSize::Size1M => Level::PTE,
    }
}

impl<M: Addresses, E: TableEntry, H: Home> Cursor<'_, M, E, H> {
    /// See [`PageTable64Cursor::map`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn map(
        &mut self,
        vaddr: M::VirtAddr,
        target: TheirPhysAddr,
        size: PageSize,
        flags: MappingFlags,
    ) -> PagingResult {
        let va: usize = vaddr.into();
        let entries = Descriptors::<E>(PhantomData);
        // SAFETY: 1. all tables are of these pages, and the cursor has the space alone.
        if !unsafe { self.tree.on(H::pages(), &entries) }.grow(va as u64, level(size)) {
            return Err(PagingError::NoMemory);
        }
        self.cursor.map(vaddr, target, size, flags)
    }

    /// See [`PageTable64Cursor::map_region`].
    ///
    /// # Errors
    ///
    /// As there; [`PagingError::NotAligned`] for a region that ends behind the last address.
    pub fn map_region(
        &mut self,
        vaddr: M::VirtAddr,
        get_paddr: impl Fn(M::VirtAddr) -> TheirPhysAddr,
        size: usize,
        flags: MappingFlags,
        allow_huge: bool,
    ) -> PagingResult {
        let start: usize = vaddr.into();
        let aligned = PageSize::Size4K.is_aligned(start) && PageSize::Size4K.is_aligned(size);
        let Some(end) = start.checked_add(size).filter(|_| aligned) else {
            return Err(PagingError::NotAligned);
        };
        let entries = Descriptors::<E>(PhantomData);
        let mut va = start;
        while va < end && !allow_huge {
            // The pages of one leaf table: if they fail, no tables are left behind.
            let next =
                (va | (PageSize::Size2M as usize - 1)).checked_add(1).map_or(end, |next| next.min(end));
            // SAFETY: 1. as in `map`.
            if !unsafe { self.tree.on(H::pages(), &entries) }.grow_range(va as u64, next as u64) {
                return Err(PagingError::NoMemory);
            }
            self.cursor.map_region(va.into(), &get_paddr, next - va, flags, false)?;
            va = next;
        }
        while va < end {
            let target = get_paddr(va.into());
            let fits = |size: &PageSize| {
                size.is_aligned(va) && target.is_aligned(*size) && *size as usize <= end - va
            };
            let size =
                [PageSize::Size1G, PageSize::Size2M].into_iter().find(fits).unwrap_or(PageSize::Size4K);
            self.map(va.into(), target, size, flags)?;
            va += size as usize;
        }
        Ok(())
    }

    /// See [`PageTable64Cursor::remap`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn remap(
        &mut self,
        vaddr: M::VirtAddr,
        paddr: TheirPhysAddr,
        flags: MappingFlags,
    ) -> PagingResult<PageSize> {
        let va = Into::<usize>::into(vaddr) as u64;
        if self.tree.is_shared(va) {
            return Err(PagingError::NoMemory);
        }
        // It writes to an entry that may be unused.
        // SAFETY: 1. as in `map`.
        unsafe { self.tree.on(H::pages(), &Descriptors::<E>(PhantomData)) }.note(va, va);
        self.cursor.remap(vaddr, paddr, flags)
    }

    /// Refuses pages from `start` on, `size` bytes, if any of them is [another
    /// space's](Space::share_root_entries).
    fn refuse_shared(&self, vaddr: M::VirtAddr, size: usize) -> PagingResult {
        let start: usize = vaddr.into();
        let last = start.checked_add(size.saturating_sub(1)).ok_or(PagingError::NotMapped)?;
        match self.tree.any_shared(start as u64, last as u64) {
            true => Err(PagingError::NotMapped),
            false => Ok(()),
        }
    }

    /// See [`PageTable64Cursor::protect`].
    ///
    /// # Errors
    ///
    /// As there; [`PagingError::NotMapped`] for an address of another space.
    pub fn protect(&mut self, vaddr: M::VirtAddr, flags: MappingFlags) -> PagingResult<PageSize> {
        self.refuse_shared(vaddr, 1)?;
        self.cursor.protect(vaddr, flags)
    }

    /// See [`PageTable64Cursor::protect_region`].
    ///
    /// # Errors
    ///
    /// As there; [`PagingError::NotMapped`] for addresses of another space, whose pages are not
    /// changed.
    pub fn protect_region(&mut self, vaddr: M::VirtAddr, size: usize, flags: MappingFlags) -> PagingResult {
        self.refuse_shared(vaddr, size)?;
        self.cursor.protect_region(vaddr, size, flags)
    }

    /// See [`PageTable64Cursor::unmap`].
    ///
    /// # Errors
    ///
    /// As there; [`PagingError::NotMapped`] for an address of another space.
    pub fn unmap(&mut self, vaddr: M::VirtAddr) -> PagingResult<(TheirPhysAddr, MappingFlags, PageSize)> {
        self.refuse_shared(vaddr, 1)?;
        self.cursor.unmap(vaddr)
    }

    /// See [`PageTable64Cursor::unmap_region`].
    ///
    /// # Errors
    ///
    /// As there; [`PagingError::NotMapped`] for addresses of another space, whose pages are not
    /// unmapped.
    pub fn unmap_region(&mut self, vaddr: M::VirtAddr, size: usize) -> PagingResult {
        self.refuse_shared(vaddr, size)?;
        self.cursor.unmap_region(vaddr, size)
    }

    /// See [`PageTable64Cursor::flush`].
    pub fn flush(&mut self) {
        self.cursor.flush();
    }
}
