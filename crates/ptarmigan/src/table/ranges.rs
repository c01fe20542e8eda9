//! Operations on ranges: each goes down the tree once and touches every table in the range once.
use super::machine::{GatherOf, Machine};
use super::slots::{
    Slots, born, died, died_leaf, each_bit, each_line, each_live, emptied, has_record, is_empty, line_len,
};
use super::tree::Tree;
use crate::addr::{PhysAddr, VirtRange};
use crate::cpu::Pinned;
use crate::format::{Format, Slot};
use crate::frames::{AllocFlags, FrameMeta, NoFrame};
use crate::page::Level;

/// Which tables an unmap gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// Every table that is empty afterwards.
    Empty,
    /// Linux's rule at `munmap` (semantics.md §6): a table goes if the aligned span it maps lies between the end of
    /// the area before (`floor`) and the start of the area after (`ceiling`); then it is empty, too.
    Span {
        /// End of the last area before the range, 0 if there is none.
        floor: u64,
        /// Start of the first area after it, `USER_END` if there is none.
        ceiling: u64,
    },
    /// Only leaf tables that the range covers as a whole (`madvise(MADV_DONTNEED)` since Linux 6.14).
    Covered,
    /// None.
    Never,
}

/// What one way down needs.
struct Unmap<'a, 'g, M: Machine, L> {
    m: &'a M,
    gather: &'a mut GatherOf<'g, M>,
    range: VirtRange,
    free: Free,
    leaf: L,
    private: bool,
    freed: [u32; crate::page::MAX_LEVELS],
}

/// First and last index (inclusive) of a table of `level`, mapping from `base` on, that lie in `range`.
#[inline(always)]
fn indices<F: Format>(level: Level, base: u64, range: VirtRange) -> (usize, usize) {
    let shift = F::shift(level);
    let first = range.start.saturating_sub(base) >> shift;
    let last = (range.end - 1 - base) >> shift;
    (first as usize, (last as usize).min(F::entries(level) - 1))
}

