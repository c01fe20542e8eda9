//! Large pages: leaves in tables above the lowest. They are mapped, split and collapsed here;
//! all other code treats them as it treats pages.
//!
//! ```text
//!  split      reserve ── parts: a table of 512 leaves ── link in the place of the leaf ── flush
//!             (break)    leaf broken off ── flush ── link
//!  collapse   table cut off ── flush ── its entries have all bits that MMUs set ── leaf put
//! ```
//!
//! # Why splits never fail
//!
//! `munmap` of a part of a large page must split it, and a call that frees memory cannot fail for
//! lack of memory. So the tables for the parts are [reserved](super::reserve) when the large page
//! is mapped, where failing is harmless: the caller maps pages instead. Code that unmaps or changes
//! a part of a large page [splits](Tables::split_ends) it first, at most at the two ends of its
//! range, after the [group](super::group) that it is in.
//!
//! # Breaks
//!
//! Where the architecture demands it ([`Format::needs_break`]), a large page is broken off and
//! flushed before the table of its parts takes its place. Elsewhere the table takes it at once, and
//! the flush at the end of the operation has TLBs forget the large page: until then a CPU uses
//! either, and both say the same. Bits that MMUs set in the large page until then go to the parts.
//!
//! A table is always cut off and flushed before a large page takes its place: only then its entries
//! have all the bits that MMUs set in them.
use super::adopt::adopt;
use super::broken::Broken;
use super::group::{SET_BY_MMUS, is_hinted, leaf_shift};
use super::map_error::{CollapseError, MapError};
use super::node::{Above, Node, Use};
use super::range::{indices, is_inside};
use super::reserve::{Reserve, needed};
use super::tables::{NoTable, Tables, descend};
use super::unmap::{Free, Unmapped};
use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr, VirtAddr, VirtRange};
use crate::format::{Attr, Entry, Format, growth};
use crate::frames::AllocFlags;
use crate::gather::Gather;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::tlb::TlbRefusal;
use crate::window::OpenWindow;
use core::ops::Range;

/// Whether tables of `level` may have leaves.
#[inline]
pub(super) const fn has_leaves<F: Format>(level: Level) -> bool {
    level.0 < F::LAYOUT.levels && F::LEAF_LEVELS >> level.0 & 1 != 0
}

/// Bytes that a leaf of a table of `level` maps.
#[inline]
pub(super) fn size<F: Format>(level: Level) -> u64 {
    1 << F::shift(level)
}

/// Whether `pfn` may be the first frame of a leaf of a table of `level`.
#[inline]
pub(crate) fn is_aligned<F: Format>(pfn: Pfn, level: Level) -> bool {
    pfn.0.trailing_zeros() >= F::shift(level) - FRAME_SHIFT
}

/// The leaf for entry `index` of the table that the leaf `raw` of a table of `level` becomes.
fn part<F: Format>(level: Level, raw: u64, index: usize) -> u64 {
    let below = Level(level.0 - 1);
    let frames = 1u32 << (F::shift(below) - FRAME_SHIFT);
    F::leaf(below, Pfn(F::frame(level, raw).0 + index as u32 * frames), F::attr(level, raw))
}

/// Makes a table of the parts of the leaf `raw` of a table of `level`; where it is. `None` if none
/// was reserved: never for a large page that the reserve is of.
pub(super) fn parts<F: Format, M: Machine>(
    on: On<'_, M>,
    reserve: &mut Reserve,
    level: Level,
    raw: u64,
) -> Option<PhysAddr> {
    let below = Level(level.0 - 1);
    let Ok(page) = reserve.draw::<F, M>(on, below) else {
        debug_assert!(false, "the tables of a large page were not reserved");
        return None;
    };
    let (at, record) = adopt(on.frames(), below, page);
    let node = Node::<F, M::Window>::with_record(on.window(), record, below, at);
    // The entries grow evenly (`Format`, 5.).
    let (first, second) = (part::<F>(level, raw, 0), part::<F>(level, raw, 1));
    node.fill_all(first, second.wrapping_sub(first));
    Some(at)
}

