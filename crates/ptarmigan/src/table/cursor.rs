//! A place in a tree that keeps its leaf table open, for runs of operations on neighbouring pages.
use super::machine::{GatherOf, Machine};
use super::slots::{Slots, born, died_leaf};
use super::tree::{MapError, Tree};
use crate::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use crate::cpu::Pinned;
use crate::format::{Attr, Format, Slot};
use crate::frames::AllocFlags;
use crate::page::Level;

/// Moves over a range page by page; walks from the top only when it enters another leaf table.
pub struct Cursor<'t, F: Format, M: Machine> {
    tree: &'t mut Tree<F>,
    m: &'t M,
    pin: &'t Pinned<'t>,
    range: VirtRange,
    va: u64,
    /// The leaf table around `va`, if it has been looked up.
    leaf: Option<PhysAddr>,
}

impl<F: Format> Tree<F> {
    /// A cursor over `range`, at its start; the range is cut to the user's addresses.
    pub fn cursor<'t, M: Machine>(
        &'t mut self,
        m: &'t M,
        pin: &'t Pinned<'t>,
        range: VirtRange,
    ) -> Cursor<'t, F, M> {
        let range = range.and(VirtRange { start: 0, end: F::USER_END });
        Cursor { tree: self, m, pin, range, va: range.start, leaf: None }
    }

    /// Maps the pages that `range` touches to the frames from `first` on. Entries that were not present need no
    /// flush.
    ///
    /// # Errors
    ///
    /// [`MapError`] with everything unmapped again that this call had mapped; tables made on the way are given to
    /// the gather.
    pub fn map_range<M: Machine>(
        &mut self,
        m: &M,
        range: VirtRange,
        first: Pfn,
        attr: Attr,
        gather: &mut GatherOf<'_, M>,
    ) -> Result<(), MapError> {
        if range.end > F::USER_END {
            return Err(MapError::OutOfRange { at: VirtAddr(F::USER_END.max(range.start)) });
        }
        let pin = gather.parts().pin;
        let step = 1u64 << F::PAGE_SHIFT;
        let range = VirtRange { start: range.start & !(step - 1), end: range.end.next_multiple_of(step) };
        let span = 1u64 << F::shift(Level(1));
        let mut raw = F::leaf(first, attr);
        // Frames ascend: the entry grows by the same amount each time.
        let grow = F::leaf(Pfn(1), attr) - F::leaf(Pfn(0), attr);
        let mut va = range.start;
        while va < range.end {
            let table = match self.leaf_table(m, pin, va, AllocFlags::NORMAL) {
                Ok(table) => table,
                Err(e) => {
                    self.roll_back(m, range.start, va, gather);
                    return Err(e.into());
                }
            };
            let meta = m.frames().meta(table.pfn());
            let slots = Slots::<F, _>::open(m.window(), table);
            let n = (span - va % span).min(range.end - va) >> F::PAGE_SHIFT;
            let index = F::index(Level::PTE, va);
            let mut done = 0;
            while done < n as usize {
                let slot = slots.at(Level::PTE, index + done);
                if slot.load() != 0 {
                    break;
                }
                slot.store(raw);
                raw = raw.wrapping_add(grow);
                done += 1;
            }
            if done > 0 {
                if meta.is_counted() {
                    meta.set_live(meta.live() + done as u16);
                }
                touch_lines::<F>(meta, index, index + done - 1);
            }
            va += done as u64 * step;
            if done < n as usize {
                self.roll_back(m, range.start, va, gather);
                return Err(MapError::Occupied { at: VirtAddr(va) });
            }
        }
        Ok(())
    }

    fn roll_back<M: Machine>(&mut self, m: &M, start: u64, end: u64, gather: &mut GatherOf<'_, M>) {
        self.unmap_with(m, VirtRange { start, end }, super::Free::Empty, gather, |_, _, _| {});
    }
}

