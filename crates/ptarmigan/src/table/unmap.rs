//! Unmaps: each goes down the tables once, and gives back tables that it leaves empty.
//!
//! ```text
//!             root ──> level 1 ──> leaf table: entries cleared, `leaf` called for each
//!                         │              │ its record counts 0
//!                         └─ link cut <──┘ ──> gather: waits for the flush
//!  unwinds    callback panics ── Ending::drop ──> the rest is taken down, the root last
//! ```
//!
//! # Why
//!
//! A table is empty when its record counts 0, so that no table is searched on the way up. The link
//! is cut before the table goes to the gather: otherwise a walk would find a table that the gather
//! may give back. The end of a tree consumes it, so a callback that panics must not stop it. Half a
//! tree has no owner, and its frames would be lost.
use super::node::{Node, Span, Use};
use super::range::indices;
use super::stale::Stale;
use super::tables::{TableCounts, Tables};
use crate::addr::{PhysAddr, VirtRange};
use crate::format::Format;
use crate::frames::FrameMeta;
use crate::gather::{EndedLeaves, Gather};
use crate::machine::{Machine, On};
use crate::page::Level;
use core::mem::forget;

/// Which tables an unmap gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// Every table that is empty afterwards.
    Empty,
    /// Linux's rule at `munmap` (`free_pgtables`): a table goes if the aligned span it maps lies
    /// between the end of the area before (`floor`) and the start of the area after (`ceiling`);
    /// then it is empty, too.
    Span {
        /// End of the last area before the range, 0 if the range is the first.
        floor: u64,
        /// Start of the first area after it, `USER_END` if the range is the last.
        ceiling: u64,
    },
    /// Only leaf tables that the range covers as a whole (`madvise(MADV_DONTNEED)` since Linux
    /// 6.14).
    Covered,
    /// No table.
    Never,
}