/// Puts the table at `at`, which has the parts of the leaf `seen`, in the place of that leaf, at
/// `index` of `node`, where that needs no break. Bits that MMUs have set in it since go to the
/// parts.
pub(super) fn put_parts<F: Format, M: Machine>(
    on: On<'_, M>,
    node: &Node<'_, F, M::Window>,
    index: usize,
    seen: u64,
    at: PhysAddr,
    others: Use,
) {
    let (level, below) = (node.level(), Level(node.level().0 - 1));
    let was = node.exchange_large(index, F::link(level, at), others);
    let set = F::attr(level, was).only(SET_BY_MMUS).without(F::attr(level, seen));
    if set != Attr::default() {
        // An MMU has used the page since.
        let child = Node::<F, M::Window>::open(on.window(), on.frames(), below, at);
        for index in 0..F::entries(below) {
            child.replace(index, others, |raw| F::map_attr(below, raw, |attr| attr | set));
        }
    }
}

/// Large pages of one table that are being cleared, for the gather that has to know of them. If a
/// callback panics, the gather is told of all that may have been.
struct StaleLarge<'a, 'g, M: Machine> {
    gather: &'g mut Gather<'a, M>,
    base: u64,
    shift: u32,
    /// Indices of those that have been cleared, and all between.
    cleared: Range<usize>,
}

impl<M: Machine> Drop for StaleLarge<'_, '_, M> {
    #[inline]
    fn drop(&mut self) {
        if !self.cleared.is_empty() {
            let at = |index: usize| self.base + ((index as u64) << self.shift);
            self.gather.changed_large(at(self.cleared.start), at(self.cleared.end), self.shift);
        }
    }
}

/// Clears the large pages in `range` that the table `at` and those below it map, from `base` on,
/// and calls `leaf` for each. Returns the tables that were reserved for them.
fn clear_large<'a, F: Format, M: Machine, L: FnMut(&mut Gather<'a, M>, Level, u64, u64) + ?Sized>(
    at: (PhysAddr, Level),
    base: u64,
    range: VirtRange,
    gather: &mut Gather<'a, M>,
    leaf: &mut L,
) -> u32 {
    let (on, others, (at, level)) = (gather.on(), Use::private(gather.is_private()), at);
    let node = Node::<F, M::Window>::open(on.window(), on.frames(), level, at);
    let shift = F::shift(level);
    let address = |index: usize| base + ((index as u64) << shift);
    let (first, last) = indices::<F>(level, base, range);
    // At the ends there may be some that could not be split.
    let is_inside = |index| is_inside::<F>(level, address(index), range);
    let inside = first + usize::from(!is_inside(first))..last + usize::from(is_inside(last));
    let (mut spare, mut n) = (0, 0);
    let mut stale = StaleLarge { gather, base, shift, cleared: last + 1..0 };
    node.clear_large((first, last), inside, others, |index, entry| match entry {
        Above::Table(table) if level > Level(1) => {
            let below = (table, Level(level.0 - 1));
            spare += clear_large::<F, M, L>(below, address(index), range, stale.gather, leaf);
        }
        // Pages are cleared on their own way.
        Above::Table(_) => {}
        Above::Cleared(old) => {
            stale.cleared = stale.cleared.start.min(index)..index + 1;
            n += 1;
            leaf(stale.gather, level, address(index), old);
        }
    });
    drop(stale);
    spare + n * needed::<F>(level)
}

impl<F: Format> Tables<F> {
    /// Splits the large pages that lie partly in `range`, and unfolds groups, so that what is done
    /// to the range is done to whole leaves. If the architecture demands breaks, and this CPU is in
    /// the middle of a flush, they stay as they are: callers pass over leaves that are not in the
    /// range as a whole.
    #[inline]
    pub(super) fn split_ends<M: Machine>(&mut self, range: VirtRange, gather: &mut Gather<'_, M>) {
        if self.may_be_large() {
            self.split_around(range, gather);
        }
    }

