//! Areas of the kernel's half: memory that is contiguous in addresses, made of frames that need not
//! be, with guard pages in between.
//!
//! # Layout
//!
//! A [`Vmalloc`] owns a [`KernelRange`]. The first page of the range, and the page behind each
//! area, are never mapped. So an access before the first byte of an area or beyond its last one, by
//! up to a page, is a fault and reaches no other area. A free area is taken again as late as
//! possible, so that an access after the end of an area's life is likely to be a fault, too.
//!
//! # Large pages
//!
//! An area that shows frames of the caller's ([`Vmalloc::map`], [`Vmalloc::map_memory`]) has large
//! pages wherever its frames allow them, and [groups](Format::GROUP_BITS) if they are asked for
//! ([`Vmalloc::with_groups`]). Frames of [`Vmalloc::alloc`] are taken one by one, so their area has
//! none; [`Vmalloc::alloc_large`] takes whole blocks for large pages first. A large page or a group
//! goes with its area, as a whole.
//!
//! Pages are accessed, and dirty if they can be written, [from the
//! start](KernelRange#accessed-and-dirty).
//!
//! # Flushes
//!
//! An area that comes to be needs no flush, unless empty tables of former areas are in the way of
//! large pages. [`Vmalloc::free`] has every CPU forget the pages, by
//! the machine's [cost model](crate::tlb::CostModel), before the frames can be used for anything
//! else.
//!
//! # If a call unwinds
//!
//! An area that is being made or freed is *owed* meanwhile: noted by its pages, in arrays that are
//! there from the start. If the call unwinds, out of the machine's code, the area stays owed, and
//! its handle is gone. Its pages and its frames go to nobody. The next call that can flush frees
//! it first; so does [`Vmalloc::finish`].
mod error;
mod pages;

pub use error::{AreaError, AreasLeft};

use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr, VirtAddr};
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{MachineId, Refused};
use crate::format::{Attr, Format};
use crate::frames::{AllocFlags, DataFrame, ORDERS};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::{KernelRange, MapError, Sizes};
use crate::window::OpenWindow;
use core::marker::PhantomData;
use pages::Pages;

/// An area: some pages of a [`Vmalloc`], which stay mapped until it is [freed](Vmalloc::free).
///
/// It cannot be freed twice:
///
/// ```compile_fail,E0382
/// # use ptarmigan::{format::Format, machine::{Machine, On}, vmalloc::{Area, Vmalloc}};
/// # use ptarmigan::window::OpenWindow;
/// fn twice<'k, F: Format, W: OpenWindow, M: Machine>(
///     areas: &mut Vmalloc<'k, F, W>, on: On<'_, M>, area: Area<'k>,
/// ) {
///     areas.free(on, area).unwrap();
///     areas.free(on, area).unwrap(); // it has been freed
/// }
/// ```
#[derive(Debug)]
#[must_use = "a dropped area stays mapped for ever: free it"]
pub struct Area<'k> {
    start: VirtAddr,
    pages: u64,
    machine: MachineId,
    /// The range's first address: ranges of one map do not overlap.
    range: VirtAddr,
    /// The root of the range's map, which is there as long as `'k` lasts; other maps of the machine
    /// have other roots.
    map: u64,
    /// Whether the frames go with it.
    owns_frames: bool,
    _map: PhantomData<&'k ()>,
}

impl Area<'_> {
    /// Returns the first address.
    pub fn start(&self) -> VirtAddr {
        self.start
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the first address as a pointer, for a machine that has the map loaded. `None` where
    /// pointers are too short for it.
    pub fn as_ptr(&self) -> Option<*mut u8> {
        let at = usize::try_from(self.start.0).ok()?;
        Some(core::ptr::with_exposed_provenance_mut(at))
    }
}

/// The content of a range of areas, areas that are owed included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaCounts {
    /// Areas.
    pub areas: usize,
    /// Pages of all areas, without guard pages.
    pub pages: u64,
    /// Pages that the largest area could have now.
    pub largest: u64,
}

