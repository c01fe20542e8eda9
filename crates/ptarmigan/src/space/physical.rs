//! Maps physical memory into a space: registers of a device, a frame buffer.
use super::SpaceMachine;
use super::area::{Area, AreaFlags};
use super::areas::AreaError;
use super::fault::{Done, FaultError, Outcome, change};
use super::state::{SpaceMut, State};
use crate::addr::{FRAME_SHIFT, PhysAddr, VirtRange};
use crate::format::{Access, Attr, Format, MemoryType};
use crate::machine::On;
use crate::page::Level;
use crate::table::Use;
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
        let range = State::<F>::pages(range)?;
        let bits = F::PHYS_BITS.min(FRAME_SHIFT + u32::BITS);
        let end = at.0.checked_add(range.len()).filter(|end| (end - 1) >> bits == 0);
        if !at.0.is_multiple_of(1 << F::PAGE_SHIFT) || end.is_none() {
            return Err(AreaError::BadMemory(at));
        }
        let flags = AreaFlags(flags.0 & Self::OF_PHYSICAL.0);
        F::expresses(flags.attr::<F>().with(Attr::SPECIAL).with_memory(memory))?;
        let tag = self.state.tag;
        self.put_area(range, Area { tag, ..Area::physical(range, flags, at, memory) })
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
        let extra = if access == Access::Write { Attr::WRITE | Attr::DIRTY } else { Attr::default() };
        let attr = (Self::attr(area.flags) | Attr::SPECIAL | extra).with_memory(area.memory());
        let leaf = self.tables.leaf(on, page);
        let raw = leaf.as_ref().map_or(0, |leaf| leaf.load());
        if F::is_none(raw) {
            let pfn = PhysAddr(area.offset_at(page)).pfn();
            let new = F::leaf(Level::PTE, pfn, attr);
            on.before_mapped::<F>(attr, pfn, 1);
            if !self.tables.put::<M, SHARED>(on, page, leaf, new)? {
                return Ok(Outcome::Again);
            }
            on.became_valid(Some(tlb), page, F::PAGE_SHIFT, 1, 0, new);
            return Ok(Outcome::Done(Done::Backed));
        }
        let Ok(leaf) = leaf else { return Ok(Outcome::Again) };
        if F::allows(Level::PTE, raw, access) {
            // The TLB may still hold the former entry.
            on.became_valid(Some(tlb), page, F::PAGE_SHIFT, 1, raw, raw);
            return Ok(Outcome::Done(Done::Spurious));
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
