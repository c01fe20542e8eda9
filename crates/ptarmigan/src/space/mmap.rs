//! Changes areas and their pages as the system calls of the mmap family do.
use super::SpaceMachine;
use super::area::{Area, AreaFlags, Object};
use super::areas::AreaError;
use super::empty::EmptyTables;
use super::fault::FaultError;
use super::state::{SpaceMut, State, release};
use super::unmapping::Unmapping;
use crate::addr::{VirtAddr, VirtRange};
use crate::format::{Access, Attr, Format};
use crate::gather::Gather;
use crate::page::Level;

/// The effect of `madvise` on pages; other advice does not affect tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `MADV_DONTNEED`: pages go, areas stay, and tables as [`EmptyTables`](super::EmptyTables)
    /// says.
    DontNeed,
    /// `MADV_DONTFORK` (true) and `MADV_DOFORK` (false).
    DontFork(bool),
    /// `MADV_WIPEONFORK` (true) and `MADV_KEEPONFORK` (false). Shared areas stay as they are, where
    /// Linux refuses the call: fork passes on what is behind them.
    WipeOnFork(bool),
    /// `MADV_HUGEPAGE` (true) and `MADV_NOHUGEPAGE` (false): areas may have [large
    /// pages](AreaFlags::LARGE), or not any more; those that are there are split then. Areas of
    /// physical memory have pages alone from then on.
    Large(bool),
    /// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`.
    Populate(Access),
}

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    /// Maps an area at a fixed place; its former content is unmapped first.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the former content may be gone then, as with `mmap(MAP_FIXED)`.
    pub fn mmap(
        &mut self,
        range: VirtRange,
        flags: AreaFlags,
        object: impl Into<Object>,
    ) -> Result<(), AreaError> {
        self.map_object(range, flags, object.into())
    }

    fn map_object(&mut self, range: VirtRange, flags: AreaFlags, object: Object) -> Result<(), AreaError> {
        let tag = self.state.tag;
        self.map_area(Area { tag, ..Area::new(range, flags, object) })
    }

    /// Maps `area` as it is given; the former content of its place is unmapped first. Private pages
    /// are noted as they come, whatever its flags say.
    ///
    /// # Errors
    ///
    /// As [`mmap`](Self::mmap). [`AreaError::Physical`] for [`AreaFlags::SHARED`] beside
    /// [`AreaFlags::WIPE_ON_FORK`].
    #[inline(never)]
    pub fn map_area(&mut self, area: Area) -> Result<(), AreaError> {
        let range = State::<F>::pages(area.range())?;
        if area.flags.has(AreaFlags::WIPED_SHARED) {
            return Err(AreaError::Physical(range));
        }
        if area.flags.0 & AreaFlags::KEY.0 != 0 {
            F::expresses(area.flags.attr::<F>())?;
        }
        self.put_area(range, area)
    }

    /// Puts `area`, which lies in `range`, in the place of whatever is there.
    #[inline]
    pub(super) fn put_area(&mut self, range: VirtRange, area: Area) -> Result<(), AreaError> {
        self.clear_range(range)?;
        self.settle(range)?;
        let new = self.state.large.in_new_areas;
        let area = area.without_private();
        let flags = area.flags.may_be_large::<F>(new);
        self.state.areas.insert(self.on, Area { flags, ..area })
    }

    /// Gives the areas in `range` the tags that `change` makes of their own; areas that reach
    /// beyond are cut.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; no tag has changed then.
    pub fn retag(&mut self, range: VirtRange, change: impl Fn(u16) -> u16) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        self.state.areas.change_range(self.on, range, |a| a.tag = change(a.tag))
    }

    /// Gives the whole area at `va` the tag that `change` makes of its own. Unlike
    /// [`retag`](Self::retag) it joins the area with no other one: Linux does so where it clears a
    /// flag in place, as `MREMAP_DONTUNMAP` clears a lock.
    ///
    /// # Errors
    ///
    /// [`AreaError::NoArea`] if no area lies there.
    pub fn retag_area(&mut self, va: VirtAddr, change: impl Fn(u16) -> u16) -> Result<(), AreaError> {
        let area = self.state.areas.find(self.on, va.0).ok_or(self.no_area(va))?;
        self.state.areas.change_whole(self.on, area.range(), |a| Area { tag: change(a.tag), ..a });
        Ok(())
    }

    /// The error where no area has the page at `va`.
    fn no_area(&self, va: VirtAddr) -> AreaError {
        let start = va.0 & !((1 << F::PAGE_SHIFT) - 1);
        AreaError::NoArea(VirtRange::ordered(start, start.saturating_add(1 << F::PAGE_SHIFT)))
    }

    /// Has fork copy the tables of the area at `va` from now on, as if a private page had been
    /// written there. Linux does so where it prepares an `anon_vma` ahead of a write, and where
    /// entries hold marks.
    ///
    /// # Errors
    ///
    /// [`AreaError::NoArea`] if no area lies there.
    pub fn copy_on_fork(&mut self, va: VirtAddr) -> Result<(), AreaError> {
        let (hint, _) = self.state.areas.search(self.on, va.0).ok_or(self.no_area(va))?;
        self.state.areas.begin_private(self.on, hint);
        Ok(())
    }

    /// Returns the tag of areas that are mapped without one, by [`mmap`](Self::mmap) and
    /// [`brk`](Self::brk): 0 at first. Copies made by fork have the same.
    pub fn default_tag(&self) -> u16 {
        self.state.tag
    }

    /// Sets the tag of areas that are mapped without one from now on.
    pub fn set_default_tag(&mut self, tag: u16) {
        self.state.tag = tag;
    }

    /// Makes the tables that pages of `range` need, from the root down to `level`, and maps no
    /// page.
    ///
    /// # Errors
    ///
    /// [`AreaError::NoArea`] if a part of `range` is not mapped, [`AreaError::NoFrame`]; tables
    /// that were made before stay. [`AreaError::NoSuchLevel`] for a level that the format does not
    /// have.
    pub fn make_tables(&mut self, range: VirtRange, level: Level) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        let root = F::LAYOUT.root();
        if level >= root {
            let levels = F::LAYOUT.levels;
            // The root is there.
            return if level == root { Ok(()) } else { Err(AreaError::NoSuchLevel { level, levels }) };
        }
        let span = 1u64 << F::shift(Level(level.0 + 1));
        let mut va = range.start;
        while va < range.end {
            let area = self.state.areas.find(self.on, va).ok_or(AreaError::NoArea(range))?;
            let end = area.end.min(range.end);
            while va < end {
                self.state.tables.make_table(self.on, va, level)?;
                va = (va | (span - 1)).saturating_add(1);
            }
            va = end;
        }
        Ok(())
    }

    /// Sets how large a stack may grow, in bytes (`RLIMIT_STACK`): 8 MiB at first. A limit of 2^32
    /// pages or more is one of 2^32 - 1. Copies made by fork have the same.
    pub fn set_stack_limit(&mut self, bytes: u64) {
        self.state.stack_limit = u32::try_from(bytes >> F::PAGE_SHIFT).unwrap_or(u32::MAX);
    }

    /// Returns the highest gap below `below` for `len` bytes, rounded up to whole pages, for
    /// callers that do not care where. Addresses that other CPUs have not forgotten yet
    /// ([`Unmapping::Deferred`]) are taken if there are no others.
    pub fn find_gap(&self, len: u64, below: u64) -> Option<VirtRange> {
        let len = len.checked_next_multiple_of(1 << F::PAGE_SHIFT)?;
        let left = self.state.left.range(self.on);
        let gap = self.gap_beside(left, len, below);
        if left.is_some() && gap.is_none() { self.gap_beside(None, len, below) } else { gap }
    }

    #[inline]
    fn gap_beside(&self, left: Option<VirtRange>, len: u64, below: u64) -> Option<VirtRange> {
        let mut end = below.min(F::USER_END) & !((1 << F::PAGE_SHIFT) - 1);
        loop {
            let start = end.checked_sub(len)?;
            match self.state.areas.at_or_after(self.on, start) {
                Some(area) if area.start < end => end = area.start,
                _ => match left {
                    Some(left) if left.start < end && start < left.end => end = left.start,
                    // Address 0 is never given out.
                    _ => return (start > 0).then_some(VirtRange::ordered(start, end)),
                },
            }
        }
    }

    /// Unmaps everything in `range`. Tables go by Linux's rule: those whose span holds no other
    /// area any more, or all that are empty ([`EmptyTables`](super::EmptyTables)).
    ///
    /// # Errors
    ///
    /// [`AreaError`]; pages and areas are as they were then. No tables are ever allocated; a frame
    /// may be needed for the records of areas that are cut in two.
    #[inline(never)]
    pub fn munmap(&mut self, range: VirtRange) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        match self.remove_areas(range)? {
            Some((gone, false)) if self.state.unmapping == Unmapping::Deferred => self.unmap_later(gone),
            Some((gone, _)) => self.unmap_gone(gone),
            None => {}
        }
        Ok(())
    }

    /// Unmaps everything in `range`, which is made of whole pages of user addresses.
    #[inline]
    fn clear_range(&mut self, range: VirtRange) -> Result<(), AreaError> {
        if let Some((gone, _)) = self.remove_areas(range)? {
            self.unmap_gone(gone);
        }
        Ok(())
    }

    /// Takes the areas out of `range`. Returns the addresses whose pages have to go, and whether
    /// some area had an object; `None` if there was none.
    #[inline]
    fn remove_areas(&mut self, range: VirtRange) -> Result<Option<(VirtRange, bool)>, AreaError> {
        // Most calls of `mmap` come to free space.
        match self.state.areas.at_or_after(self.on, range.start) {
            Some(area) if area.start < range.end => {}
            _ => return Ok(None),
        }
        self.may_flush()?;
        let (mut first, mut last, mut object) = (u64::MAX, 0, false);
        self.state.areas.remove_range(self.on, range, |area| {
            first = first.min(area.start);
            last = last.max(area.end);
            object |= area.flags.has_object();
        })?;
        Ok(Some((VirtRange::ordered(first, last), object)))
    }

    /// As [`unmap_gone`](Self::unmap_gone), for private pages without an object: the flush may be
    /// left to the CPUs that it concerns.
    #[cold]
    #[inline(never)]
    fn unmap_later(&mut self, gone: VirtRange) {
        let mut gather = self.gather();
        self.clear_gone(gone, &mut gather);
        let (on, left) = (self.on, &mut self.state.left);
        gather.finish_later(|cpus, epoch| left.add(on, gone, cpus, epoch));
    }

    /// Clears the entries in `gone`, whose areas are gone, and frees the tables that no area around
    /// it needs.
    ///
    /// It is not inlined, so that the gather is not on the stack while records are cut.
    #[inline(never)]
    fn unmap_gone(&mut self, gone: VirtRange) {
        let mut gather = self.gather();
        self.clear_gone(gone, &mut gather);
    }

    #[inline]
    fn clear_gone(&mut self, gone: VirtRange, gather: &mut Gather<'_, M>) {
        if !gone.is_empty() {
            let free = self.state.beside_areas(self.on, gone);
            self.state.tables.unmap_sizes(gone, free, gather, |gather, level, _, raw| {
                release::<F, M>(gather, level, raw);
            });
        }
    }

    /// Changes permissions in `range`. Pages lose permissions at once. They gain permissions at
    /// once too, but for the right to be written: that is given to private pages whose frame no
    /// other entry shows. All others gain it by a fault, which copies a shared frame, and the zero
    /// frame.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the space is unchanged then.
    pub fn mprotect(&mut self, range: VirtRange, permissions: AreaFlags) -> Result<(), AreaError> {
        self.protect_areas(range, permissions, AreaFlags::PERMISSIONS)
    }

    /// Changes permissions and the protection key in `range`, as `pkey_mprotect` does. Of `flags`,
    /// only [`AreaFlags::PERMISSIONS`] and [`AreaFlags::KEY`] count. [`mprotect`](Self::mprotect)
    /// leaves the key as it is.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the space is unchanged then. [`AreaError::Inexpressible`] if the format has
    /// no keys, and it is not key 0.
    pub fn mprotect_with_key(&mut self, range: VirtRange, flags: AreaFlags) -> Result<(), AreaError> {
        F::expresses(Attr::READ | Attr::USER | flags.key(AreaFlags::KEY))?;
        self.protect_areas(range, flags, AreaFlags::PERMISSIONS.with(AreaFlags::KEY))
    }

    /// Sets `flags` of areas and pages in `range`, as far as they are in `which`.
    fn protect_areas(
        &mut self,
        range: VirtRange,
        flags: AreaFlags,
        which: AreaFlags,
    ) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        let flags = AreaFlags(flags.0 & which.0);
        let (mut any, mut same) = (false, true);
        self.state.areas.each(self.on, range, |a| {
            any = true;
            same &= a.flags.0 & which.0 == flags.0;
        });
        if !any {
            return Err(AreaError::NoArea(range));
        }
        if same && !self.tlb.owes_flush() {
            return Ok(());
        }
        self.may_flush()?;
        self.state.areas.change_range(self.on, range, |a| a.flags = a.flags.without(which).with(flags))?;
        self.protect_now(range, flags, which);
        Ok(())
    }

    /// Gives the pages in `range` the flags in `which` that their areas have got, and flushes.
    ///
    /// It is not inlined, so that the gather is not on the stack while records are cut.
    #[inline(never)]
    fn protect_now(&mut self, range: VirtRange, flags: AreaFlags, which: AreaFlags) {
        let mut gather = self.gather();
        self.protect_pages(range, flags, which, &mut gather);
    }

    /// Moves the end of the heap. The first call after `execve` returns the start of the heap (a C
    /// library asks this first), and maps no page; an end below that has no effect.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; the heap is as it was then.
    pub fn brk(&mut self, end: VirtAddr) -> Result<(), AreaError> {
        let page = 1u64 << F::PAGE_SHIFT;
        let heap = self.state.heap;
        // Only the last page of all is refused, which lies above every heap.
        let bad = || AreaError::BadRange(VirtRange::ordered(heap.end, end.0));
        let end = end.0.checked_next_multiple_of(page).ok_or_else(bad)?;
        if heap.start == 0 {
            self.state.heap = VirtRange::ordered(end, end);
            return Ok(());
        }
        if end > heap.end {
            let grown = VirtRange::ordered(heap.end, end);
            let flags = AreaFlags::READ.with(AreaFlags::WRITE);
            let flags = flags.may_be_large::<F>(self.state.large.in_new_areas);
            let tag = self.state.tag;
            self.settle(grown)?;
            self.state
                .areas
                .insert(self.on, Area { tag, ..Area::new(State::<F>::pages(grown)?, flags, 0) })?;
        } else if end < heap.start {
            return Ok(());
        } else if end < heap.end {
            self.munmap(VirtRange::ordered(end, heap.end))?;
        }
        self.state.heap = VirtRange::ordered(heap.start, end);
        Ok(())
    }

    /// Moves or resizes the mapping at `from`. Mappings at the new place go. With `keep` the old
    /// area stays, empty (`MREMAP_DONTUNMAP`).
    ///
    /// # Errors
    ///
    /// [`AreaError::BadRange`] if the places overlap, [`AreaError::NoArea`] if the source is not
    /// mapped throughout, and alike, [`AreaError::Physical`] if an area of physical memory is to
    /// grow; only the tail of a move that shrinks is gone then, as in
    /// Linux. For lack of memory, the pages to be moved and their area are where they were;
    /// mappings at the new place may be gone, too.
    pub fn mremap(&mut self, from: VirtRange, to: VirtRange, keep: bool) -> Result<(), AreaError> {
        let from = State::<F>::pages(from)?;
        let to = State::<F>::pages(to)?;
        if from.start == to.start && to.end < from.end {
            return self.munmap(VirtRange::ordered(to.end, from.end));
        }
        // A shrinking move cuts the tail off first, whatever lies there.
        let moved = VirtRange::ordered(from.start, from.start + from.len().min(to.len()));
        let overlap = from.start != to.start && !from.and(to).is_empty();
        if overlap {
            return Err(AreaError::BadRange(to));
        }
        if to.len() > from.len() && self.shows_physical(from) {
            return Err(AreaError::Physical(to));
        }
        if moved.end < from.end {
            self.munmap(VirtRange::ordered(moved.end, from.end))?;
        }
        let mut area = self.alike_throughout(moved)?;
        if from.start == to.start {
            if to.end > from.end {
                let grown = VirtRange::ordered(from.end, to.end);
                let offset = area.offset_at(grown.start);
                self.settle(grown)?;
                return self
                    .state
                    .areas
                    .insert(self.on, Area { start: grown.start, end: grown.end, offset, ..area });
            }
            return Ok(());
        }
        self.may_flush()?;
        self.clear_range(to)?;
        self.settle(to)?;
        if !keep {
            // The records that the end of the old area needs, until a page has moved.
            self.state.areas.cut_out(self.on, moved)?;
        }
        // Both places must be flushed before anybody uses either (docs/linux.md, "Moves"): the
        // gathers end here.
        let relocated = self.relocate(moved, to, area.start == moved.start);
        if relocated.is_err() {
            self.state.areas.join_around(self.on, moved);
            return relocated;
        }
        // An area without pages of its own does not depend yet on its address.
        let fresh = !area.flags.has_object() && !area.flags.has(AreaFlags::PRIVATE_PAGES);
        let offset = if fresh { to.start } else { area.offset_at(from.start) };
        area = Area { start: to.start, end: to.end, offset, ..area };
        if let Err(e) = self.state.areas.insert(self.on, area) {
            let back = VirtRange::ordered(to.start, to.start + moved.len());
            // Its tables are where they were, or have only to be linked again.
            let result = self.relocate(back, moved, false);
            debug_assert!(result.is_ok(), "the way back needs no new table");
            self.unmap_gone(to);
            self.state.areas.join_around(self.on, moved);
            return Err(e);
        }
        if !keep {
            let gone = self.clear_range(moved);
            debug_assert!(gone.is_ok(), "the area has been cut out");
        } else {
            // All private pages of whole areas have gone. Linux joins none of them now.
            let is_whole = |area: Area| area.range().and(moved) == area.range();
            let empty = |area: Area| if is_whole(area) { area.without_private() } else { area };
            self.state.areas.change_whole(self.on, moved, empty);
        }
        if keep && self.state.empty_tables == EmptyTables::Freed {
            self.unmap_gone(moved);
        }
        Ok(())
    }

    /// Moves the pages of `from` to the start of `to`, where no area lies. For lack of memory they
    /// stay, and no tables are left at `to`. `begins` says that an area begins at `from`.
    fn relocate(&mut self, from: VirtRange, to: VirtRange, begins: bool) -> Result<(), AreaError> {
        let down = if begins { self.free_below(from, to) } else { 0 };
        let wider = VirtRange::ordered(from.start - down, from.end);
        let result = self.state.tables.relocate(wider, to.start - down, &mut self.gather());
        if result.is_err() {
            self.unmap_gone(to);
        }
        Ok(result?)
    }

    /// The bytes down to the start of a leaf table, if both places are at the same distance from
    /// one and no other area lies there: then the first table can be moved whole. Linux does so
    /// since 6.7.
    fn free_below(&self, from: VirtRange, to: VirtRange) -> u64 {
        let span = 1u64 << F::shift(Level(1));
        let down = from.start % span;
        let free =
            |at: u64| self.state.areas.at_or_after(self.on, at - down).is_none_or(|area| area.start >= at);
        let whole = down != 0 && down == to.start % span && from.len() >= span - down;
        if whole && free(from.start) && free(to.start) { down } else { 0 }
    }

    /// The area at the start of `range`, if all of `range` is mapped as it is. Areas behind which
    /// there is something may be cut without need.
    fn alike_throughout(&self, range: VirtRange) -> Result<Area, AreaError> {
        let none = AreaError::NoArea(range);
        let mut all = self.state.areas.find(self.on, range.start).ok_or(none)?;
        let mut end = range.start;
        let mut alike = true;
        self.state.areas.each(self.on, range, |a| {
            let differs = AreaFlags(a.flags.0 ^ all.flags.0).without(AreaFlags::PRIVATE);
            let follows = a.object == all.object
                && a.tag == all.tag
                && (a.history == all.history || a.history == 0 || all.history == 0)
                && (a.object == 0 || all.offset_at(a.start) == a.offset);
            alike &= a.start <= end && differs == AreaFlags(0) && follows;
            all.flags = all.flags.with(a.flags);
            all.history |= a.history;
            end = a.end;
        });
        if alike && end >= range.end { Ok(all) } else { Err(none) }
    }

    /// Follows advice on `range`, where areas lie in it.
    ///
    /// # Errors
    ///
    /// [`AreaError`] for a bad range or lack of memory for records; [`FaultError`] from populating
    /// is passed on as lack of memory, other reasons end the populating silently, as they would
    /// when the page was touched.
    pub fn madvise(&mut self, range: VirtRange, advice: Advice) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        match advice {
            Advice::DontNeed => {
                self.may_flush()?;
                let mut gather = self.gather();
                let free = self.state.empty_tables.below_areas();
                let State { tables, areas, .. } = &mut *self.state;
                areas.each(self.on, range, |area| {
                    let range = area.range().and(range);
                    tables.unmap_sizes(range, free, &mut gather, |gather, level, _, raw| {
                        release::<F, M>(gather, level, raw);
                    });
                });
                Ok(())
            }
            Advice::DontFork(on) => self.mark(range, AreaFlags::NO_FORK, on),
            Advice::WipeOnFork(on) => self.mark(range, AreaFlags::WIPE_ON_FORK, on),
            Advice::Large(large) => self.advise_large(range, large),
            Advice::Populate(access) => self.populate(range, access),
        }
    }

    fn mark(&mut self, range: VirtRange, flag: AreaFlags, on: bool) -> Result<(), AreaError> {
        self.state.areas.change_range(self.on, range, |a| {
            // Beside `SHARED`, it says that the area is one of physical memory.
            if flag == AreaFlags::WIPE_ON_FORK && a.flags.has(AreaFlags::SHARED) {
                return;
            }
            a.flags = if on { a.flags.with(flag) } else { a.flags.without(flag) };
        })
    }

    /// Makes all pages of `range` present, as if they had been touched.
    ///
    /// # Errors
    ///
    /// [`AreaError::NoFrame`]; pages before that stay.
    pub fn populate(&mut self, range: VirtRange, access: Access) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        let mut va = range.start;
        while va < range.end {
            match self.fault(VirtAddr(va), access) {
                Err(FaultError::NoFrame(e)) => return Err(e.into()),
                Err(_) => return Ok(()),
                Ok(_) => va = self.state.tables.end_of_leaf(self.on, va),
            }
        }
        Ok(())
    }
}
