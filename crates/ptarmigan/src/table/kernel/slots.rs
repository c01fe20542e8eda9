//! Makes a window of slots of a range of the kernel's half.
//!
//! The leaf tables of the range are made once, and each of their entries is there from then on: not
//! present while its slot is empty. So showing a frame is one store, and no count of entries
//! changes, which CPUs that use other slots of the same table would have to share.
use super::error::KernelRangeError;
use super::owner::Leaving;
use super::range::KernelRange;
use crate::addr::{Pfn, PhysAddr};
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::Refused;
use crate::format::{Attr, Format};
use crate::frames::AllocFlags;
use crate::highmem::{Install, Remove, SlotError, Slots};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::map_error::MapError;
use crate::table::node::{Node, Use};
use crate::window::OpenWindow;
use core::fmt;

/// The reason for which a range cannot become a window of slots; the range maps no page then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsError {
    /// The entries could not be made.
    Map(MapError),
    /// The list of leaf tables does not fit into boot memory.
    Boot(BootMemoryShort),
    /// Slots are the kernel's: [`Attr::USER`] is not allowed.
    ForUser,
}

impl fmt::Display for SlotsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotsError::Map(e) => e.fmt(f),
            SlotsError::Boot(e) => e.fmt(f),
            SlotsError::ForUser => f.write_str("slots are the kernel's: leave Attr::USER out"),
        }
    }
}

impl core::error::Error for SlotsError {}

/// Slots that are the pages of a [`KernelRange`].
pub struct KernelSlots<'k, F: Format, W, M: Machine> {
    range: KernelRange<'k, F, W>,
    machine: &'k M,
    tables: BootSlice<PhysAddr>,
    attr: Attr,
}