    #[cold]
    #[inline(never)]
    fn split_around<M: Machine>(&mut self, range: VirtRange, gather: &mut Gather<'_, M>) {
        let range = range.and(Self::USER);
        if range.is_empty() {
            return;
        }
        let page = (1 << F::PAGE_SHIFT) - 1;
        for end in [range.start & !page, (range.end + page) & !page] {
            while let Some((level, raw)) = self.lookup(gather.on(), end) {
                if end & ((1 << leaf_shift::<F>(level, raw)) - 1) == 0 {
                    break;
                }
                let smaller = if is_hinted::<F>(level, raw) {
                    self.unfold(end, level, gather)
                } else {
                    self.split_leaf(end, level, gather)
                };
                if smaller.is_err() {
                    break;
                }
            }
        }
    }

    /// Clears all entries in `range` as [`unmap`](Self::unmap) does, large pages among them. Those
    /// that lie partly in the range are split first, for which tables are reserved; no other memory
    /// is allocated.
    pub fn unmap_sizes<'a, M: Machine>(
        &mut self,
        range: VirtRange,
        free: Free,
        gather: &mut Gather<'a, M>,
        mut leaf: impl FnMut(&mut Gather<'a, M>, Level, u64, u64),
    ) {
        let range = if self.may_be_large() { self.unmap_large(range, gather, &mut leaf) } else { range };
        self.unmap(range, free, gather, leaf);
    }

    /// Clears the large pages and groups in `range`, after those that lie partly in it have been
    /// split or unfolded, and calls `leaf(gather, level, address, entry)` for each. Returns the
    /// range without groups at its ends that could not be unfolded.
    #[cold]
    #[inline(never)]
    pub(super) fn unmap_large<'a, M: Machine>(
        &mut self,
        range: VirtRange,
        gather: &mut Gather<'a, M>,
        leaf: &mut impl FnMut(&mut Gather<'a, M>, Level, u64, u64),
    ) -> VirtRange {
        self.split_ends(range, gather);
        let range = self.without_parts_of_groups(gather.on(), range.and(Self::USER));
        if range.is_empty() {
            return range;
        }
        if self.may_be_groups() {
            let spare = self.clear_groups(range, gather, leaf);
            self.reserve.lower::<F, M>(gather.on(), spare);
        }
        let root = (self.root(), Self::ROOT);
        // If a callback unwinds, they stay reserved until the tree ends.
        let spare = if cfg!(feature = "small") {
            let leaf: &mut Unmapped<'_, 'a, M> = leaf;
            clear_large::<F, M, _>(root, 0, range, gather, leaf)
        } else {
            clear_large::<F, M, _>(root, 0, range, gather, leaf)
        };
        self.reserve.lower::<F, M>(gather.on(), spare);
        range
    }

    /// Splits the leaf that maps `va` until it is one of a table of `to`, or lower, and unfolds a
    /// group of leaves of `to`.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if a break is needed in the middle of a flush of this CPU; the pages are
    /// mapped as they were.
    #[cold]
    pub fn split_down<M: Machine>(
        &mut self,
        va: u64,
        to: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), TlbRefusal> {
        while let Some((level, raw)) = self.lookup(gather.on(), va) {
            if level == to && is_hinted::<F>(level, raw) {
                return self.unfold(va, level, gather);
            }
            if level <= to {
                break;
            }
            self.split(va, level, gather)?;
        }
        Ok(())
    }

    /// Puts a table of its parts in the place of the large page that maps `va`, a leaf of a table
    /// of `level`.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if that needs a break in the middle of a flush of this CPU; it is unchanged
    /// then.
    #[inline(never)]
    pub(super) fn split<M: Machine>(
        &mut self,
        va: u64,
        level: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), TlbRefusal> {
        if self.may_be_groups() {
            // Before the other part, whose stack would be there meanwhile.
            self.unfold(va, level, gather)?;
        }
        self.split_leaf(va, level, gather)
    }

