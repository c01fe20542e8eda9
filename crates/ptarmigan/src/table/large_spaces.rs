//! Large pages of spaces: put by faults, copied by fork, moved.
//!
//! Anonymous memory has one size of large pages: that of leaves in tables of [level
//! 1](Tables::LARGE). Areas of physical memory have [others](super::large_physical), and groups.
//!
//! Faults put large pages in parallel, under the lock of the table that they are in, as they link
//! tables there. All else, splits among it, is for callers that have the tables for themselves:
//! a split is done once for the 512 pages of a table (x86-64), and what follows for each of them is
//! parallel again.
use super::broken::Broken;
use super::concurrent::TableLock;
use super::group::group_shift;
use super::large::{Relink, has_leaves, size};
use super::node::{Node, Use};
use super::range::Part;
use super::reserve::needed;
use super::tables::{NoTable, Tables};
use crate::addr::VirtRange;
use crate::format::{Entry, Format};
use crate::frames::{AllocFlags, NoFrame};
use crate::gather::Gather;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::tlb::TlbRefusal;
use core::ops::Range;

impl<F: Format> Tables<F> {
    /// Tables whose leaves are the large pages of spaces.
    pub const LARGE: Level = Level(1);

    /// Whether the format has them.
    pub const HAS_LARGE: bool = F::LAYOUT.levels > 1 && has_leaves::<F>(Self::LARGE);

    /// Bytes of one.
    pub fn large_size() -> u64 {
        size::<F>(Self::LARGE)
    }

    /// From now on large pages hold references. Tables that have none yet.
    #[inline]
    pub fn count_large(&mut self) {
        self.is_counted = true;
    }

    /// The entry that may be a large page at `va`, a user address, and what it is; empty if the
    /// table is missing.
    pub fn large_entry<M: Machine>(&self, on: On<'_, M>, va: u64) -> (Entry, u64) {
        let Some(node) = self.find(on, va, Self::LARGE) else { return (Entry::None, 0) };
        let raw = node.load(F::index(Self::LARGE, va));
        (F::entry(Self::LARGE, raw), raw)
    }

    /// Tables that are reserved for splits.
    pub fn reserved(&self) -> u32 {
        self.reserve.tables()
    }

    /// Reserves the tables that a large page may need, as other CPUs may do at the same time.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; the reserve is unchanged then.
    pub fn reserve_large<M: Machine>(&self, on: On<'_, M>) -> Result<(), NoFrame> {
        self.reserve.raise_shared::<F, M>(on, needed::<F>(Self::LARGE))
    }

    /// Gives up what [`reserve_large`](Self::reserve_large) has reserved for a page that was not
    /// put.
    pub fn unreserve_large<M: Machine>(&self, on: On<'_, M>) {
        self.reserve.lower_shared(on, needed::<F>(Self::LARGE));
    }

    /// Whether the table is there that a large page at `va`, a user address, would be in.
    pub fn has_large_table<M: Machine>(&self, on: On<'_, M>, va: u64) -> bool {
        self.find(on, va, Self::LARGE).is_some()
    }