impl<'k, F: Format, W: OpenWindow, M: Machine> KernelSlots<'k, F, W, M> {
    /// Makes slots of a range that maps no page. Frames are shown in them with the attributes
    /// `attr`, and with [`Attr::READ`], [`Attr::WRITE`], [`Attr::ACCESSED`] and [`Attr::DIRTY`],
    /// which every slot has.
    ///
    /// If this unwinds, out of the machine's code, the range can be
    /// [claimed](crate::table::KernelMap::claim) as it was left: entries of slots that were made
    /// are in it, and name frames that are nobody's.
    ///
    /// # Errors
    ///
    /// [`SlotsError`], with the range; leaf tables that were made stay.
    pub fn new(
        boot: &mut BootMemory,
        on: On<'k, M>,
        range: KernelRange<'k, F, W>,
        attr: Attr,
    ) -> Result<Self, Refused<KernelRange<'k, F, W>, SlotsError>> {
        if attr.has(Attr::USER) {
            return Err(Refused { value: range, error: SlotsError::ForUser });
        }
        let attr = attr | Attr::READ | Attr::WRITE;
        if let Err(e) = F::expresses(attr) {
            return Err(Refused { value: range, error: SlotsError::Map(e.into()) });
        }
        let attr = attr.noted();
        let entries = F::entries(Level::PTE);
        let (start, pages) = (range.start(), range.len() >> F::PAGE_SHIFT);
        let tables = match boot.take(pages as usize / entries, |_| PhysAddr(0)) {
            Ok(tables) => tables,
            Err(e) => return Err(Refused { value: range, error: SlotsError::Boot(e) }),
        };
        let mut leaving = Leaving::of(range);
        // SAFETY: 1. an entry without permissions allows no access, and `protect` is not called.
        let mapped =
            unsafe { leaving.map(on, start, Pfn(0), pages, attr.without_access(), AllocFlags::NORMAL) };
        let range = leaving.arrive();
        if let Err(e) = mapped {
            return Err(Refused { value: range, error: SlotsError::Map(e) });
        }
        let mut slots = KernelSlots { range, machine: on.machine(), tables, attr };
        let start = start.0;
        for (i, table) in slots.tables.iter_mut().enumerate() {
            let va = start + ((i * entries) as u64) * (1 << F::PAGE_SHIFT);
            *table = slots.range.leaf_table_at(on, va).unwrap_or(PhysAddr(0));
        }
        Ok(slots)
    }

    /// Returns the bytes of boot memory that slots of `bytes` bytes of addresses take at most.
    pub const fn bytes(bytes: u64) -> usize {
        let tables = bytes >> F::PAGE_SHIFT >> F::INDEX_BITS[0];
        BootMemory::bytes::<PhysAddr>(tables as usize)
    }

    /// Gives the range back, which maps no page any more.
    ///
    /// If this unwinds, out of the machine's code, the range can be
    /// [claimed](crate::table::KernelMap::claim) as it was left: some of the slots are in it, and
    /// name the frames that they showed last, which are not the range's.
    ///
    /// # Errors
    ///
    /// [`KernelRangeError`], with the slots, which are unchanged.
    ///
    /// # Safety
    ///
    /// 1. The addresses of the slots must not be used any more.
    #[expect(clippy::result_large_err, reason = "what is refused comes back by value: there is no heap")]
    pub unsafe fn into_range(
        self,
        on: On<'_, M>,
    ) -> Result<KernelRange<'k, F, W>, Refused<Self, KernelRangeError>> {
        let (start, pages) = (self.range.start(), self.range.len() >> F::PAGE_SHIFT);
        let KernelSlots { range, machine, tables, attr } = self;
        let mut leaving = Leaving::of(range);
        let unmapped = leaving.unmap(on, start, pages, |_, _| {});
        let range = leaving.arrive();
        match unmapped {
            Ok(()) => Ok(range),
            Err(error) => Err(Refused { value: KernelSlots { range, machine, tables, attr }, error }),
        }
    }

    /// Changes the entry of slot `index`; returns its new value.
    #[inline]
    fn change(&self, index: usize, others: Use, change: impl Fn(u64) -> u64) -> Result<u64, SlotError> {
        let entries = F::entries(Level::PTE);
        // There is no such slot: as a host says of an argument that is out of range.
        let table = *self.tables.get(index / entries).ok_or(SlotError { index, code: 22 })?;
        let node =
            Node::<F, M::Window>::open(self.machine.window(), self.machine.frames(), Level::PTE, table);
        let old = node.replace(index % entries, others, &change);
        Ok(change(old) | F::cleared(old))
    }
}

// SAFETY: 1. an entry with `Attr::READ` and `Attr::WRITE` maps the frame; its page is the kernel's
// to use, as the range is claimed. 2. each is a page of its own, and the range has one owner. 3.
// the MMU walks the entry at the page's address, and finds it not present after `remove`. 4. a
// range does not change. 5. `change` returns an error for a slot that does not exist. 6. neither
// goes on.
unsafe impl<F: Format, W: OpenWindow + Sync, M: Machine> Slots for KernelSlots<'_, F, W, M> {
    fn len(&self) -> usize {
        (self.range.len() >> F::PAGE_SHIFT) as usize
    }

    #[inline]
    fn install(&self, install: Install) -> Result<u64, SlotError> {
        let (index, frame) = (install.index(), install.frame());
        // No MMU writes to an entry that is not present, and the caller has the slot for itself.
        self.change(index, Use::Private, |_| F::leaf(Level::PTE, frame, self.attr))
    }

    #[inline]
    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        let index = remove.index();
        let hidden = |raw| F::map_attr(Level::PTE, raw, |_| self.attr.without_access());
        self.change(index, Use::Walked, hidden).map(drop)
    }

    #[inline]
    fn address(&self, index: usize) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.page(index) as usize)
    }

    #[inline]
    fn page(&self, index: usize) -> u64 {
        self.range.start().0 + ((index as u64) << F::PAGE_SHIFT)
    }

    fn shift(&self) -> u32 {
        F::PAGE_SHIFT
    }
}
