//! The crate `aarch64-paging`, whose tables are zero when they come: it says so in the contract of
//! its allocator.
//!
//! ```
//! use aarch64_paging::descriptor::{El1Attributes as A, PhysicalAddress};
//! use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, VaRange};
//! use ptarmigan_adapters::{Pages, aarch64_paging::Noted};
//! use ptarmigan::format::X86_64;
//! use ptarmigan_hosted::{Host, HostConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
//! let lists = host.quicklists()?;
//! // SAFETY: 1. no MMU walks the tables.
//! let pages = unsafe { Pages::new(&lists, host.slot(0).ok_or("the CPU is taken")?)?.at_once() };
//! let mut table = Noted::table_with_va_range(&pages, 0, El1And0, VaRange::Lower);
//! let flags = A::VALID | A::ACCESSED | A::NON_GLOBAL | A::INNER_SHAREABLE | A::USER;
//! let page = MemoryRegion::new(0x7000, 0x8000);
//! table.map_range(&page, PhysicalAddress(0x123_4000), flags, Constraints::empty())?;
//! drop(table); // four tables go back; one line of each was cleared
//! # Ok(())
//! # }
//! ```
//!
//! # Flushes
//!
//! Since 0.12.3, [`Mapping`] invalidates a table in caches before it frees it, and a [`RootTable`]
//! is only for tables that are not live. So both may give their tables back [at
//! once](Pages::at_once).
use crate::Pages;
use crate::tree::{Entries, Tree};
use aarch64_paging::descriptor::{PagingAttributes, PhysicalAddress, UpdatableDescriptor};
use aarch64_paging::paging::{
    Constraints, El1And0, El2, El2And0, El3, MemoryRegion, PageTable, RootTable, Stage2, Translation,
    TranslationRegime, VaRange,
};
use aarch64_paging::{MapError, Mapping};
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use ptarmigan::addr::{FRAME_SIZE, PhysAddr};
use ptarmigan::cpu::WithPin;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes of a page.
const PAGE: u64 = FRAME_SIZE as u64;

/// Pages as the crate's allocator and translation: its hooks.
///
/// A table that comes back is cleared as a whole, unless it belongs to a [`Noted`].
pub struct Tables<'a, 'm, P, N> {
    pages: &'a Pages<'m, P, N>,
    /// Writes to tables that come back are recorded.
    noted: AtomicBool,
    /// New tables are filled as a whole.
    fills: AtomicBool,
}

impl<'a, 'm, P, N> Tables<'a, 'm, P, N> {
    /// Makes the hooks over `pages`.
    pub fn new(pages: &'a Pages<'m, P, N>) -> Self {
        Tables { pages, noted: AtomicBool::new(false), fills: AtomicBool::new(false) }
    }
}

impl<P: Policy, N: WithPin> Tables<'_, '_, P, N> {
    fn pointer<A: PagingAttributes>(&self, at: PhysAddr) -> NonNull<PageTable<A>> {
        // No memory of a direct map is at address 0.
        NonNull::new(self.pages.pointer(at).cast()).unwrap_or(NonNull::dangling())
    }
}

impl<A: PagingAttributes, P: Policy, N: WithPin> Translation<A> for Tables<'_, '_, P, N> {
    /// # Panics
    ///
    /// If there is no memory: the crate's interface has no error for it.
    #[inline]
    fn allocate_table(&mut self) -> (NonNull<PageTable<A>>, PhysicalAddress) {
        let Some(at) = self.pages.alloc() else {
            panic!("no memory for a table of aarch64-paging, whose allocator cannot fail")
        };
        if self.fills.load(Relaxed) {
            // SAFETY: 1. it has come just now.
            unsafe { self.pages.note(at, 0..FRAME_SIZE) };
        }
        (self.pointer(at), PhysicalAddress(at.0 as usize))
    }