    /// Puts the large page `raw`, for which tables are reserved, at `va`; false if anything is
    /// there. Tables above are made for a caller that has the tables for itself; for others they
    /// [are there](Self::has_large_table).
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if there was no memory for a table above.
    pub fn put_large_page<M: Machine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        va: u64,
        raw: u64,
    ) -> Result<bool, NoFrame> {
        if !SHARED {
            self.upper_table(on, va, Self::LARGE, AllocFlags::NORMAL)?;
        }
        let Some(node) = self.find(on, va, Self::LARGE) else { return Ok(false) };
        // A root without a record has all its entries from the start.
        let _lock = node.record().filter(|_| SHARED).map(|record| TableLock::take_above(on, record));
        let index = F::index(Self::LARGE, va);
        if node.entry(index) != Entry::None {
            return Ok(false);
        }
        node.put(index, raw);
        Ok(true)
    }

    /// Puts the result of `gain`, which allows more, in the place of the large page `seen` at `va`,
    /// and returns it; `None` if another one is there. Formats in which that [needs a
    /// break](Format::EVER_BREAKS) have [another way](Self::change_permissions).
    pub fn gain_large<M: Machine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        va: u64,
        seen: u64,
        others: Use,
        gain: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        let node = self.find(on, va, Self::LARGE)?;
        let _lock = node.record().filter(|_| SHARED).map(|record| TableLock::take_above(on, record));
        let index = F::index(Self::LARGE, va);
        if node.load(index) != seen {
            return None;
        }
        Some(node.replace_seen(index, seen, gain(seen), others, gain).1)
    }

    /// Copies the large pages of `range` into `to`, as [`copy`](Self::copy) does with pages. Those
    /// that lie partly in it are split first. `share(level, entry)` is called once for each.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]: pages copied until then stay in `to`, for the caller to take down.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_large<M: Machine>(
        &mut self,
        to: &mut Tables<F>,
        range: VirtRange,
        gather: &mut Gather<'_, M>,
        protect: bool,
        share: &dyn Fn(Level, u64),
    ) -> Result<(), NoFrame> {
        self.split_ends(range, gather);
        let (on, others) = (gather.on(), Use::private(gather.is_private()));
        if self.may_be_groups() {
            // Those of pages are copied with their tables.
            to.reserve.note_groups();
        }
        let change = |level, raw| if protect { F::write_protected(level, raw) } else { raw };
        let mut copy = |node: &Node<'_, F, M::Window>, indices: Range<usize>, va: u64| {
            let level = node.level();
            debug_assert!(!protect || indices.len() == 1, "groups are in areas that fork shares");
            let n = indices.len() as u32 * needed::<F>(level);
            to.reserve.raise::<F, M>(on, n)?;
            let there = to.table(on, va, level, AllocFlags::NORMAL).map_err(|e| {
                to.reserve.lower::<F, M>(on, n);
                e.not_large()
            })?;
            let first = indices.start;
            for index in indices {
                let va = va + (index - first) as u64 * size::<F>(level);
                let raw = node.load(index);
                share(level, raw);
                let mut copy = change(level, raw);
                if copy != raw {
                    gather.changed_large(va, va + size::<F>(level), F::shift(level));
                    // Bits that an MMU has set since go to the copy, too.
                    (_, copy) = node.replace_seen(index, raw, copy, others, |raw| change(level, raw));
                }
                there.put(F::index(level, va), copy);
            }
            Ok(())
        };
        let mut result = Ok(());
        self.each_part(on, range, &mut |part| match part {
            _ if result.is_err() => {}
            Part::Large { node, index, va, .. } => result = copy(node, index..index + 1, va),
            Part::Group(group) if group.level() > Level::PTE => {
                result = copy(group.node(), group.indices(), group.va());
            }
            Part::Group(_) | Part::Table { .. } => {}
        });
        result
    }

    /// Takes large pages in `range` apart that cannot be large where they are to be moved, from
    /// `to` on. The rest of them is moved whole.
    #[cold]
    #[inline(never)]
    pub(super) fn split_for_move<M: Machine>(
        &mut self,
        range: VirtRange,
        to: u64,
        gather: &mut Gather<'_, M>,
    ) {
        self.split_ends(range, gather);
        let (on, apart) = (gather.on(), range.start ^ to);
        let fit = |shift: u32| apart & ((1 << shift) - 1) == 0;
        let mut levels = (0..=Self::ROOT.0).map(Level);
        if self.may_be_groups()
            && let Some(lowest) = levels.find(|level| !fit(group_shift::<F>(*level)))
        {
            let unfolded = self.unfold_range(range, lowest, gather);
            debug_assert!(unfolded.is_ok(), "the caller may flush");
        }
        let mut va = range.start;
        while va < range.end {
            let mut step = Self::large_size();
            if let Some((level, _)) = self.large_at(on, va) {
                let target = va.wrapping_sub(range.start).wrapping_add(to);
                let fits = |level: &Level| {
                    let entry = |node: Node<'_, F, M::Window>| node.entry(F::index(*level, target));
                    let there = self.find(on, target, *level).map_or(Entry::None, entry);
                    has_leaves::<F>(*level) && fit(F::shift(*level)) && there == Entry::None
                };
                let whole = (1..=level.0).rev().map(Level).find(fits).unwrap_or(Level::PTE);
                if whole < level {
                    let split = self.split_down(va, whole, gather);
                    debug_assert!(split.is_ok(), "the caller may flush");
                }
                step = step.max(size::<F>(whole));
            }
            va = (va | (step - 1)).saturating_add(1);
        }
    }

    /// Moves the large page at `at`, if there is one, to `target`, where nothing is.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if there was no memory for a table; it is where it was then.
    #[cold]
    #[inline(never)]
    pub(super) fn move_large<M: Machine>(
        &mut self,
        at: u64,
        target: u64,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), NoFrame> {
        let on = gather.on();
        let Some((level, _)) = self.large_at(on, at) else { return Ok(()) };
        let there = self.table(on, target, level, AllocFlags::NORMAL).map_err(NoTable::not_large)?;
        let Some(node) = self.find(on, at, level) else { return Ok(()) };
        gather.changed_large(at, at + size::<F>(level), F::shift(level));
        if let Some(old) = node.take(F::index(level, at), Use::private(gather.is_private())) {
            there.put(F::index(level, target), old);
        }
        Ok(())
    }

    /// Puts the large page `new`, of other frames, in the place of the one at `start`, which is
    /// flushed before; `stands()` is called as soon as it is there, before code of the machine that
    /// may unwind.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of a flush of this CPU; the large page is as it was then.
    pub fn replace_large<M: Machine>(
        &mut self,
        start: u64,
        new: u64,
        gather: &mut Gather<'_, M>,
        stands: impl FnOnce(),
    ) -> Result<(), TlbRefusal> {
        let on = gather.on();
        let Some(node) = self.find(on, start, Self::LARGE) else { return Ok(()) };
        let (index, shift) = (F::index(Self::LARGE, start), F::shift(Self::LARGE));
        if gather.is_private() {
            node.exchange_large(index, new, Use::Private);
            stands();
            return Ok(());
        }
        let mut broken = Broken::<F, M::Window, _, 1>::new(|level, va| self.find(on, va, level));
        broken.add(&node, index, start);
        gather.changed_large(start, start + (1 << shift), shift);
        broken.make(|| gather.flush_so_far(), |_, _, _| new, |_, _, _| {})?;
        stands();
        gather.became_valid_leaf(start, shift, 0, new);
        Ok(())
    }

    /// Puts the large page `leaf` in the place of the table at `start`. The table is cut off and
    /// flushed first; then `copy(index, entry)` is called for each page. `stands()` is called as
    /// soon as the large page is there, before code of the machine that may unwind, and then
    /// `gone(entry)` for each page. False, with the table where it was, if `copy` fails.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of a flush of this CPU; the table is where it was then.
    pub fn make_large<M: Machine>(
        &mut self,
        start: u64,
        leaf: u64,
        gather: &mut Gather<'_, M>,
        mut copy: impl FnMut(usize, u64) -> Result<(), NoFrame>,
        stands: impl FnOnce(),
        mut gone: impl FnMut(u64),
    ) -> Result<bool, TlbRefusal> {
        let (on, level) = (gather.on(), Self::LARGE);
        let (index, end) = (F::index(level, start), start + Self::large_size());
        let Some(node) = self.find(on, start, level) else { return Ok(false) };
        let Some(table) = F::linked(level, node.load(index)) else { return Ok(false) };
        on.tlb().may_flush(on.pin())?;
        let child = self.node(on, Level::PTE, table);
        let relink = Relink::<F, M>::cut(&node, index);
        gather.table_moved(start, end);
        gather.flush_so_far()?;
        let mut copied = Ok(());
        child.each(0, F::entries(Level::PTE) - 1, |index, raw| {
            if copied.is_ok() {
                copied = copy(index, raw);
            }
        });
        if copied.is_err() {
            return Ok(false);
        }
        relink.forget();
        node.put(index, leaf);
        stands();
        child.clear(0, F::entries(Level::PTE) - 1, Use::Private, |_, raw| gone(raw));
        self.give_replaced(start, &child, gather);
        gather.became_valid_leaf(start, F::shift(level), 0, leaf);
        Ok(true)
    }
}