/// Marks the lines of entries `first..=last` of a leaf table as touched.
fn touch_lines<F: Format>(meta: &crate::frames::FrameMeta, first: usize, last: usize) {
    let shift = super::slots::line_shift::<F>(Level::PTE);
    let (line0, line1) = ((first >> shift) as u32, (last >> shift) as u32);
    for word in line0 / 32..=line1 / 32 {
        let low = if word == line0 / 32 { u32::MAX << (line0 % 32) } else { u32::MAX };
        let high = if word == line1 / 32 { u32::MAX >> (31 - line1 % 32) } else { u32::MAX };
        meta.set_lines(word as usize, meta.lines(word as usize) | (low & high));
    }
}

impl<F: Format, M: Machine> Cursor<'_, F, M> {
    /// Where it is.
    pub fn at(&self) -> VirtAddr {
        VirtAddr(self.va)
    }

    /// Whether the range is done with.
    pub fn is_done(&self) -> bool {
        self.va >= self.range.end
    }

    /// Goes to `va`, within the range.
    pub fn seek(&mut self, va: VirtAddr) {
        if (va.0 ^ self.va) >> F::shift(Level(1)) != 0 {
            self.leaf = None;
        }
        self.va = va.0.clamp(self.range.start, self.range.end);
    }

    /// Goes to the next page.
    pub fn advance(&mut self) {
        self.seek(VirtAddr(self.va + (1 << F::PAGE_SHIFT)));
    }

    fn table(&mut self) -> Option<PhysAddr> {
        if self.is_done() {
            return None;
        }
        if self.leaf.is_none() {
            self.leaf = self.tree.find(self.m, self.va, Level::PTE);
        }
        self.leaf
    }

    /// What is mapped here.
    pub fn query(&mut self) -> Option<(Pfn, Attr)> {
        let table = self.table()?;
        let slots = Slots::<F, _>::open(self.m.window(), table);
        let raw = slots.at(Level::PTE, F::index(Level::PTE, self.va)).load();
        (raw != 0).then(|| (F::frame(raw), F::attr(raw)))
    }

    /// Maps a page here and goes to the next.
    ///
    /// # Errors
    ///
    /// [`MapError`]; nothing has changed then.
    pub fn map(&mut self, pfn: Pfn, attr: Attr, flags: AllocFlags) -> Result<(), MapError> {
        let here = VirtAddr(self.va);
        if self.is_done() {
            return Err(MapError::OutOfRange { at: here });
        }
        let table = match self.table() {
            Some(table) => table,
            None => self.tree.leaf_table(self.m, self.pin, self.va, flags)?,
        };
        self.leaf = Some(table);
        let index = F::index(Level::PTE, self.va);
        let slots = Slots::<F, _>::open(self.m.window(), table);
        let slot = slots.at(Level::PTE, index);
        if slot.load() != 0 {
            return Err(MapError::Occupied { at: here });
        }
        slot.store(F::leaf(pfn, attr));
        born::<F>(self.m.frames().meta(table.pfn()), Level::PTE, index);
        self.advance();
        Ok(())
    }

    /// Changes the attributes of the page here; the old ones. Stays.
    pub fn protect(&mut self, attr: Attr, gather: &mut GatherOf<'_, M>) -> Option<Attr> {
        let table = self.table()?;
        let slots = Slots::<F, _>::open(self.m.window(), table);
        let slot = slots.at(Level::PTE, F::index(Level::PTE, self.va));
        let old = slot.load();
        if old == 0 {
            return None;
        }
        slot.swap(F::leaf(F::frame(old), attr));
        gather.changed(self.va, self.va + (1 << F::PAGE_SHIFT));
        Some(F::attr(old))
    }

    /// Unmaps the page here, keeping its table, and goes to the next.
    pub fn unmap(&mut self, gather: &mut GatherOf<'_, M>) -> Option<(Pfn, Attr)> {
        let table = self.table();
        let va = self.va;
        self.advance();
        let table = table?;
        let slots = Slots::<F, _>::open(self.m.window(), table);
        let slot = slots.at(Level::PTE, F::index(Level::PTE, va));
        if slot.load() == 0 {
            return None;
        }
        let old = slot.swap(0);
        died_leaf(&slots, self.m.frames().meta(table.pfn()), 1);
        gather.changed(va, va + (1 << F::PAGE_SHIFT));
        Some((F::frame(old), F::attr(old)))
    }
}