    #[inline]
    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<A>>) {
        let at = self.pages.phys(table.as_ptr().cast());
        if self.noted.load(Relaxed) {
            // SAFETY: 1. and 3. by the caller, which has it of `allocate_table`. 2. `Noted` records
            // writes.
            unsafe { self.pages.give_back(at) };
        } else {
            // SAFETY: 1. and 3. as above.
            unsafe { self.pages.give_back_full(at) };
        }
    }

    #[inline]
    fn physical_to_virtual(&self, at: PhysicalAddress) -> NonNull<PageTable<A>> {
        self.pointer(PhysAddr(at.0 as u64))
    }
}

mod sealed {
    use super::{Level, PhysAddr, Tables};

    /// A hierarchy of tables of the crate.
    pub trait Hierarchy {
        type Policy: ptarmigan::quicklist::Policy;
        type Pin: ptarmigan::cpu::WithPin;

        fn tables(&self) -> &Tables<'_, '_, Self::Policy, Self::Pin>;
        fn root(&self) -> (PhysAddr, Level);
        /// Returns whether an MMU may walk it.
        fn is_active(&self) -> bool;
    }

    pub trait Regime {}
}

use sealed::Hierarchy;

/// A translation regime of the crate's own. In its descriptors, the two lowest bits together say
/// that there is a table below, and only the crate sets the second one.
pub trait Regime: TranslationRegime + sealed::Regime {}

macro_rules! regimes {
    ($($regime:ty),*) => {
        $(impl sealed::Regime for $regime {}
        impl Regime for $regime {})*
    };
}
regimes!(El1And0, El2And0, El2, El3, Stage2);

/// Returns the library's number of the root's level: the crate counts from the root.
fn root_level(bytes_mapped: usize) -> Level {
    Level(((bytes_mapped.ilog2() - 21) / 9) as u8)
}

impl<R: Regime, P: Policy, N: WithPin> Hierarchy for RootTable<R, Tables<'_, '_, P, N>> {
    type Policy = P;
    type Pin = N;

    fn tables(&self) -> &Tables<'_, '_, P, N> {
        self.translation()
    }
    fn root(&self) -> (PhysAddr, Level) {
        (PhysAddr(self.to_physical().0 as u64), root_level(self.size()))
    }
    fn is_active(&self) -> bool {
        false
    }
}

impl<R: Regime, P: Policy, N: WithPin> Hierarchy for Mapping<Tables<'_, '_, P, N>, R> {
    type Policy = P;
    type Pin = N;

    fn tables(&self) -> &Tables<'_, '_, P, N> {
        self.translation()
    }
    fn root(&self) -> (PhysAddr, Level) {
        (PhysAddr(self.root_address().0 as u64), root_level(self.size()))
    }
    fn is_active(&self) -> bool {
        self.active()
    }
}

/// Descriptors.
struct Descriptors;

// SAFETY: 1. 8 bytes. 2. the two lowest bits mark a table above the lowest level; `Regime` says
// that the crate sets the second one for no block, and `Noted::modify_range` asks its caller for
// the same.
unsafe impl Entries for Descriptors {
    type Entry = u64;

    #[inline]
    fn is_none(&self, entry: u64) -> bool {
        entry == 0
    }

    #[inline]
    fn table(&self, entry: u64) -> Option<PhysAddr> {
        (entry & 3 == 3).then_some(PhysAddr(entry & 0x0000_ffff_ffff_f000))
    }

    #[inline]
    fn link(&self, at: PhysAddr) -> u64 {
        at.0 | 3
    }
}

/// A [`RootTable`] or [`Mapping`] of which all that is written is noted. Everything that reads is
/// reached by [`Deref`].
///
/// The tables of a single page are made before the crate maps it. Of other calls, the lines of the
/// range are noted when they return. A call that splits a block fills the new tables, and they are
/// noted as a whole. A call that unwinds leaves lines that are not noted: then tables are cleared
/// as a whole, as the [hooks](Tables) do.
///
/// # Panics
///
/// Calls that need a table panic if there is no memory: the crate's allocator cannot fail. Dropping
/// a [`Mapping`] that is active panics, as in the crate; its tables are lost then, as an MMU may
/// walk them.
pub struct Noted<T: Hierarchy> {
    inner: ManuallyDrop<T>,
    tree: Tree,
    /// No call has unwound.
    settled: bool,
}