/// The function that an unmap calls for each leaf that it has cleared, with the level of its table,
/// its first address and the entry.
pub(super) type Unmapped<'l, 'a, M> = dyn FnMut(&mut Gather<'a, M>, Level, u64, u64) + 'l;

/// The state of one way down through the tables.
struct Unmap<'a, 'g, M: Machine, L> {
    on: On<'a, M>,
    gather: &'g mut Gather<'a, M>,
    range: VirtRange,
    free: Free,
    leaf: L,
    others: Use,
    counts: &'g TableCounts,
    /// The whole tree goes, if the code is for either.
    all: bool,
}

/// A way for a range.
const RANGE: u8 = 0;
/// A way for a whole tree, whatever `range` and `free` are.
const ALL: u8 = 1;
/// A way for either: one copy of the code, for images with little room.
const EITHER: u8 = 2;

impl<M: Machine, L> Unmap<'_, '_, M, L> {
    /// Whether the whole tree goes.
    #[inline]
    fn is_all<const WAY: u8>(&self) -> bool {
        match WAY {
            RANGE => false,
            ALL => true,
            _ => self.all,
        }
    }
}

/// Tables that are being taken down. If that unwinds, this is dropped, and takes the rest down.
struct Ending<'a, 'g, F: Format, M: Machine, const LARGE: bool> {
    tables: &'g mut Tables<F>,
    gather: &'g mut Gather<'a, M>,
    rest: fn(&mut Gather<'a, M>, Level, u64, u64),
}

impl<F: Format, M: Machine, const LARGE: bool> Ending<'_, '_, F, M, LARGE> {
    #[inline(always)]
    fn give_root(&mut self) {
        debug_assert_eq!(self.tables.below_root(), 0, "tables left behind");
        // SAFETY: 1. `tables` owned the root, and is not used again. 2. its user half has just been
        // emptied. A tree has one root.
        unsafe { self.gather.root(self.tables.root(), Tables::<F>::ROOT) };
        let on = self.gather.on();
        if const { LARGE } && self.tables.may_be_large() {
            let reserve = &mut self.tables.reserve;
            reserve.lower::<F, M>(on, reserve.tables());
        }
        on.tlb().owner_ends(on.pin());
    }
}

impl<F: Format, M: Machine, const LARGE: bool> Drop for Ending<'_, '_, F, M, LARGE> {
    #[cold]
    fn drop(&mut self) {
        let (user, mut rest) = (Tables::<F>::USER, self.rest);
        if const { LARGE } && self.tables.may_be_large() {
            self.tables.unmap_large(user, self.gather, &mut rest);
        }
        self.tables.unmap_way::<M, _, ALL>(user, Free::Empty, self.gather, rest);
        self.give_root();
    }
}

impl<F: Format> Tables<F> {
    /// Clears all entries in `range` and calls `leaf(gather, level, address, entry)` for each;
    /// gives back tables by `free`. Never allocates. For tables without large pages in the range;
    /// see [`unmap_sizes`](Self::unmap_sizes).
    pub fn unmap<'a, M: Machine>(
        &mut self,
        range: VirtRange,
        free: Free,
        gather: &mut Gather<'a, M>,
        leaf: impl FnMut(&mut Gather<'a, M>, Level, u64, u64),
    ) {
        let range = range.and(Self::USER);
        if !range.is_empty() {
            self.unmap_way::<M, _, RANGE>(range, free, gather, leaf);
        }
    }

    /// As [`unmap`](Self::unmap), of a range or of all.
    #[inline]
    fn unmap_way<'a, M: Machine, L: FnMut(&mut Gather<'a, M>, Level, u64, u64), const WAY: u8>(
        &mut self,
        range: VirtRange,
        free: Free,
        gather: &mut Gather<'a, M>,
        mut leaf: L,
    ) {
        let others = Use::private(gather.is_private());
        let (on, counts) = (gather.on(), self.counts());
        let all = WAY == ALL;
        if cfg!(feature = "small") {
            let leaf: &mut Unmapped<'_, 'a, M> = &mut leaf;
            let mut way = Unmap { on, gather, range, free, leaf, others, counts, all };
            unmap_table::<F, M, _, EITHER>(&mut way, self.root(), Self::ROOT, 0);
        } else {
            let mut way = Unmap { on, gather, range, free, leaf, others, counts, all };
            unmap_table::<F, M, L, WAY>(&mut way, self.root(), Self::ROOT, 0);
        }
    }

    /// Takes all tables down, for the owner of the tree that is being consumed: every entry
    /// cleared, every table on the gather, the root last. Nothing else may be asked of the tables
    /// afterwards. The gather is one for the end of a space. If `leaf` unwinds, it is done all the
    /// same, with `rest` in its place. `LARGE` says that there may be large pages.
    ///
    /// They are lent, as they would be copied otherwise.
    pub fn end<'a, M: Machine, const LARGE: bool>(
        &mut self,
        gather: &mut Gather<'a, M>,
        mut leaf: impl FnMut(&mut Gather<'a, M>, Level, u64, u64),
        rest: fn(&mut Gather<'a, M>, Level, u64, u64),
    ) {
        let mut ending = Ending::<_, _, LARGE> { tables: self, gather, rest };
        if const { LARGE } && ending.tables.may_be_large() {
            ending.tables.unmap_large(Self::USER, ending.gather, &mut leaf);
        }
        ending.tables.unmap_way::<M, _, ALL>(Self::USER, Free::Empty, ending.gather, leaf);
        ending.give_root();
        forget(ending);
    }
}

/// Unmaps the pages of the table of `level`, above the leaves, at `at`, and gives back tables below
/// it; its record if it is empty now (never for roots without one).
fn unmap_table<'a, F: Format, M: Machine, L: FnMut(&mut Gather<'a, M>, Level, u64, u64), const WAY: u8>(
    way: &mut Unmap<'a, '_, M, L>,
    at: PhysAddr,
    level: Level,
    base: u64,
) -> Option<&'a FrameMeta> {
    if cfg!(feature = "small") {
        return unmap_links::<F, M, L, WAY>(way, at, level, base, |way, child, base| {
            if level == Level(1) {
                unmap_leaves::<F, M, L, WAY>(way, child, base)
            } else {
                unmap_table::<F, M, L, WAY>(way, child, Level(level.0 - 1), base)
            }
        });
    }
    if level == Level(1) {
        if way.is_all::<WAY>() && way.gather.is_unknown() {
            return end_leaf_tables::<F, M, L>(way, at, base);
        }
        // Most of the work is here: with the level known, and the leaves' part in line.
        return unmap_links::<F, M, L, WAY>(way, at, Level(1), base, |way, child, base| {
            unmap_leaves::<F, M, L, WAY>(way, child, base)
        });
    }
    let below = Level(level.0 - 1);
    unmap_links::<F, M, L, WAY>(way, at, level, base, |way, child, base| {
        unmap_table::<F, M, L, WAY>(way, child, below, base)
    })
}

