//! Large pages of private anonymous memory and of objects: what Linux calls transparent huge pages.
//!
//! An area may have them if it has the flag [`LARGE`](AreaFlags::LARGE). The first write to a span
//! of the size of a large page, all of it in the area and none of it touched yet, maps one. Where
//! no block of frames is free for it, pages are mapped as elsewhere: nothing is won back, and no
//! call fails for lack of a block. A large page lies in areas with the flag only, so faults in
//! others need not look for one. The first read of such a span maps the machine's [block of
//! zeroes](super::ZeroBlock), if it has one; the first write puts a large page in its place, or
//! splits it if none is free.
//!
//! Operations on a part of a large page split it; fork shares it until one side writes to it, which
//! [splits or copies](LargePages::copy) it. [`SpaceMut::collapse`] makes large pages of pages.
//!
//! An area of an object may have them as well, if it is asked to. A fault maps one where the object
//! has its pages in a block of frames ([`SpaceMachine::backing_block`]). It holds no reference, as
//! pages of objects hold none. A write to a private one splits it, and copies the page. A span that
//! has pages keeps them: `collapse` passes over areas of objects.
use super::SpaceMachine;
use super::area::{Area, AreaFlags, LargePages};
use super::areas::{AreaError, Hint};
use super::fault::{Done, FaultError, Outcome, spurious};
use super::state::{SpaceMut, State};
use crate::addr::{FRAME_SHIFT, Pfn, VirtAddr, VirtRange};
use crate::format::{Access, Attr, Entry, Format};
use crate::frames::{DataFrames, NoFrame, TakenData};
use crate::gather::{Gather, release_flushed, release_large_flushed};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::{Tables, Use, is_aligned};
use crate::tlb::{SpaceTlb, TlbRefusal};

/// What [`SpaceMut::collapse`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// Large pages that were made.
    pub large: u32,
    /// Where to go on; `None` at the end of the space.
    pub next: Option<VirtAddr>,
}

/// Limits of [`SpaceMut::collapse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapseLimits {
    /// Spans of the size of a large page that are looked at, at most.
    pub spans: u32,
    /// Pages of a span that may be missing, or show zeroes, at most: so much more memory a large
    /// page may take (`max_ptes_none` in Linux).
    pub missing: u32,
}

/// A large data frame that was taken just now, with one reference, and is mapped nowhere. Given
/// back when dropped.
pub(super) struct UnmappedLarge<'a, M: Machine> {
    on: On<'a, M>,
    pub pfn: Pfn,
}

impl<'a, M: Machine> UnmappedLarge<'a, M> {
    /// Takes one for a large page of `F`, of zeroes if they are `wanted`.
    pub fn take<F: Format>(on: On<'a, M>, zeroes: bool) -> Result<Self, NoFrame> {
        let order = (F::shift(Tables::<F>::LARGE) - FRAME_SHIFT) as u8;
        let TakenData { pfn, is_zero } = on.data().take_large(on.frames(), on.pin(), order, zeroes)?;
        let block = UnmappedLarge { on, pfn };
        if zeroes && !is_zero {
            block.clear(order)?;
        }
        Ok(block)
    }

    /// Clears its 2^`order` frames. A call, so that the loop is there once, with the machine's
    /// function in it.
    #[inline(never)]
    fn clear(&self, order: u8) -> Result<(), NoFrame> {
        for page in self.on.data().pages(self.pfn, order) {
            // SAFETY: 1. taken just now.
            unsafe { self.on.machine().clear_data(self.on.pin(), page) }?;
        }
        Ok(())
    }

    /// Returns its first frame, of whose reference the caller has to take care.
    pub fn keep(self) -> Pfn {
        core::mem::ManuallyDrop::new(self).pfn
    }
}

impl<M: Machine> Drop for UnmappedLarge<'_, M> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: 1. and 2. taken just now, with one reference, and mapped nowhere.
        unsafe { release_large_flushed(self.on, self.pfn) };
    }
}

/// Whether the reference of the leaf `raw` of a table of `level` is the only one to its data frame;
/// special ones have none. The caller has the space for itself: the entry keeps its reference.
#[inline]
pub(super) fn is_sole<F: Format, M: Machine>(on: On<'_, M>, level: Level, raw: u64) -> bool {
    if F::is_special(level, raw) {
        return false;
    }
    let frame = F::frame(level, raw);
    if level > Level::PTE {
        return on.data().large(on.frames(), frame).is_sole();
    }
    // SAFETY: 1. an entry of a space that is not special shows a data frame of this machine, and
    // holds a reference to it.
    unsafe { DataFrames::is_sole_raw(on.frames(), frame) }
}