impl<F: Format> Tree<F> {
    /// Clears all entries in `range` and calls `leaf(address, entry)` for each; gives back tables by `free`.
    /// Never allocates.
    pub(crate) fn unmap_with<M: Machine>(
        &mut self,
        m: &M,
        range: VirtRange,
        free: Free,
        gather: &mut GatherOf<'_, M>,
        leaf: impl FnMut(&mut GatherOf<'_, M>, u64, u64),
    ) {
        let range = range.and(VirtRange { start: 0, end: F::USER_END });
        if !range.is_empty() {
            self.unmap_way::<M, _, false>(m, range, free, gather, leaf);
        }
    }

    /// As [`unmap_with`](Self::unmap_with); `ALL` says that the whole tree goes, whatever `range` and `free` are.
    fn unmap_way<M: Machine, L: FnMut(&mut GatherOf<'_, M>, u64, u64), const ALL: bool>(
        &mut self,
        m: &M,
        range: VirtRange,
        free: Free,
        gather: &mut GatherOf<'_, M>,
        leaf: L,
    ) {
        let private = gather.is_private();
        let mut way = Unmap { m, gather, range, free, leaf, private, freed: Default::default() };
        unmap_table::<F, M, L, ALL>(&mut way, self.root(), Self::TOP, 0);
        for (level, n) in way.freed.into_iter().enumerate() {
            if n > 0 {
                self.count(Level(level as u8), -(n as i32));
            }
        }
    }

    /// Clears all entries in `range`, giving the frames to `leaf`, and gives back tables by `free`.
    pub fn unmap_range<M: Machine>(
        &mut self,
        m: &M,
        range: VirtRange,
        free: Free,
        gather: &mut GatherOf<'_, M>,
        mut leaf: impl FnMut(crate::addr::VirtAddr, crate::addr::Pfn, crate::format::Attr),
    ) {
        self.unmap_with(m, range, free, gather, |_, va, raw| {
            leaf(crate::addr::VirtAddr(va), F::frame(raw), F::attr(raw))
        });
    }

    /// Takes the whole tree down: every entry cleared, every table on the gather, the top last.
    pub(crate) fn end_with<M: Machine>(
        mut self,
        m: &M,
        gather: &mut GatherOf<'_, M>,
        leaf: impl FnMut(&mut GatherOf<'_, M>, u64, u64),
    ) {
        let all = VirtRange { start: 0, end: F::USER_END };
        gather.changed(all.start, all.end);
        self.unmap_way::<M, _, true>(m, all, Free::Empty, gather, leaf);
        debug_assert_eq!(self.tables_below_top(), 0, "tables left behind");
        // SAFETY: 1. `self` owned the top and is consumed. 2. its user half has just been emptied. A tree has one top.
        unsafe { gather.top(self.root(), Self::TOP) };
    }

    /// Takes the whole tree down, giving the frames to `leaf`. The gather should be one for the end of the space.
    pub fn end<M: Machine>(
        self,
        m: &M,
        gather: &mut GatherOf<'_, M>,
        mut leaf: impl FnMut(crate::addr::VirtAddr, crate::addr::Pfn, crate::format::Attr),
    ) {
        self.end_with(m, gather, |_, va, raw| leaf(crate::addr::VirtAddr(va), F::frame(raw), F::attr(raw)));
    }

    /// Calls `change(address, entry)` for every leaf in `range` and writes back what it returns where that differs;
    /// entries stay entries. Notes the range at the gather if an entry was changed.
    pub(crate) fn change_with<M: Machine>(
        &mut self,
        m: &M,
        range: VirtRange,
        gather: &mut GatherOf<'_, M>,
        mut change: impl FnMut(u64, u64) -> u64,
    ) {
        let private = gather.is_private();
        self.walk_tables(m, range, &mut |at, base, first, last| {
            let slots = Slots::<F, _>::open(m.window(), at);
            each_live(&slots, Some(m.frames().meta(at.pfn())), Level::PTE, first, last, |index, old| {
                let va = base + ((index as u64) << F::PAGE_SHIFT);
                let new = change(va, old);
                if new != old {
                    debug_assert_ne!(new, 0);
                    let slot = slots.at(Level::PTE, index);
                    if private {
                        slot.store(new);
                    } else {
                        slot.swap(new);
                    }
                    gather.changed(va, va + (1 << F::PAGE_SHIFT));
                }
            });
        });
    }

    /// Gives every mapped page in `range` the attributes that `change` makes of its own.
    pub fn change_range<M: Machine>(
        &mut self,
        m: &M,
        range: VirtRange,
        gather: &mut GatherOf<'_, M>,
        mut change: impl FnMut(crate::format::Attr) -> crate::format::Attr,
    ) {
        self.change_with(m, range, gather, |_, raw| F::leaf(F::frame(raw), change(F::attr(raw))));
    }

    /// Calls `visit(address, frame, attributes)` for every mapped page in `range`, in order.
    pub fn walk<M: Machine>(
        &self,
        m: &M,
        range: VirtRange,
        mut visit: impl FnMut(crate::addr::VirtAddr, crate::addr::Pfn, crate::format::Attr),
    ) {
        self.walk_tables(m, range, &mut |at, base, first, last| {
            let slots = Slots::<F, _>::open(m.window(), at);
            each_live(&slots, Some(m.frames().meta(at.pfn())), Level::PTE, first, last, |index, raw| {
                let va = base + ((index as u64) << F::PAGE_SHIFT);
                visit(crate::addr::VirtAddr(va), F::frame(raw), F::attr(raw));
            });
        });
    }

    /// Calls `visit(table, first address it maps, first index, last index)` for every leaf table in `range`.
    fn walk_tables<M: Machine>(
        &self,
        m: &M,
        range: VirtRange,
        visit: &mut impl FnMut(PhysAddr, u64, usize, usize),
    ) {
        let range = range.and(VirtRange { start: 0, end: F::USER_END });
        if !range.is_empty() {
            walk_table::<F, M>(m, self.root(), Self::TOP, 0, range, visit);
        }
    }

    /// Copies the leaves of `range` into `to`: `each(address, entry)` returns what to leave here and what to put
    /// there (0: nothing). A table is made there for every leaf table here, empty ones too, as fork does in Linux.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]: what was copied until then stays in `to`, for the caller to take down.
    pub(crate) fn copy_with<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        to: &mut Tree<F>,
        range: VirtRange,
        gather: &mut GatherOf<'_, M>,
        mut each: impl FnMut(u64, u64) -> (u64, u64),
    ) -> Result<(), NoFrame> {
        let private = gather.is_private();
        let mut result = Ok(());
        self.walk_tables(m, range, &mut |at, base, first, last| {
            if result.is_err() {
                return;
            }
            let there = match to.leaf_table(m, pin, base, AllocFlags::NORMAL) {
                Ok(there) => there,
                Err(e) => {
                    result = Err(e);
                    return;
                }
            };
            let slots = Slots::<F, _>::open(m.window(), at);
            let copies = Slots::<F, _>::open(m.window(), there);
            let copy_meta = m.frames().meta(there.pfn());
            each_live(&slots, Some(m.frames().meta(at.pfn())), Level::PTE, first, last, |index, old| {
                let va = base + ((index as u64) << F::PAGE_SHIFT);
                let (here, copy) = each(va, old);
                if here != old {
                    let slot = slots.at(Level::PTE, index);
                    if private {
                        slot.store(here);
                    } else {
                        slot.swap(here);
                    }
                    gather.changed(va, va + (1 << F::PAGE_SHIFT));
                }
                if copy != 0 {
                    copies.at(Level::PTE, index).store(copy);
                    born::<F>(copy_meta, Level::PTE, index);
                }
            });
        });
        result
    }

    /// Moves all entries from `range` to the same distances from `to` on. Leaf tables that `range` covers whole are
    /// moved whole, as Linux does, where both ends are aligned alike and nothing is linked at the new place; for others
    /// there is a table at the new place afterwards even if they had no entries, as in Linux too.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if a table at the new place could not be had: then all entries are back where they were, and tables
    /// made at the new place are empty.
    pub(crate) fn move_range<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        range: VirtRange,
        to: u64,
        gather: &mut GatherOf<'_, M>,
    ) -> Result<(), NoFrame> {
        self.move_steps(m, pin, range, to, gather, true).map_err(|(reached, e)| {
            // What has been moved goes back to tables that are still there: that cannot fail.
            let moved = VirtRange { start: to, end: to + (reached - range.start) };
            let back = self.move_steps(m, pin, moved, range.start, gather, false);
            debug_assert!(back.is_ok(), "the way back needs no new table");
            e
        })
    }