impl<'a, 'm, R: Regime<VaRange = ()>, P: Policy, N: WithPin> Noted<RootTable<R, Tables<'a, 'm, P, N>>> {
    /// Makes a table as [`RootTable::new`] does.
    pub fn table(pages: &'a Pages<'m, P, N>, level: usize, regime: R) -> Self {
        Noted::over(RootTable::new(Tables::new(pages), level, regime))
    }
}

impl<'a, 'm, R: Regime<VaRange = VaRange>, P: Policy, N: WithPin> Noted<RootTable<R, Tables<'a, 'm, P, N>>> {
    /// Makes a table as [`RootTable::with_va_range`] does.
    pub fn table_with_va_range(
        pages: &'a Pages<'m, P, N>,
        level: usize,
        regime: R,
        va_range: VaRange,
    ) -> Self {
        Noted::over(RootTable::with_va_range(Tables::new(pages), level, regime, va_range))
    }
}

impl<'a, 'm, R, P: Policy, N: WithPin> Noted<Mapping<Tables<'a, 'm, P, N>, R>>
where
    R: Regime<Asid = (), VaRange = ()>,
{
    /// Makes a mapping as [`Mapping::new`] does.
    pub fn mapping(pages: &'a Pages<'m, P, N>, level: usize, regime: R) -> Self {
        Noted::over(Mapping::new(Tables::new(pages), level, regime))
    }
}

impl<'a, 'm, R, P: Policy, N: WithPin> Noted<Mapping<Tables<'a, 'm, P, N>, R>>
where
    R: Regime<Asid = usize, VaRange = VaRange>,
{
    /// Makes a mapping as [`Mapping::with_asid_and_va_range`] does.
    pub fn mapping_with_asid_and_va_range(
        pages: &'a Pages<'m, P, N>,
        asid: usize,
        level: usize,
        regime: R,
        va_range: VaRange,
    ) -> Self {
        Noted::over(Mapping::with_asid_and_va_range(Tables::new(pages), asid, level, regime, va_range))
    }
}

impl<R: Regime, P: Policy, N: WithPin> Noted<RootTable<R, Tables<'_, '_, P, N>>> {
    /// Maps a range, or unmaps it, as [`RootTable::map_range`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn map_range(
        &mut self,
        range: &MemoryRegion,
        pa: PhysicalAddress,
        flags: R::Attributes,
        constraints: Constraints,
    ) -> Result<(), MapError> {
        if (flags & R::Attributes::VALID) == R::Attributes::VALID && self.has_tables_for(range) {
            return self.inner.map_range(range, pa, flags, constraints);
        }
        self.edit(range, |table| table.map_range(range, pa, flags, constraints))
    }

    /// Frees empty tables as [`RootTable::compact_subtables`] does.
    pub fn compact_subtables(&mut self) {
        self.tree.forget();
        self.inner.compact_subtables();
    }
}