impl AreaFlags {
    /// Those of a new area, which may have large pages if they are asked for, or in all `new`
    /// areas, and it is of a kind that can have them.
    pub(super) fn may_be_large<F: Format>(self, new: bool) -> AreaFlags {
        if self.has(Self::PHYSICAL) {
            return self;
        }
        let fits = Tables::<F>::HAS_LARGE && !self.has(Self::SPECIAL);
        let new = new && !self.has_object() && !self.has(Self::GROWS_DOWN);
        if fits && (self.has(Self::LARGE) || new) {
            self.with(Self::LARGE)
        } else {
            self.without(Self::LARGE)
        }
    }
}

impl<F: Format> State<F> {
    /// Serves a fault in an area of physical memory, or in one that may have large pages, which
    /// allows the access. `None` if it is one of a page as elsewhere.
    #[cold]
    #[inline(never)]
    pub(super) fn fault_apart<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        page: u64,
        access: Access,
        hint: Hint,
    ) -> Result<Option<Outcome>, FaultError> {
        let area = self.areas.found(on, hint);
        if area.flags.has(AreaFlags::PHYSICAL) {
            return self.fault_physical::<M, SHARED>(on, tlb, page, access).map(Some);
        }
        let level = Tables::<F>::LARGE;
        let start = page & !(Tables::<F>::large_size() - 1);
        match self.tables.large_entry(on, page) {
            (Entry::Link(_), _) => Ok(None),
            (Entry::Leaf, raw) if F::allows(level, raw, access) => {
                Ok(Some(spurious(on, tlb, start, F::shift(level), raw)))
            }
            (Entry::Leaf, raw) => Ok(Some(self.gain_whole::<M, SHARED>(on, tlb, start, access, raw, &area))),
            (Entry::None, _) if start < area.start || area.end - start < Tables::<F>::large_size() => {
                Ok(None)
            }
            (Entry::None, _) if area.flags.has_object() => {
                Ok(self.fault_block::<M, SHARED>(on, tlb, start, access, &area))
            }
            (Entry::None, _) if access == Access::Write => {
                self.fault_whole::<M, SHARED>(on, tlb, start, hint, &area)
            }
            (Entry::None, _) => Ok(self.fault_zeroes::<M, SHARED>(on, tlb, start, &area)),
        }
    }

    /// The attributes that an access, which `area` allows, gives its large page `raw`; `None` if
    /// the write has to go to other frames.
    fn attr_gained<M: Machine>(on: On<'_, M>, access: Access, raw: u64, area: &Area) -> Option<Attr> {
        let in_place = access != Access::Write
            || area.flags.has(AreaFlags::SHARED)
            || is_sole::<F, M>(on, Tables::<F>::LARGE, raw);
        in_place.then(|| Self::attr_used(area.flags, access))
    }

    /// Gives an access to the large page `raw` at `start`, which `area` allows, if that takes no
    /// more than a change of its entry.
    fn gain_whole<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        start: u64,
        access: Access,
        raw: u64,
        area: &Area,
    ) -> Outcome {
        if const { F::EVER_BREAKS || F::KEPT != 0 } || self.tables.may_be_groups() {
            return Outcome::Exclusive;
        }
        let level = Tables::<F>::LARGE;
        let Some(attr) = Self::attr_gained(on, access, raw, area) else { return Outcome::Exclusive };
        let gain = |raw| Self::gained(level, raw, attr);
        on.before_changed::<F>(level, raw, gain(raw));
        let others = Use::private(tlb.is_unloaded());
        let Some(now) = self.tables.gain_large::<M, SHARED>(on, start, raw, others, gain) else {
            return Outcome::Again;
        };
        on.became_valid(Some(tlb), start, F::shift(level), 1, raw, now);
        Outcome::Done(Done::Reused)
    }

    /// Maps the machine's block of zeroes at `start`, if it has one and there is memory for its
    /// tables; `None` otherwise.
    fn fault_zeroes<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        start: u64,
        area: &Area,
    ) -> Option<Outcome> {
        let zeroes = on.machine().zero_block()?.get::<F, M>(on)?;
        if SHARED && !self.tables.has_large_table(on, start) {
            return Some(Outcome::Exclusive);
        }
        let attr = Self::attr(area.flags) | Attr::SPECIAL;
        self.put_block::<M, SHARED>(on, tlb, start, (zeroes, attr), None, Done::Zero)
    }

    /// Maps a large page of zeroes at `start`, if there is memory for it; `None` otherwise.
    fn fault_whole<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        start: u64,
        hint: Hint,
        area: &Area,
    ) -> Result<Option<Outcome>, FaultError> {
        if SHARED && !self.tables.has_large_table(on, start) {
            return Ok(Some(Outcome::Exclusive));
        }
        let Ok(block) = UnmappedLarge::take::<F>(on, true) else { return Ok(None) };
        let attr = Self::attr_used(area.flags, Access::Write);
        let (first, own) = (block.pfn, Some((block, hint)));
        Ok(self.put_block::<M, SHARED>(on, tlb, start, (first, attr), own, Done::Large))
    }

    /// Maps a large page of the object behind `area` at `start`, if the object has a block for it
    /// and there is memory for its tables; `None` otherwise, and for a write that makes a private
    /// copy.
    fn fault_block<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        start: u64,
        access: Access,
        area: &Area,
    ) -> Option<Outcome> {
        if access == Access::Write && !area.flags.has(AreaFlags::SHARED) {
            return None;
        }
        let page = area.offset_at(start) >> F::PAGE_SHIFT;
        let pages = (Tables::<F>::large_size() >> F::PAGE_SHIFT) as u32;
        let first = on.machine().backing_block(area.object, page, pages)?;
        if !is_aligned::<F>(first, Tables::<F>::LARGE) {
            return None;
        }
        if SHARED && !self.tables.has_large_table(on, start) {
            return Some(Outcome::Exclusive);
        }
        let attr = Self::attr_used(area.flags, access) | Attr::SPECIAL;
        self.put_block::<M, SHARED>(on, tlb, start, (first, attr), None, Done::Backed)
    }

    /// Maps a large page at `start` to the block of frames from `first` on. `own` is the block, and
    /// the area, if the entry is to hold a reference to it; otherwise an object has it, or the
    /// machine. `None` if there is no memory for its tables.
    fn put_block<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        start: u64,
        (first, attr): (Pfn, Attr),
        own: Option<(UnmappedLarge<'_, M>, Hint)>,
        done: Done,
    ) -> Option<Outcome> {
        let level = Tables::<F>::LARGE;
        on.before_mapped::<F>(attr, first, Tables::<F>::large_size() >> F::PAGE_SHIFT);
        self.tables.reserve_large(on).ok()?;
        let raw = F::leaf(level, first, attr);
        let put = self.tables.put_large_page::<M, SHARED>(on, start, raw);
        if put == Ok(true) {
            // Before code of the machine that may unwind.
            if let Some((block, hint)) = own {
                block.keep();
                self.areas.begin_private(on, hint);
            }
            let linked = self.tables.take_linked::<M>();
            on.became_reachable(Some(tlb), linked, (start, F::shift(level), 1), 0, raw);
            return Some(Outcome::Done(done));
        }
        self.tables.unreserve_large(on);
        put.is_ok().then_some(Outcome::Again)
    }

    /// Gives an access to the large page at `va` that it does not allow, and its area does, or maps
    /// one of physical memory. `None` if the page at `va` is none, or not any more: it has been
    /// split for a write.
    #[cold]
    #[inline(never)]
    pub(super) fn fault_in_large<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        va: u64,
        access: Access,
    ) -> Result<Option<Done>, FaultError> {
        let Some(area) = self.areas.find(on, va) else { return Ok(None) };
        if area.flags.has(AreaFlags::PHYSICAL) {
            let page = va & !((1 << F::PAGE_SHIFT) - 1);
            return self.fault_physical_alone(on, tlb, page, access, &area);
        }
        if !Tables::<F>::HAS_LARGE {
            return Ok(None);
        }
        let (Entry::Leaf, raw) = self.tables.large_entry(on, va) else { return Ok(None) };
        on.tlb().may_flush(on.pin())?;
        let start = va & !(Tables::<F>::large_size() - 1);
        let range = VirtRange::ordered(start, start + Tables::<F>::large_size());
        let mut gather = self.tables.gather(on, tlb, true);
        if let Some(attr) = Self::attr_gained(on, access, raw, &area) {
            self.tables
                .change_permissions(range, &mut gather, |level, _, raw| Self::gained(level, raw, attr));
            return Ok(Some(Done::Reused));
        }
        // A write to a page of an object copies that page alone. Of the block of zeroes there is
        // nothing to copy.
        let special = F::is_special(Tables::<F>::LARGE, raw);
        let zeroes = special && !area.flags.has_object();
        let copies = zeroes || self.large.copy && !special;
        if copies
            && self.copy_large(on, start, raw, Self::attr_used(area.flags, access), zeroes, &mut gather)?
        {
            return Ok(Some(if zeroes { Done::Large } else { Done::Copied }));
        }
        self.tables.split_down(va, Level::PTE, &mut gather)?;
        Ok(None)
    }

    /// Gives the large page `raw` at `start` a block of its own, with `attr` and the content of the
    /// former, which is special if that is known to be `zeroes`; false if there is none.
    fn copy_large<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        start: u64,
        raw: u64,
        attr: Attr,
        zeroes: bool,
        gather: &mut Gather<'_, M>,
    ) -> Result<bool, FaultError> {
        let (level, frame) = (Tables::<F>::LARGE, F::frame(Tables::<F>::LARGE, raw));
        let order = (F::shift(level) - FRAME_SHIFT) as u8;
        let Ok(block) = UnmappedLarge::take::<F>(on, zeroes) else { return Ok(false) };
        let pages = on.data().pages(frame, order).zip(on.data().pages(block.pfn, order));
        for (from, to) in pages.filter(|_| !zeroes) {
            // SAFETY: 1. taken just now. 2. the entry holds a reference to it, and the caller has
            // the space for itself.
            unsafe { on.machine().copy_data(on.pin(), from, to) }?;
        }
        let attr = attr | F::attr(level, raw).only(Attr::SOFT);
        on.before_mapped::<F>(attr, block.pfn, 1 << (F::shift(level) - F::PAGE_SHIFT));
        let new = F::leaf(level, block.pfn, attr);
        let (State { tables, areas, .. }, end) = (self, start + (1 << F::shift(level)));
        tables.replace_large(start, new, gather, || {
            block.keep();
            if zeroes {
                // Areas may have been cut since reads mapped it, and no other write will fault.
                areas.begin_private_in(on, VirtRange::ordered(start, end));
            } else {
                // SAFETY: 1. and 2. the entry, which has been replaced and flushed, held a
                // reference to the whole.
                unsafe { release_large_flushed(on, frame) };
            }
        })?;
        Ok(true)
    }
}

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    /// Returns how the space uses large pages.
    pub fn large_pages(&self) -> LargePages {
        self.state.large
    }

    /// Sets how the space uses large pages. Areas that are there stay as they are, and so do copies
    /// that fork has made; those that it makes from now on have the same. A new space uses none
    /// unless it is asked to.
    pub fn set_large_pages(&mut self, large: LargePages) {
        self.state.large = large;
    }

    /// Returns the bytes of a large page; `None` if the format has none.
    pub fn large_page_size(&self) -> Option<u64> {
        Tables::<F>::HAS_LARGE.then(Tables::<F>::large_size)
    }

    /// Returns the tables that are reserved for splits of large pages: one for each, and more for
    /// larger ones of physical memory. They take no memory until then: so many frames are kept
    /// free.
    pub fn reserved_tables(&self) -> u32 {
        self.state.tables.reserved()
    }

    /// Lets areas in `range` have large pages, or not from now on: large pages that are there are
    /// split then. Areas that cannot have any stay as they are, and so do those of physical memory
    /// if they are to have some.
    pub(super) fn advise_large(&mut self, range: VirtRange, large: bool) -> Result<(), AreaError> {
        if !large {
            self.may_flush()?;
            // Before its area says that there is no large page, also if this unwinds.
            let mut gather = self.gather();
            let split = self.state.tables.split_range(range, Level::PTE, &mut gather);
            debug_assert!(split.is_ok(), "asked above");
        }
        self.state.areas.change_range(self.on, range, |a| {
            if large {
                a.flags = a.flags.with(AreaFlags::LARGE).may_be_large::<F>(false);
            } else if a.flags.has(AreaFlags::PHYSICAL) {
                *a = a.in_pages();
            } else {
                a.flags = a.flags.without(AreaFlags::LARGE);
            }
        })
    }

    /// Makes large pages of pages, in areas that may have them, from `from` on: the content of each
    /// span that has the size of one is copied to a block of frames. For the kernel to call now and
    /// then, with time to spare (what Linux's `khugepaged` does): it looks at no more than
    /// [`spans`](CollapseLimits::spans) spans, and says where to go on.
    ///
    /// Areas of objects are passed over: only faults map their blocks. A span becomes a large page
    /// if no more than [`missing`](CollapseLimits::missing) pages of it are missing, at least one
    /// has been written, and no other space shares one. Nothing else changes: there may be no block
    /// for one, or the span may not qualify.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of a flush of this CPU.
    pub fn collapse(&mut self, from: VirtAddr, limits: CollapseLimits) -> Result<Collapsed, TlbRefusal> {
        self.may_flush()?;
        let size = Tables::<F>::large_size();
        let (mut at, mut left, mut large) = (from.0, limits.spans, 0);
        if !Tables::<F>::HAS_LARGE {
            return Ok(Collapsed { large, next: None });
        }
        while let Some(area) = self.state.areas.at_or_after(self.on, at) {
            let first = area.start.max(at).checked_next_multiple_of(size);
            let Some(first) =
                first.filter(|first| area.flags.may_have_zeroes() && area.end.saturating_sub(*first) >= size)
            else {
                at = area.end;
                continue;
            };
            if left == 0 {
                return Ok(Collapsed { large, next: Some(VirtAddr(first)) });
            }
            left -= 1;
            large += u32::from(self.collapse_span(first, &area, limits.missing)?);
            at = first + size;
        }
        Ok(Collapsed { large, next: None })
    }

    /// Makes a large page of the pages from `start` on, in `area`, if they qualify.
    fn collapse_span(&mut self, start: u64, area: &Area, missing: u32) -> Result<bool, TlbRefusal> {
        let on = self.on;
        let (level, size) = (Tables::<F>::LARGE, Tables::<F>::large_size());
        let range = VirtRange::ordered(start, start + size);
        let (Entry::Link(_), _) = self.state.tables.large_entry(on, start) else { return Ok(false) };
        let (mut own, mut others, mut soft) = (0, false, None);
        self.state.tables.walk_leaves(on, range, |level, _, raw| {
            let attr = F::attr(level, raw);
            others |= *soft.get_or_insert(attr.only(Attr::SOFT)) != attr.only(Attr::SOFT);
            if F::is_special(level, raw) {
                return;
            }
            own += 1;
            others |= !is_sole::<F, M>(on, level, raw);
        });
        let pages = (size >> F::PAGE_SHIFT) as u32;
        let reachable = area.flags.0 & AreaFlags::PERMISSIONS.0 != 0;
        if own == 0 || others || !reachable || pages - own > missing {
            return Ok(false);
        }
        let Ok(block) = UnmappedLarge::take::<F>(on, own < pages) else { return Ok(false) };
        if self.state.tables.reserve_large(on).is_err() {
            return Ok(false);
        }
        let mut attr = State::<F>::attr(area.flags) | soft.unwrap_or_default() | Attr::DIRTY;
        if area.flags.has(AreaFlags::WRITE) {
            attr = attr | Attr::WRITE;
        }
        on.before_mapped::<F>(attr, block.pfn, pages.into());
        let (m, first) = (on.machine(), block.pfn);
        let copy = |index: usize, raw: u64| {
            if F::is_special(Level::PTE, raw) {
                return Ok(()); // The frame of zeroes.
            }
            let to = Pfn(first.0 + ((index as u32) << F::PAGE_ORDER));
            // SAFETY: 1. taken just now. 2. the entry holds a reference to it, and the caller has
            // the space for itself.
            unsafe { m.copy_data(on.pin(), F::frame(Level::PTE, raw), to) }
        };
        let mut gather = self.gather();
        let leaf = F::leaf(level, first, attr);
        let stands = || _ = block.keep();
        let made = self.state.tables.make_large(start, leaf, &mut gather, copy, stands, |raw| {
            // SAFETY: 1. the entry owned a reference to a data frame of this machine, or is
            // special. 2. its table has been cut off and flushed.
            unsafe { release_flushed::<F, M>(on, raw) };
        });
        if made != Ok(true) {
            self.state.tables.unreserve_large(on);
        }
        made
    }
}
