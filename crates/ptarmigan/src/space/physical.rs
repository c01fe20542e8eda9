//! Maps physical memory into a space: registers of a device, a frame buffer.
//!
//! An area may have leaves of every size that the format has, and groups
//! ([`map_physical_large`](SpaceMut::map_physical_large)). A fault that would map one takes the
//! space for itself, and so does one that gives one more rights. Faults of pages go on in parallel.
use super::SpaceMachine;
use super::area::{Area, AreaFlags};
use super::areas::AreaError;
use super::fault::{Done, FaultError, Outcome, change, spurious};
use super::state::{SpaceMut, State};
use crate::addr::{FRAME_SHIFT, PhysAddr, VirtRange};
use crate::format::{Access, Attr, Format, MemoryType};
use crate::machine::On;
use crate::page::Level;
use crate::table::{Sizes, Use};
use crate::tlb::SpaceTlb;

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    /// Maps an area that shows the physical memory from `at` on, as memory of the type `memory`;
    /// the former content of its place is unmapped first. Of `flags`, only
    /// [`PERMISSIONS`](AreaFlags::PERMISSIONS), [`KEY`](AreaFlags::KEY) and
    /// [`NO_FORK`](AreaFlags::NO_FORK) count.
    ///
    /// Faults map its pages, as they do in other areas; [`populate`](Self::populate) maps them at
    /// once. Frames are not counted by references ([`Attr::SPECIAL`]): they stay whose they are.
    /// Fork passes the area on, and faults map its pages in the copy, which shows the same memory.
    /// [`mprotect`](Self::mprotect) keeps the type, and so does [`mremap`](Self::mremap), which
    /// moves and shrinks the area. It does not grow.
    ///
    /// The machine is told of frames before they are mapped with another type than the usual one:
    /// [`Machine::before_memory_type`](crate::machine::Machine::before_memory_type).
    ///
    /// # Errors
    ///
    /// [`AreaError`]: [`BadMemory`](AreaError::BadMemory) if entries cannot name the memory,
    /// [`Inexpressible`](AreaError::Inexpressible) if the format does not have the type, or keys.
    /// The former content may be gone for other reasons, as with [`mmap`](Self::mmap).
    ///
    /// # Safety
    ///
    /// 1. Programs may do all with the memory that `flags`, and permissions which
    ///    [`mprotect`](Self::mprotect) gives later, allow, as long as this space or a copy that
    ///    fork makes of it shows the memory. No data frame of [`Machine::data`] is in it, unless it
    ///    is the caller's and stays so for that long.
    ///
    /// [`Machine::data`]: crate::machine::Machine::data
    pub unsafe fn map_physical(
        &mut self,
        range: VirtRange,
        flags: AreaFlags,
        at: PhysAddr,
        memory: MemoryType,
    ) -> Result<(), AreaError> {
        // SAFETY: 1. by the caller.
        unsafe { self.map_physical_large(range, flags, at, memory, Sizes::PAGES) }
    }

    /// As [`map_physical`](Self::map_physical), with the largest leaves of `sizes` that fit: a
    /// frame buffer, the memory of a device, of a guest. Faults, and
    /// [`populate`](Self::populate), map one where all of it lies in the area, its addresses and
    /// its memory are aligned for it, and nothing is mapped in its place; with
    /// [groups](Sizes::with_groups), too. The tables that its parts may need are reserved
    /// ([`reserved_tables`](Self::reserved_tables)). Where that many cannot be, a smaller size is
    /// mapped.
    ///
    /// Operations on a part of one split it, for which no memory is needed. A move keeps those that
    /// are aligned at the new place. Fork passes the sizes on. [`Advice::Large`] with false leaves
    /// pages alone.
    ///
    /// ```
    /// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
    /// # use ptarmigan::{format::X86_64, machine::Machine};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    /// # let cpus = host.slots();
    /// # let pin = cpus[0].pin();
    /// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
    /// # let on = machine.on(&pin)?;
    /// use ptarmigan::addr::{PhysAddr, VirtAddr, VirtRange};
    /// use ptarmigan::format::MemoryType;
    /// use ptarmigan::page::Level;
    /// use ptarmigan::space::{Access, AreaFlags, Space};
    ///
    /// // 8 MiB of a frame buffer.
    /// let mut space = Space::<X86_64>::new(on)?;
    /// let range = VirtRange::fixed::<0x4000_0000, 0x4080_0000>();
    /// let (flags, at) = (AreaFlags::READ.with(AreaFlags::WRITE), PhysAddr(0xe000_0000));
    /// let mut edit = space.edit(on)?;
    /// // SAFETY: no program runs in the space.
    /// unsafe { edit.map_physical_large(range, flags, at, MemoryType::WriteCombining, Level(1))? };
    /// drop(edit);
    /// space.fault(on, VirtAddr(0x4020_3000), Access::Write)?;
    /// let leaf = space.tree().query_leaf(on, VirtAddr(0x4020_3000));
    /// assert_eq!(leaf.map(|leaf| leaf.shift), Some(21));
    /// space.end(on)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`map_physical`](Self::map_physical), and [`NoSuchSize`](AreaError::NoSuchSize) if
    /// the format has no leaves of the largest size.
    ///
    /// # Safety
    ///
    /// 1. As for [`map_physical`](Self::map_physical).
    ///
    /// [`Advice::Large`]: super::Advice::Large
    pub unsafe fn map_physical_large(
        &mut self,
        range: VirtRange,
        flags: AreaFlags,
        at: PhysAddr,
        memory: MemoryType,
        sizes: impl Into<Sizes>,
    ) -> Result<(), AreaError> {
        let (range, sizes): (_, Sizes) = (State::<F>::pages(range)?, sizes.into());
        let bits = F::PHYS_BITS.min(FRAME_SHIFT + u32::BITS);
        let end = at.0.checked_add(range.len()).filter(|end| (end - 1) >> bits == 0);
        if !at.0.is_multiple_of(1 << F::PAGE_SHIFT) || end.is_none() {
            return Err(AreaError::BadMemory(at));
        }
        if !sizes.are_of::<F>() {
            return Err(AreaError::NoSuchSize { level: sizes.largest(), format: F::NAME });
        }
        let flags = AreaFlags(flags.0 & Self::OF_PHYSICAL.0);
        F::expresses(flags.attr::<F>().with(Attr::SPECIAL).with_memory(memory))?;
        let tag = self.state.tag;
        self.put_area(range, Area { tag, ..Area::physical(range, flags, at, memory, sizes) })
    }

    /// The flags that an area of physical memory may be given.
    const OF_PHYSICAL: AreaFlags = AreaFlags::PERMISSIONS.with(AreaFlags::KEY).with(AreaFlags::NO_FORK);

    /// Returns whether any area in `range` shows physical memory.
    #[cold]
    pub(super) fn shows_physical(&self, range: VirtRange) -> bool {
        let mut any = false;
        self.state.areas.each(self.on, range, |area| any |= area.flags.has(AreaFlags::PHYSICAL));
        any
    }
}