    /// Moves step by step; where there are no entries to move, tables are made only if `empty_too`. Fails with the
    /// address that was reached.
    fn move_steps<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        range: VirtRange,
        to: u64,
        gather: &mut GatherOf<'_, M>,
        empty_too: bool,
    ) -> Result<(), (u64, NoFrame)> {
        let span = 1u64 << F::shift(Level(1));
        let mut at = range.start;
        while at < range.end {
            let target = at - range.start + to;
            // As far as both stay within one leaf table.
            let step = (span - at % span).min(span - target % span).min(range.end - at);
            let part = VirtRange { start: at, end: at + step };
            if empty_too || self.has_entries(m, part) {
                self.move_step(m, pin, at, target, step, gather).map_err(|e| (at, e))?;
            }
            at += step;
        }
        Ok(())
    }

    /// Whether anything is mapped in `range`.
    fn has_entries<M: Machine>(&self, m: &M, range: VirtRange) -> bool {
        let mut any = false;
        self.walk(m, range, |_, _, _| any = true);
        any
    }

    /// One step of a move: within one leaf table on either side.
    fn move_step<M: Machine>(
        &mut self,
        m: &M,
        pin: &Pinned<'_>,
        at: u64,
        target: u64,
        len: u64,
        gather: &mut GatherOf<'_, M>,
    ) -> Result<(), NoFrame> {
        let parent_level = Level(1);
        let Some(from) = self.find(m, at, Level::PTE) else { return Ok(()) };
        let private = gather.is_private();
        if len == 1 << F::shift(parent_level) && self.find(m, target, Level::PTE).is_none() {
            // The whole table moves if the table above it at the new place exists or can be had.
            if let Some(above) = self.find(m, target, parent_level) {
                let old_parent = self.find(m, at, parent_level);
                if let Some(old_parent) = old_parent {
                    let index = F::index(parent_level, at);
                    let slots = Slots::<F, _>::open(m.window(), old_parent);
                    let link = slots.at(parent_level, index).swap(0);
                    died(m.frames().meta(old_parent.pfn()), 1, false);
                    let index = F::index(parent_level, target);
                    Slots::<F, _>::open(m.window(), above).at(parent_level, index).store(link);
                    born::<F>(m.frames().meta(above.pfn()), parent_level, index);
                    gather.table_moved(at, at + len);
                    return Ok(());
                }
            }
        }
        let there = self.leaf_table(m, pin, target, AllocFlags::NORMAL)?;
        let slots = Slots::<F, _>::open(m.window(), from);
        let targets = Slots::<F, _>::open(m.window(), there);
        let (meta, target_meta) = (m.frames().meta(from.pfn()), m.frames().meta(there.pfn()));
        let first = F::index(Level::PTE, at);
        let last = first + (len >> F::PAGE_SHIFT) as usize - 1;
        let shift = F::index(Level::PTE, target) as isize - first as isize;
        let mut moved = 0;
        each_live(&slots, Some(meta), Level::PTE, first, last, |index, old| {
            let slot = slots.at(Level::PTE, index);
            let old = if private {
                slot.store(0);
                old
            } else {
                slot.swap(0)
            };
            moved += 1;
            let index = index.wrapping_add_signed(shift);
            targets.at(Level::PTE, index).store(old);
            born::<F>(target_meta, Level::PTE, index);
        });
        if moved > 0 {
            died_leaf(&slots, meta, moved);
            gather.changed(at, at + len);
        }
        Ok(())
    }
}