/// Unmaps with `inner` the pages of each table that the one at `at` links; see [`unmap_table`].
#[inline]
fn unmap_links<
    'a,
    'g,
    F: Format,
    M: Machine,
    L: FnMut(&mut Gather<'a, M>, Level, u64, u64),
    const WAY: u8,
>(
    way: &mut Unmap<'a, 'g, M, L>,
    at: PhysAddr,
    level: Level,
    base: u64,
    inner: impl Fn(&mut Unmap<'a, 'g, M, L>, PhysAddr, u64) -> Option<&'a FrameMeta>,
) -> Option<&'a FrameMeta> {
    let is_root = level == Tables::<F>::ROOT;
    let node = Node::<F, M::Window>::open(way.on.window(), way.on.frames(), level, at);
    let (first, last) = if way.is_all::<WAY>() {
        (0, if is_root { F::USER_ROOT_ENTRIES - 1 } else { F::entries(level) - 1 })
    } else {
        indices::<F>(level, base, way.range)
    };
    let below = Level(level.0 - 1);
    // Tables under a root that lives in registers stay until the space ends.
    let stays = F::ROOT_IN_REGISTERS && is_root && !way.is_all::<WAY>();
    node.each_link(first, last, |link| {
        let base = base + ((link.index as u64) << F::shift(level));
        let empty = inner(way, link.child, base);
        let end = base + (1 << F::shift(level));
        let goes = match way.free {
            _ if way.is_all::<WAY>() => true,
            Free::Empty => true,
            Free::Span { floor, ceiling } => floor <= base && end <= ceiling,
            Free::Covered => below == Level::PTE && way.range.start <= base && end <= way.range.end,
            Free::Never => false,
        };
        if let Some(record) = empty
            && goes
            && !stays
        {
            let child = link.child;
            link.cut();
            way.counts.add(below, -1);
            // SAFETY: 1. the entry was the table's only link and has just been cleared; tree and
            // gather are of one space. 2. its count is 0. 3. `record` is the result of `inner` for
            // the child.
            unsafe { way.gather.table(child.pfn(), record, base, F::shift(level)) };
        }
    });
    let record = node.record()?;
    (record.live_above() == 0).then_some(record)
}

/// Unmaps the pages of the leaf table at `at`; its record if it is empty now.
#[inline]
fn unmap_leaves<'a, F: Format, M: Machine, L: FnMut(&mut Gather<'a, M>, Level, u64, u64), const WAY: u8>(
    way: &mut Unmap<'a, '_, M, L>,
    at: PhysAddr,
    base: u64,
) -> Option<&'a FrameMeta> {
    let node = Node::<F, M::Window>::open(way.on.window(), way.on.frames(), Level::PTE, at);
    let address = |index: usize| base + ((index as u64) << F::PAGE_SHIFT);
    if way.is_all::<WAY>() {
        // Everything has been flushed already.
        node.clear_all(|index, old| (way.leaf)(way.gather, Level::PTE, address(index), old));
        return node.record();
    }
    let (first, last) = indices::<F>(Level::PTE, base, way.range);
    let stale = Stale::new(way.gather, base, F::PAGE_SHIFT, (first, last));
    let cleared = node.clear(first, last, way.others, |index, old| {
        if const { F::KEPT != 0 } {
            stale.gather.changed_entry::<F>(address(index), old);
        }
        (way.leaf)(stale.gather, Level::PTE, address(index), old);
    });
    stale.end(if const { F::KEPT == 0 } { cleared } else { Span::NONE });
    if node.is_empty() { node.record() } else { None }
}