impl<F: Format> State<F> {
    /// The leaf `raw` of a table of `level` with `attr` besides its own attributes. A page without
    /// access keeps none to be written, as it may be another's, too.
    #[inline]
    pub(super) fn gained(level: Level, raw: u64, attr: Attr) -> u64 {
        let had = F::attr(level, raw);
        let had = if F::is_present(level, raw) { had } else { had.without(Attr::WRITE) };
        F::leaf(level, F::frame(level, raw), had | attr)
    }

    /// The attributes of a page of an area of physical memory that an access has just used.
    fn attr_of_physical(area: &Area, access: Access) -> Attr {
        (Self::attr_used(area.flags, access) | Attr::SPECIAL).with_memory(area.memory())
    }

    /// Serves a fault in an area of physical memory, which allows the access. A call of few values,
    /// which looks for the area once more: so those of other faults need not lie in memory.
    #[cold]
    #[inline(never)]
    pub(super) fn fault_physical<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        page: u64,
        access: Access,
    ) -> Result<Outcome, FaultError> {
        let Some(area) = self.areas.find(on, page) else { return Ok(Outcome::Again) };
        if area.sizes() != Sizes::PAGES
            && let Some(outcome) = self.fault_whole_physical(on, tlb, page, access, &area)
        {
            return Ok(outcome);
        }
        self.fault_physical_page::<M, SHARED>(on, tlb, page, access, &area)
    }

    /// Says whether a fault is one of a leaf larger than a page, or of a group: the caller must
    /// have the space for itself to map one, or to change it. `None` for a fault of a page.
    #[inline(never)]
    fn fault_whole_physical<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        page: u64,
        access: Access,
        area: &Area,
    ) -> Option<Outcome> {
        let Some(leaf) = self.tables.leaf_at(on, page) else {
            let whole = self.tables.may_be_whole(on, page, &area.shown());
            return whole.then_some(Outcome::Exclusive);
        };
        if leaf.is_plain() {
            return None;
        }
        if !F::allows(leaf.level, leaf.raw, access) {
            return Some(Outcome::Exclusive);
        }
        let shift = F::shift(leaf.level);
        Some(spurious(on, tlb, page & !((1 << shift) - 1), shift, leaf.raw))
    }

    /// Maps the largest leaf that fits around `page` in an area of physical memory, or gives the
    /// one that is there the access, which the area allows.
    #[cold]
    #[inline(never)]
    pub(super) fn fault_physical_alone<M: SpaceMachine>(
        &mut self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        page: u64,
        access: Access,
        area: &Area,
    ) -> Result<Option<Done>, FaultError> {
        let attr = Self::attr_of_physical(area, access);
        match self.tables.leaf_at(on, page) {
            None => {
                let mut gather = self.tables.gather(on, tlb, true);
                if self.tables.put_whole(page, &area.shown(), attr, &mut gather) {
                    return Ok(Some(Done::Backed));
                }
            }
            Some(leaf) if !leaf.is_plain() => {
                on.tlb().may_flush(on.pin())?;
                let mut gather = self.tables.gather(on, tlb, true);
                self.tables.change_permissions(leaf.range, &mut gather, |level, _, raw| {
                    Self::gained(level, raw, attr)
                });
                return Ok(Some(Done::Reused));
            }
            Some(_) => {}
        }
        match self.fault_physical_page::<M, false>(on, tlb, page, access, area)? {
            Outcome::Done(done) => Ok(Some(done)),
            Outcome::Again | Outcome::Exclusive => Ok(None),
        }
    }

    /// Serves a fault of a page alone in an area of physical memory, which allows the access.
    #[inline(never)]
    fn fault_physical_page<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        page: u64,
        access: Access,
        area: &Area,
    ) -> Result<Outcome, FaultError> {
        let attr = Self::attr_of_physical(area, access);
        let leaf = self.tables.leaf(on, page);
        let raw = leaf.as_ref().map_or(0, |leaf| leaf.load());
        if F::is_none(raw) {
            let pfn = PhysAddr(area.offset_at(page)).pfn();
            let new = F::leaf(Level::PTE, pfn, attr);
            on.before_mapped::<F>(attr, pfn, 1);
            if !self.tables.put::<M, SHARED>(on, page, leaf, new)? {
                return Ok(Outcome::Again);
            }
            let linked = self.tables.take_linked::<M>();
            on.became_reachable(Some(tlb), linked, (page, F::PAGE_SHIFT, 1), 0, new);
            return Ok(Outcome::Done(Done::Backed));
        }
        let Ok(leaf) = leaf else { return Ok(Outcome::Again) };
        if F::allows(Level::PTE, raw, access) {
            return Ok(spurious(on, tlb, page, F::PAGE_SHIFT, raw));
        }
        // The page only gains: see `State::fault_present`.
        let gain = |raw| Self::gained(Level::PTE, raw, attr);
        let new = gain(raw);
        on.before_changed::<F>(Level::PTE, raw, new);
        let entry = leaf.lock::<SHARED>(on)?;
        // An entry found without the lock is checked again with it.
        if SHARED && raw != entry.load() {
            return Ok(Outcome::Again);
        }
        let others = Use::private(tlb.is_unloaded());
        let was = change(on, tlb, page, &entry, others, (raw, new), gain)?;
        drop(entry);
        on.became_valid(Some(tlb), page, F::PAGE_SHIFT, 1, was, gain(was));
        Ok(Outcome::Done(Done::Reused))
    }
}