impl<R: Regime, P: Policy, N: WithPin> Noted<Mapping<Tables<'_, '_, P, N>, R>> {
    /// Maps a range, or unmaps it, as [`Mapping::map_range`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn map_range(
        &mut self,
        range: &MemoryRegion,
        pa: PhysicalAddress,
        flags: R::Attributes,
        constraints: Constraints,
    ) -> Result<(), MapError> {
        if (flags & R::Attributes::VALID) == R::Attributes::VALID && self.has_tables_for(range) {
            return self.inner.map_range(range, pa, flags, constraints);
        }
        self.edit(range, |mapping| mapping.map_range(range, pa, flags, constraints))
    }

    /// Changes the descriptors of a range as [`Mapping::modify_range`] does.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// 1. `f` must make no descriptor above the lowest level one of a table. The crate believes
    ///    that every such descriptor leads to a table of its own, and so does this.
    pub unsafe fn modify_range<F>(&mut self, range: &MemoryRegion, f: &F) -> Result<(), MapError>
    where
        F: Fn(&MemoryRegion, &mut UpdatableDescriptor<'_, R::Attributes>) -> Result<(), ()> + ?Sized,
    {
        self.edit(range, |mapping| mapping.modify_range(range, f))
    }

    /// Frees empty tables as [`Mapping::compact_subtables`] does.
    pub fn compact_subtables(&mut self) {
        self.tree.forget();
        self.inner.compact_subtables();
    }
}

impl<T: Hierarchy> Noted<T> {
    /// Takes one that has not been written.
    fn over(inner: T) -> Self {
        inner.tables().noted.store(true, Relaxed);
        let (root, top) = inner.root();
        Noted { inner: ManuallyDrop::new(inner), tree: Tree::new(root, top), settled: true }
    }

    /// Returns the first and the last address of a range, unless the crate refuses it: of such a
    /// range, not all addresses are in the tree.
    fn addresses(&self, range: &MemoryRegion) -> Option<(u64, u64)> {
        let (start, last) = (range.start().0 as u64, (range.end().0 as u64).wrapping_sub(1));
        let fits = start <= last && (start ^ last) >> (21 + 9 * u32::from(self.tree.top.0)) == 0;
        fits.then_some((start, last))
    }

    /// Makes the tables for a range of one page, and notes the lines: then mapping it writes only
    /// the page's entry. Returns false for other ranges, where a block is in the way, and if there
    /// is no memory.
    #[inline]
    fn has_tables_for(&mut self, range: &MemoryRegion) -> bool {
        let Some((start, last)) = self.addresses(range).filter(|(start, last)| last - start < PAGE) else {
            return false;
        };
        let pages = self.inner.tables().pages;
        // SAFETY: 1. all tables are of these pages, and `&mut self` has them alone.
        let grown = unsafe { self.tree.on(pages, &Descriptors) }.grow(start, Level::PTE);
        grown && self.tree.has_leaf_of(last)
    }

    /// Calls `f`, which writes to entries of `range` alone, frees tables of it as a whole, and
    /// splits blocks that lie across its ends.
    #[inline]
    fn edit<O>(&mut self, range: &MemoryRegion, f: impl FnOnce(&mut T) -> O) -> O {
        let addresses = self.addresses(range);
        let settled = core::mem::replace(&mut self.settled, false);
        self.tree.forget();
        if let Some((start, last)) = addresses {
            let tables = self.inner.tables();
            // SAFETY: 1. all tables are of these pages, and `&mut self` has them alone.
            let splits = unsafe { self.tree.on(tables.pages, &Descriptors) }.splits(start, last);
            tables.fills.store(splits, Relaxed);
        }
        let result = f(&mut self.inner);
        if let Some((start, last)) = addresses {
            let tables = self.inner.tables();
            tables.fills.store(false, Relaxed);
            // SAFETY: 1. as above.
            unsafe { self.tree.on(tables.pages, &Descriptors) }.note(start, last);
        }
        self.settled = settled;
        result
    }
}

impl<T: Hierarchy> Deref for Noted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: Hierarchy> Drop for Noted<T> {
    fn drop(&mut self) {
        assert!(!self.inner.is_active(), "Dropping active page table mapping!");
        let tables = self.inner.tables();
        if self.settled {
            // SAFETY: 1. all tables are of these pages. Of `take_apart`: 1. an inactive mapping is
            // in no MMU, and this is its end. 2. every call has noted its range.
            unsafe { self.tree.on(tables.pages, &Descriptors).take_apart() };
        } else {
            tables.noted.store(false, Relaxed);
            // SAFETY: it is used no more, and dropped once.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}