    /// As [`split`](Self::split), of a large page that is in no group.
    #[inline(never)]
    fn split_leaf<M: Machine>(
        &mut self,
        va: u64,
        level: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), TlbRefusal> {
        let on = gather.on();
        let start = va & !(size::<F>(level) - 1);
        let Some(node) = self.find(on, va, level) else { return Ok(()) };
        let (below, index) = (Level(level.0 - 1), F::index(level, va));
        let others = Use::private(gather.is_private());
        let link = F::link(level, PhysAddr(0));
        if const { F::EVER_BREAKS } && others == Use::Walked && F::needs_break(level, node.load(index), link)
        {
            on.tlb().may_flush(on.pin())?;
            let Tables { root, count, reserve, .. } = self;
            let mut broken = Broken::<F, M::Window, _, 1>::new(|to, va| {
                let end = descend::<F, _>(on.window(), *root, Self::ROOT, va, to);
                (end.level == to).then(|| Node::open(on.window(), on.frames(), to, end.at))
            });
            let (seen, mut is_split) = (broken.add(&node, index, start), false);
            gather.changed_large(start, start + size::<F>(level), F::shift(level));
            broken.make(
                || gather.flush_so_far(),
                |_, _, was| {
                    let Some(at) = parts::<F, M>(on, reserve, level, was) else { return was };
                    count.add(below, 1);
                    is_split = true;
                    F::link(level, at)
                },
                |_, _, _| {},
            )?;
            drop(broken);
            if is_split {
                self.count_pages(on, level, seen);
            }
            return Ok(());
        }
        let seen = node.load(index);
        let Some(at) = parts::<F, M>(on, &mut self.reserve, level, seen) else { return Ok(()) };
        self.add(below, 1);
        gather.changed_large(start, start + size::<F>(level), F::shift(level));
        put_parts::<F, M>(on, &node, index, seen, at, others);
        self.count_pages(on, level, seen);
        Ok(())
    }

    /// Gives the parts of the large page `raw`, which has been split, references of their own, if
    /// these tables hold any.
    fn count_pages<M: Machine>(&self, on: On<'_, M>, level: Level, raw: u64) {
        if !self.is_counted || F::is_special(level, raw) {
            return;
        }
        debug_assert_eq!(level, Level(1), "the parts are pages");
        // SAFETY: 1. and 2. the large page held a reference to the whole of a large data frame of
        // this machine (`is_counted`), and each of its parts holds one to its page instead.
        unsafe {
            on.data().give_pages_counts(on.frames(), F::frame(level, raw), |done| {
                on.tlb().wait_until(on.pin(), done)
            });
        }
    }
}

/// A link that has been taken out, and comes back when this is dropped.
pub(super) struct Relink<'n, 'w, F: Format, M: Machine>
where
    M::Window: 'w,
{
    node: &'n Node<'w, F, M::Window>,
    index: usize,
    link: u64,
}

impl<'n, 'w, F: Format, M: Machine> Relink<'n, 'w, F, M> {
    /// Cuts the link at `index` of `node`.
    pub fn cut(node: &'n Node<'w, F, M::Window>, index: usize) -> Self {
        let mut link = 0;
        node.each_link(index, index, |found| {
            link = F::link(node.level(), found.child);
            found.cut();
        });
        Relink { node, index, link }
    }

    /// Leaves it out.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl<F: Format, M: Machine> Drop for Relink<'_, '_, F, M> {
    #[cold]
    fn drop(&mut self) {
        self.node.put(self.index, self.link);
    }
}