fn walk_table<F: Format, M: Machine>(
    m: &M,
    at: PhysAddr,
    level: Level,
    base: u64,
    range: VirtRange,
    visit: &mut impl FnMut(PhysAddr, u64, usize, usize),
) {
    let (first, last) = indices::<F>(level, base, range);
    if level == Level::PTE {
        visit(at, base, first, last);
        return;
    }
    let slots = Slots::<F, _>::open(m.window(), at);
    let meta = has_record::<F>(level).then(|| m.frames().meta(at.pfn()));
    each_live(&slots, meta, level, first, last, |index, raw| {
        if let Some(child) = F::linked(level, raw) {
            let base = base + ((index as u64) << F::shift(level));
            walk_table::<F, M>(m, child, Level(level.0 - 1), base, range, visit);
        }
    });
}

/// Unmaps what lies in the table at `at`, of a level above the leaves, and gives back tables below it; whether it is
/// empty now (always false for tops without a record).
fn unmap_table<'a, F: Format, M: Machine, L: FnMut(&mut GatherOf<'_, M>, u64, u64), const ALL: bool>(
    way: &mut Unmap<'a, '_, M, L>,
    at: PhysAddr,
    level: Level,
    base: u64,
) -> Option<&'a FrameMeta> {
    if level == Level(1) {
        // Most of the work is here: with the level known, and the leaves' part in line.
        return unmap_links::<F, M, L, ALL>(way, at, Level(1), base, |way, child, base| {
            unmap_leaves::<F, M, L, ALL>(way, child, base)
        });
    }
    let below = Level(level.0 - 1);
    unmap_links::<F, M, L, ALL>(way, at, level, base, |way, child, base| {
        unmap_table::<F, M, L, ALL>(way, child, below, base)
    })
}