/// A range of the kernel's half that areas are taken from.
///
/// Its calls need it for themselves. A kernel shares it under a lock that serves flush requests
/// while it waits ([`Tlb::pause`](crate::tlb::Tlb::pause)): the CPU that has it may be waiting for
/// answers.
#[must_use = "a dropped range stays claimed: release it"]
pub struct Vmalloc<'k, F: Format, W> {
    range: KernelRange<'k, F, W>,
    taken: Pages,
    /// Pages of areas that are being made or freed, without the guard behind each.
    owed: Pages,
    /// Those of them that have frames of their own.
    owed_frames: Pages,
    /// Areas that are owed.
    owing: usize,
    areas: usize,
    pages: u64,
    /// Whether areas have groups.
    groups: bool,
}

impl<'k, F: Format, W: OpenWindow> Vmalloc<'k, F, W> {
    const PAGE: u64 = 1 << F::PAGE_SHIFT;

    /// Takes areas from `range`.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`], with the range, if [`bytes`](Self::bytes) do not fit.
    pub fn new(
        boot: &mut BootMemory,
        range: KernelRange<'k, F, W>,
    ) -> Result<Self, Refused<KernelRange<'k, F, W>, BootMemoryShort>> {
        let len = (range.len() >> F::PAGE_SHIFT) as usize;
        let mut make = || Ok([Pages::new(boot, len)?, Pages::new(boot, len)?, Pages::new(boot, len)?]);
        match make() {
            Ok([mut taken, owed, owed_frames]) => {
                // The guard of the first area.
                taken.take(1, 1, 0);
                let groups = false;
                Ok(Vmalloc { range, taken, owed, owed_frames, owing: 0, areas: 0, pages: 0, groups })
            }
            Err(error) => Err(Refused { value: range, error }),
        }
    }

    /// The same, with [groups](Sizes::with_groups) in areas that show frames of the caller's
    /// ([`map`](Self::map), [`map_memory`](Self::map_memory)), which are placed for it. Areas
    /// change as a whole, so that no group has to be taken apart.
    pub fn with_groups(mut self) -> Self {
        self.groups = true;
        self
    }

    /// Returns the bytes of boot memory that a range of `bytes` bytes takes.
    pub const fn bytes(bytes: u64) -> usize {
        3 * Pages::bytes((bytes >> F::PAGE_SHIFT) as usize)
    }

    /// Makes an area of `pages` pages with frames of its own, of unknown content. Each is taken by
    /// itself, so memory that is in pieces will do.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; only tables that were made stay for later.
    pub fn alloc<M: Machine>(
        &mut self,
        on: On<'_, M>,
        pages: u64,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<Area<'k>, AreaError> {
        self.add(on, pages, attr, true, (1, 0), |range, at| {
            let next = || take::<M>(on, F::PAGE_ORDER, flags);
            // SAFETY: 1. the frames are the area's alone until they have been unmapped; the kernel
            // may use them freely, and programs cannot reach them.
            unsafe { range.map_each(on, at, pages, attr, flags, next, |pfn| give(on, pfn)) }
        })
    }

    /// Makes an area as [`alloc`](Self::alloc) does, of whole blocks as far as they are free. A
    /// large page of level 1 (2 MiB on most architectures) shows each, so that it takes one entry
    /// of a TLB. Its table is not made, only [reserved](crate::frames::Frames::reserved).
    ///
    /// The area is placed so that large pages fit, if there is room. Blocks are taken above the
    /// minimum watermark only, whatever `flags` say. If no block is free, the remaining pages have
    /// frames of their own. All of them do if a large page of the format is larger than any block,
    /// as with granules of 16 and 64 KiB on AArch64.
    ///
    /// Prefer [`alloc`](Self::alloc) for an area that is seldom used: blocks stay for large pages
    /// of spaces then.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_large<M: Machine>(
        &mut self,
        on: On<'_, M>,
        pages: u64,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<Area<'k>, AreaError> {
        let order = F::shift(Level(1)) - FRAME_SHIFT;
        let Some(align) = Self::large_pages().filter(|n| *n <= pages && (order as usize) < ORDERS) else {
            return self.alloc(on, pages, attr, flags);
        };
        // The range begins with a whole table.
        self.add(on, pages, attr, true, (align as usize, 0), |range, at| {
            let block = || take::<M>(on, order as u8, AllocFlags::ATOMIC).ok();
            let next = || take::<M>(on, F::PAGE_ORDER, flags);
            // SAFETY: 1. as in `alloc`. 2. a block of 2^`order` frames begins with a multiple of as
            // many.
            unsafe { range.map_each_large(on, at, pages, attr, flags, block, next, |pfn| give(on, pfn)) }
        })
    }

    /// Pages in a large page of level 1, if areas can have some.
    fn large_pages() -> Option<u64> {
        let has = F::LEAF_LEVELS & 2 != 0 && F::LAYOUT.levels > 2;
        has.then(|| 1 << (F::shift(Level(1)) - F::PAGE_SHIFT))
    }

    /// Makes an area of `pages` pages that shows the frames from `first` on, which stay the
    /// caller's: memory of a device, or frames that are used elsewhere, too.
    ///
    /// The area is placed so that it has [large pages](KernelRange::map_range_large) of level 1
    /// (2 MiB on most architectures) where its frames do, if there is room.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    ///
    /// # Safety
    ///
    /// 1. Whatever is allowed to the kernel with the permissions of `attr`, and with those that
    ///    [`protect`](Self::protect) gives later, is allowed to each of the frames until the area
    ///    has been freed; if this call unwinds, until [`finish`](Self::finish) has returned.
    pub unsafe fn map<M: Machine>(
        &mut self,
        on: On<'_, M>,
        first: Pfn,
        pages: u64,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<Area<'k>, AreaError> {
        // Where there is no such place for it, it has pages alone.
        let (sizes, align) = self.sizes(first, pages);
        let start = self.range.start().0 >> F::PAGE_SHIFT;
        let rest = u64::from(first.0 >> F::PAGE_ORDER).wrapping_sub(start) & (align - 1);
        self.add(on, pages, attr, false, (align as usize, rest as usize), |range, at| {
            // SAFETY: 1. by the caller; the area is the kernel's.
            let mapped = unsafe { range.map_range_large(on, at, first, pages, attr, sizes, flags) };
            if let Err(MapError::Refused(_)) = mapped {
                // Empty tables are in the way, and this CPU cannot flush now.
                // SAFETY: 1. as above.
                return unsafe { Ok(range.map(on, at, first, pages, attr, flags)?) };
            }
            Ok(mapped?)
        })
    }

    /// Returns the sizes of leaves for the frames of `pages` pages from `first` on, and the pages
    /// that the largest of them has: a large page is a leaf of a table of level 1.
    fn sizes(&self, first: Pfn, pages: u64) -> (Sizes, u64) {
        let first = u64::from(first.0 >> F::PAGE_ORDER);
        let has = |size: u64| first.next_multiple_of(size) + size <= first.saturating_add(pages);
        let group = |level: Level| 1u64 << F::GROUP_BITS[level.at()];
        let large = Self::large_pages().filter(|large| has(*large));
        let (largest, mut align) = large.map_or((Level::PTE, 1), |large| (Level(1), large));
        let sizes = Sizes::up_to(largest);
        if !self.groups {
            return (sizes, align);
        }
        for size in [group(Level::PTE), large.map_or(1, |large| large * group(Level(1)))] {
            if has(size) {
                align = align.max(size);
            }
        }
        (sizes.with_groups(), align)
    }

    /// Makes an area that shows the `bytes` bytes of physical memory from `at` on, which need not
    /// begin or end with a page, as Linux's `ioremap` does. Returns the address of the first byte
    /// with the area, which [`free`](Self::free) takes. `attr` says the type of the memory:
    /// [`Attr::with_memory`].
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc). Memory that entries cannot name is [`MapError::BadFrame`].
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for all of each page that has one of the bytes.
    pub unsafe fn map_memory<M: Machine>(
        &mut self,
        on: On<'_, M>,
        at: PhysAddr,
        bytes: u64,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<(Area<'k>, VirtAddr), AreaError> {
        if bytes == 0 {
            return Err(AreaError::Empty);
        }
        let within = at.0 & (Self::PAGE - 1);
        let start = at.0 - within;
        let first = Pfn(u32::try_from(start >> FRAME_SHIFT).unwrap_or(Pfn::NONE.0));
        let bad = MapError::BadFrame { first, format: F::NAME };
        if first == Pfn::NONE {
            return Err(bad.into());
        }
        let pages = within.checked_add(bytes).ok_or(bad)?.div_ceil(Self::PAGE);
        // SAFETY: 1. by the caller.
        let area = unsafe { self.map(on, first, pages, attr, flags)? };
        let first_byte = VirtAddr(area.start.0 + within);
        Ok((area, first_byte))
    }

    fn add<M: Machine>(
        &mut self,
        on: On<'_, M>,
        pages: u64,
        attr: Attr,
        owns_frames: bool,
        (align, rest): (usize, usize),
        map: impl FnOnce(&mut KernelRange<'k, F, W>, VirtAddr) -> Result<(), AreaError>,
    ) -> Result<Area<'k>, AreaError> {
        if pages == 0 {
            return Err(AreaError::Empty);
        }
        if attr.has(Attr::USER) {
            return Err(AreaError::ForUser);
        }
        self.finish(on)?;
        let no_room = |this: &Self| AreaError::NoRoom { pages, largest: this.counts().largest };
        if pages >= self.taken.len() as u64 {
            return Err(no_room(self));
        }
        let n = pages as usize;
        let placed = self.taken.take(n + 1, align, rest);
        let anywhere = |taken: &mut Pages| taken.take(n + 1, 1, 0);
        let Some(first) = placed.or_else(|| anywhere(&mut self.taken)) else { return Err(no_room(self)) };
        self.areas += 1;
        self.pages += pages;
        self.owe(first, n, owns_frames);
        let start = VirtAddr(self.range.start().0 + first as u64 * Self::PAGE);
        let mapped = map(&mut self.range, start);
        self.owe_no_more(first, n);
        if let Err(e) = mapped {
            self.forget(first, n);
            return Err(e);
        }
        let (machine, range, map) = (self.range.machine(), self.range.start(), self.range.map_root().0);
        Ok(Area { start, pages, machine, range, map, owns_frames, _map: PhantomData })
    }

    /// Unmaps an area, has every CPU forget it, and gives back the frames that came with it. Does
    /// not allocate.
    ///
    /// # Errors
    ///
    /// [`AreaError`], with the area; only areas that an earlier call owed may have been freed then.
    pub fn free<M: Machine>(
        &mut self,
        on: On<'_, M>,
        area: Area<'k>,
    ) -> Result<(), Refused<Area<'k>, AreaError>> {
        if let Err(error) = self.has(&area) {
            return Err(Refused { value: area, error });
        }
        let (first, n) = (self.index(area.start), area.pages as usize);
        self.owe(first, n, area.owns_frames);
        let freed = if self.owing == 1 { self.pay(on, first, n) } else { self.finish(on) };
        if self.owed.has(first) {
            // A call that is refused is so before it changes a page.
            self.owe_no_more(first, n);
            if let Err(error) = freed {
                return Err(Refused { value: area, error });
            }
        }
        Ok(())
    }

    /// Frees the areas whose allocation or free has unwound. Other calls begin with this, so it is
    /// needed before [`into_range`](Self::into_range) only. Has no effect if no area is owed.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; some of the areas may be owed still.
    pub fn finish<M: Machine>(&mut self, on: On<'_, M>) -> Result<(), AreaError> {
        while self.owing != 0
            && let Some((first, end)) = self.owed.first_taken()
        {
            self.pay(on, first, end - first)?;
        }
        Ok(())
    }

    /// Unmaps the `n` pages from `first` on, an area that is owed, and gives back its frames.
    fn pay<M: Machine>(&mut self, on: On<'_, M>, first: usize, n: usize) -> Result<(), AreaError> {
        let owns_frames = self.owed_frames.has(first);
        let start = VirtAddr(self.range.start().0 + first as u64 * Self::PAGE);
        self.range.unmap_leaves(on, start, n as u64, |level, _, raw| {
            if owns_frames {
                // All frames of a large page are one block.
                give(on, F::frame(level, raw));
            }
        })?;
        self.owe_no_more(first, n);
        self.forget(first, n);
        Ok(())
    }

    /// Notes that the pages of an area are to be unmapped if this call unwinds.
    fn owe(&mut self, first: usize, n: usize, owns_frames: bool) {
        self.owing += 1;
        self.owed.take_at(first, n);
        if owns_frames {
            self.owed_frames.take_at(first, n);
        }
    }

    /// Takes back the record of [`owe`](Self::owe).
    fn owe_no_more(&mut self, first: usize, n: usize) {
        self.owing -= 1;
        self.owed.give(first, n);
        if self.owed_frames.has(first) {
            self.owed_frames.give(first, n);
        }
    }

    /// Makes the pages of an area, and its guard, available.
    fn forget(&mut self, first: usize, n: usize) {
        self.taken.give(first, n + 1);
        self.areas -= 1;
        self.pages -= n as u64;
    }

    fn index(&self, at: VirtAddr) -> usize {
        ((at.0 - self.range.start().0) / Self::PAGE) as usize
    }

    /// Gives the pages of an area the attributes that `change` makes of theirs, and has every CPU
    /// forget those that differ. [`Attr::USER`] is not added.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the areas are unchanged then.
    pub fn protect<M: Machine>(
        &mut self,
        on: On<'_, M>,
        area: &Area<'k>,
        change: impl Fn(Attr) -> Attr,
    ) -> Result<(), AreaError> {
        self.has(area)?;
        self.finish(on)?;
        let change = |attr| change(attr).without(Attr::USER);
        Ok(self.range.protect(on, area.start, area.pages, change)?)
    }

    fn has(&self, area: &Area<'k>) -> Result<(), AreaError> {
        self.range.machine().accept(area.machine).map_err(AreaError::WrongMachine)?;
        let called = self.range.start();
        let is_here = (area.range, area.map) == (called, self.range.map_root().0);
        if is_here { Ok(()) } else { Err(AreaError::NotHere { at: area.start, of: area.range, called }) }
    }

    /// Returns the mappings.
    pub fn range(&self) -> &KernelRange<'k, F, W> {
        &self.range
    }

    /// Counts areas and pages.
    pub fn counts(&self) -> AreaCounts {
        let largest = self.taken.free(0).map(|(first, end)| end - first).max().unwrap_or(0);
        AreaCounts { areas: self.areas, pages: self.pages, largest: largest.saturating_sub(1) as u64 }
    }

    /// Gives the range back, which maps no page any more. Its tables stay until it is
    /// [released](KernelRange::release).
    ///
    /// # Errors
    ///
    /// [`AreasLeft`], with all areas as they were.
    #[expect(clippy::result_large_err, reason = "what is refused comes back by value: there is no heap")]
    pub fn into_range(self) -> Result<KernelRange<'k, F, W>, Refused<Self, AreasLeft>> {
        match self.areas {
            0 => Ok(self.range),
            areas => {
                let error = AreasLeft { areas, owed: self.owing };
                Err(Refused { error, value: self })
            }
        }
    }
}

/// Takes 2^`order` frames for an area.
fn take<M: Machine>(on: On<'_, M>, order: u8, flags: AllocFlags) -> Result<Pfn, AreaError> {
    Ok(on.data().take_block(on.frames(), on.pin(), order, flags)?.into_raw())
}

/// Gives back a frame or a block of an area that no CPU reaches any more.
fn give<M: Machine>(on: On<'_, M>, pfn: Pfn) {
    // SAFETY: 1. the area's reference, out of an entry that has been cleared: `alloc` has put it
    // there, with frames of the machine that the range is of.
    let frame = unsafe { DataFrame::from_raw(on.pin().machine(), pfn) };
    let given = on.data().release(on.frames(), on.pin(), frame);
    debug_assert!(given.is_ok(), "the machine was the same when the frame was taken");
}