/// The leaf tables of a table of level 1 that go at the end of their space. Dropping it gives them
/// away, and counts them off.
struct Ended<'g, 'a, F: Format, M: Machine> {
    node: Node<'a, F, M::Window>,
    counts: &'g TableCounts,
    leaves: EndedLeaves<'g, 'a, M>,
}

impl<F: Format, M: Machine> Drop for Ended<'_, '_, F, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let n = self.leaves.n();
        if n > 0 {
            self.counts.add(Level::PTE, -(n as i32));
            self.node.unlinked(n);
        }
    }
}

/// As [`unmap_table`], for a table of level 1 of a space that has ended, which no MMU and no reader
/// knows any more. A call, so that the loop has the registers for itself.
#[inline(never)]
fn end_leaf_tables<'a, F: Format, M: Machine, L: FnMut(&mut Gather<'a, M>, Level, u64, u64)>(
    way: &mut Unmap<'a, '_, M, L>,
    at: PhysAddr,
    base: u64,
) -> Option<&'a FrameMeta> {
    let (window, frames) = (way.on.window(), way.on.frames());
    let open = || Node::<F, M::Window>::open(window, frames, Level(1), at);
    // One for the loop, and one for its end, which may be the end of a call that unwinds.
    let (node, last) = (open(), open());
    let is_root = Tables::<F>::ROOT == Level(1);
    let entries = if is_root { F::USER_ROOT_ENTRIES } else { F::entries(Level(1)) };
    let leaf = &mut way.leaf;
    let mut ended = Ended { node: last, counts: way.counts, leaves: EndedLeaves::new(&mut *way.gather) };
    node.each(0, entries - 1, |index, raw| {
        let Some(child) = F::linked(Level(1), raw) else { return };
        let base = base + ((index as u64) << F::shift(Level(1)));
        let record = frames.meta(child.pfn());
        let table = Node::<F, M::Window>::with_record(window, record, Level::PTE, child);
        let Some((only, old)) = table.take_sole() else {
            return end_leaf_table(&mut ended, index, child, record, |gather, i, old| {
                leaf(gather, Level::PTE, base + ((i as u64) << F::PAGE_SHIFT), old);
            });
        };
        node.unlink(index);
        // SAFETY: 1. the entry was the table's only link and has just been cleared; tree and gather
        // are of one space. 2. its only entry has just been taken. 3. looked up above.
        unsafe { ended.leaves.add(child.pfn(), record) };
        // The table is done with, also if this unwinds.
        leaf(ended.leaves.gather(), Level::PTE, base + ((only as u64) << F::PAGE_SHIFT), old);
    });
    drop(ended);
    let record = node.record()?;
    (record.live_above() == 0).then_some(record)
}

/// Takes down one leaf table, the one at `child`, whose record is `record` and which the entry at
/// `index` links, for [`end_leaf_tables`]. A call, so that the way of tables with one entry is
/// short.
#[inline(never)]
fn end_leaf_table<'a, F: Format, M: Machine>(
    ended: &mut Ended<'_, 'a, F, M>,
    index: usize,
    child: PhysAddr,
    record: &'a FrameMeta,
    mut leaf: impl FnMut(&mut Gather<'a, M>, usize, u64),
) {
    let window = ended.leaves.gather().on().window();
    let table = Node::<F, M::Window>::with_record(window, record, Level::PTE, child);
    table.clear_all(|i, old| leaf(ended.leaves.gather(), i, old));
    ended.node.unlink(index);
    // SAFETY: 1. the entry was the table's only link and has just been cleared; tree and gather are
    // of one space. 2. its entries have just been cleared. 3. by the caller, which has looked it
    // up.
    unsafe { ended.leaves.add(child.pfn(), record) };
}