/// Checks that the entries of `node` are the parts of one large page of `level`, but for bits that
/// MMUs set; returns the leaf for it, with all of these bits.
///
/// # Errors
///
/// The index of the first entry that is not.
pub(super) fn united<F: Format, M: Machine>(
    node: &Node<'_, F, M::Window>,
    level: Level,
) -> Result<u64, usize> {
    let below = node.level();
    let load = |index| F::unhinted(below, index, node.load(index));
    let first = load(0);
    let is_leaf = |raw| F::entry(below, raw) == Entry::Leaf;
    if !is_leaf(first) || !is_aligned::<F>(F::frame(below, first), level) {
        return Err(0);
    }
    let mut attr = F::attr(below, first);
    let whole = F::leaf(level, F::frame(below, first), attr);
    for index in 1..F::entries(below) {
        let raw = load(index);
        let own = F::frame(below, part::<F>(level, whole, index));
        if !is_leaf(raw)
            || F::frame(below, raw) != own
            || F::attr(below, raw).without(SET_BY_MMUS) != attr.without(SET_BY_MMUS)
        {
            return Err(index);
        }
        attr = attr | F::attr(below, raw).only(SET_BY_MMUS);
    }
    Ok(F::leaf(level, F::frame(below, first), attr))
}

impl<F: Format> Tables<F> {
    /// The table of `level` that maps `va`, a user address, made with those above it if it does not
    /// exist; for a caller that has the tables for itself.
    pub(super) fn table<'a, M: Machine>(
        &self,
        on: On<'a, M>,
        va: u64,
        level: Level,
        flags: AllocFlags,
    ) -> Result<Node<'a, F, M::Window>, NoTable> {
        let end = descend::<F, _>(on.window(), self.root(), Self::ROOT, va, level);
        if end.level > level {
            if self.is_large_at(on, va) {
                return Err(NoTable::LARGE);
            }
            self.upper_table(on, va, level, flags)?;
        }
        self.find(on, va, level).ok_or(NoTable::LARGE)
    }

    /// Whether a table above the leaves, by its record, has no entries. Roots may have no record.
    #[inline]
    fn is_unused<W: OpenWindow>(node: &Node<'_, F, W>) -> bool {
        node.level() != Self::ROOT && node.record().is_some_and(|record| record.live() == 0)
    }

    /// Makes room for `n` large pages, leaves of the table of `level` that maps `va`: gives back
    /// tables in their place that have no pages.
    ///
    /// # Errors
    ///
    /// [`MapError::Occupied`] if something is mapped there, and [`MapError::Refused`] if TLBs
    /// cannot be made to forget the tables now.
    fn make_room<M: Machine, const RANGE: bool>(
        &mut self,
        va: u64,
        level: Level,
        n: usize,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), MapError> {
        let on = gather.on();
        let from = F::index(level, va);
        let Some(node) = self.find(on, va, level) else { return Ok(()) };
        if Self::is_unused(&node) || (from..from + n).all(|index| F::is_none(node.load(index))) {
            return Ok(());
        }
        let range = VirtRange::ordered(va, va + n as u64 * size::<F>(level));
        let mut first = None;
        self.walk_leaves(on, range, |_, va, _| first = first.or(Some(va)));
        if let Some(va) = first {
            return Err(MapError::Occupied { at: VirtAddr(va) });
        }
        on.tlb().may_flush(on.pin())?;
        self.unmap(range, Free::Empty, gather, |_, _, _, _| {});
        if !gather.is_private() {
            gather.flush_so_far()?;
        }
        Ok(())
    }

    /// Maps `n` large pages, leaves of the table of `level` that maps `va`, to the frames from
    /// `first` on; with the `hint`, whole groups. Their tables have been reserved. On failure the
    /// tables are as before. `RANGE` as for `put_stretch`.
    pub(super) fn put_large<M: Machine, const RANGE: bool>(
        &mut self,
        at: (u64, Level),
        (n, hint): (usize, bool),
        first: Pfn,
        attr: Attr,
        flags: AllocFlags,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), MapError> {
        let (on, (va, level)) = (gather.on(), at);
        self.make_room::<M, RANGE>(va, level, n, gather)?;
        let node = match self.table(on, va, level, flags) {
            Ok(node) => node,
            Err(e) => {
                let e = MapError::no_table(e, VirtAddr(va));
                if matches!(e, MapError::NoFrame(_)) {
                    // Tables may have been made above the one that could not be had.
                    let range = VirtRange::ordered(va, va + size::<F>(level));
                    self.unmap(range, Free::Empty, gather, |_, _, _, _| {});
                }
                return Err(e);
            }
        };
        let from = F::index(level, va);
        let pages = 1u64 << (F::shift(level) - F::PAGE_SHIFT);
        on.before_mapped::<F>(attr, first, pages * n as u64);
        let mut next = F::leaf(level, first, attr);
        let step = 1u32 << (F::shift(level) - FRAME_SHIFT);
        let grow = growth::<F>(level, attr);
        if hint {
            self.reserve.note_groups();
        }
        if !hint && n == F::entries(level) && Self::is_unused(&node) {
            node.fill_all(next, grow);
        } else {
            let mut done = 0;
            node.put_run(from, n, || {
                let this = next;
                debug_assert_eq!(this, F::leaf(level, Pfn(first.0 + done * step), attr), "of {}", F::NAME);
                next = next.wrapping_add(grow);
                done += 1;
                if hint { F::hinted(level, this) } else { this }
            });
        }
        if const { <M::Shootdown as crate::tlb::Mmu>::NEEDS_ENTRY_VALID } {
            for index in from..from + n {
                let at = va + (index - from) as u64 * size::<F>(level);
                gather.became_reachable_leaf(self.take_linked::<M>(), at, F::shift(level), node.load(index));
            }
        }
        Ok(())
    }

    /// Puts a large page of `level` in the place of the table of its parts, at `start`.
    pub(super) fn collapse<M: Machine>(
        &mut self,
        start: u64,
        level: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), CollapseError> {
        let (on, below) = (gather.on(), Level(level.0 - 1));
        let at = |index: usize| VirtAddr(start + index as u64 * size::<F>(below));
        if self.large_at(on, start).is_some_and(|(found, _)| found >= level) {
            return Ok(());
        }
        let differs = CollapseError::Differs { at: VirtAddr(start) };
        let Some(node) = self.find(on, start, level) else { return Err(differs) };
        let index = F::index(level, start);
        let Some(table) = F::linked(level, node.load(index)) else { return Err(differs) };
        let child = self.node(on, below, table);
        let mut leaf = united::<F, M>(&child, level).map_err(|i| CollapseError::Differs { at: at(i) })?;
        on.tlb().may_flush(on.pin())?;
        self.reserve.raise::<F, M>(on, 1)?;
        let others = Use::private(gather.is_private());
        if others == Use::Walked {
            // Until the flush, MMUs set bits in the entries of the table.
            let relink = Relink::<F, M>::cut(&node, index);
            gather.table_moved(start, start + size::<F>(level));
            gather.flush_so_far()?;
            if let Ok(now) = united::<F, M>(&child, level) {
                leaf = now;
            }
            relink.forget();
            node.put(index, leaf);
        } else {
            node.exchange_large(index, leaf, others);
        }
        child.clear(0, F::entries(below) - 1, Use::Private, |_, _| {});
        self.give_replaced(start, &child, gather);
        gather.became_valid_leaf(start, F::shift(level), 0, leaf);
        Ok(())
    }

    /// Gives the table back whose place a large page at `start` has taken.
    pub(super) fn give_replaced<M: Machine>(
        &self,
        start: u64,
        table: &Node<'_, F, M::Window>,
        gather: &mut Gather<'_, M>,
    ) {
        self.add(table.level(), -1);
        if let Some(record) = table.record() {
            let shift = F::shift(Level(table.level().0 + 1));
            // SAFETY: 1. the entry that was the table's only link shows a large page now; tree and
            // gather are of one space. 2. all its entries have just been cleared. 3. `record` is
            // its own.
            unsafe { gather.table(table.at().pfn(), record, start, shift) };
        }
    }
}