/// Unmaps with `inner` what lies in each table that the one at `at` links; see [`unmap_table`].
#[inline(always)]
fn unmap_links<'a, 'g, F: Format, M: Machine, L: FnMut(&mut GatherOf<'_, M>, u64, u64), const ALL: bool>(
    way: &mut Unmap<'a, 'g, M, L>,
    at: PhysAddr,
    level: Level,
    base: u64,
    inner: impl Fn(&mut Unmap<'a, 'g, M, L>, PhysAddr, u64) -> Option<&'a FrameMeta>,
) -> Option<&'a FrameMeta> {
    let m = way.m;
    let slots = Slots::<F, _>::open(m.window(), at);
    let (first, last) = if ALL {
        (0, if level == Tree::<F>::TOP { F::USER_TOP - 1 } else { F::entries(level) - 1 })
    } else {
        indices::<F>(level, base, way.range)
    };
    let meta = has_record::<F>(level).then(|| m.frames().meta(at.pfn()));
    let below = Level(level.0 - 1);
    // Tables under a top that lives in registers stay until the space ends.
    let stays = F::TOP_IN_REGISTERS && level == Tree::<F>::TOP && !ALL;
    let mut cleared = 0u16;
    each_live(&slots, meta, level, first, last, |index, raw| {
        let Some(child) = F::linked(level, raw) else { return };
        let base = base + ((index as u64) << F::shift(level));
        let empty = inner(way, child, base);
        let end = base + (1 << F::shift(level));
        let goes = match way.free {
            _ if ALL => true,
            Free::Empty => true,
            Free::Span { floor, ceiling } => floor <= base && end <= ceiling,
            Free::Covered => below == Level::PTE && way.range.start <= base && end <= way.range.end,
            Free::Never => false,
        };
        if let Some(record) = empty
            && goes
            && !stays
        {
            slots.at(level, index).store(0);
            cleared += 1;
            // SAFETY: 1. the entry was the table's only link and has just been cleared. 2. its count is 0. 3. `record`
            // is what `inner` found at the child.
            unsafe { way.gather.table(child.pfn(), record, base) };
        }
    });
    way.freed[below.at()] += u32::from(cleared);
    let meta = meta?;
    if cleared > 0 {
        died(meta, cleared, level == Tree::<F>::TOP);
    }
    (meta.live() == 0).then_some(meta)
}

/// Unmaps what lies in the leaf table at `at`; whether it is empty now.
#[inline(always)]
fn unmap_leaves<'a, F: Format, M: Machine, L: FnMut(&mut GatherOf<'_, M>, u64, u64), const ALL: bool>(
    way: &mut Unmap<'a, '_, M, L>,
    at: PhysAddr,
    base: u64,
) -> Option<&'a FrameMeta> {
    let m = way.m;
    let slots = Slots::<F, _>::open(m.window(), at);
    let (first, last) =
        if ALL { (0, F::entries(Level::PTE) - 1) } else { indices::<F>(Level::PTE, base, way.range) };
    let meta = m.frames().meta(at.pfn());
    let private = way.private;
    let address = |index: usize| base + ((index as u64) << F::PAGE_SHIFT);
    let len = line_len::<F>(Level::PTE);
    let (mut cleared, mut lowest, mut highest) = (0, 0, 0);
    each_line(&slots, meta, Level::PTE, first, last, |line, live| {
        if private && live == u64::MAX >> (64 - len) {
            // A full line: no search.
            if cleared == 0 {
                lowest = line;
            }
            highest = line + len - 1;
            cleared += len;
            for index in line..line + len {
                let slot = slots.at(Level::PTE, index);
                let old = slot.load();
                slot.store(0);
                (way.leaf)(way.gather, address(index), old);
            }
            return;
        }
        each_bit(live, |i| {
            let index = line + i;
            let slot = slots.at(Level::PTE, index);
            let old = if private {
                let old = slot.load();
                slot.store(0);
                old
            } else {
                slot.swap(0)
            };
            if cleared == 0 {
                lowest = index;
            }
            highest = index;
            cleared += 1;
            (way.leaf)(way.gather, address(index), old);
        });
    });
    if ALL {
        // `end_with` has said that everything changes; and every entry that was live is cleared.
        debug_assert!(
            !meta.is_counted() || meta.live() as usize == cleared,
            "live entries in lines that were never touched"
        );
        emptied(meta);
        return Some(meta);
    }
    if cleared > 0 {
        way.gather.changed(address(lowest), address(highest + 1));
        died_leaf(&slots, meta, cleared as u16);
    }
    is_empty(&slots, meta).then_some(meta)
}
