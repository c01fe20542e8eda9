//! Walks, copies and moves of ranges: each goes down the tables once and touches every
//! table in the range once.
use super::group::{Group, has_groups, is_hinted};
use super::mapped::Mapped;
use super::node::{Live, Node, Span, Use};
use super::stale::Stale;
use super::tables::{NoTable, Tables, descend};
use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr, VirtAddr, VirtRange};
use crate::format::{Attr, Format};
use crate::frames::{AllocFlags, Frames, NoFrame};
use crate::gather::Gather;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::window::OpenWindow;

/// First and last index (inclusive) of a table of `level`, mapping from `base` on, that lie in
/// `range`.
#[inline]
pub(super) fn indices<F: Format>(level: Level, base: u64, range: VirtRange) -> (usize, usize) {
    let shift = F::shift(level);
    let first = range.start.saturating_sub(base) >> shift;
    let last = (range.end - 1 - base) >> shift;
    (first as usize, (last as usize).min(F::entries(level) - 1))
}

/// Whether the leaf of a table of `level` at `va` lies in `range`, of whole pages or not.
#[inline]
pub(super) fn is_inside<F: Format>(level: Level, va: u64, range: VirtRange) -> bool {
    let page = (1 << F::PAGE_SHIFT) - 1;
    range.start & !page <= va && va + (1 << F::shift(level)) <= (range.end + page) & !page
}

impl<F: Format> Tables<F> {
    /// Calls `visit(address, frame, attributes)` for every mapped page in `range`, in order.
    pub fn walk<M: Machine>(
        &self,
        on: On<'_, M>,
        range: VirtRange,
        mut visit: impl FnMut(VirtAddr, Pfn, Attr),
    ) {
        let range = range.and(Self::USER);
        self.walk_leaves(on, range, |level, va, raw| {
            if level == Level::PTE && !is_hinted::<F>(level, raw) {
                visit(VirtAddr(va), F::frame(level, raw), F::attr(level, raw));
                return;
            }
            let leaf = Mapped::of::<F>(level, va, raw);
            let part = leaf.range().and(range);
            let first = part.start & !((1 << F::PAGE_SHIFT) - 1);
            for page in (first..part.end).step_by(1 << F::PAGE_SHIFT) {
                let frame = Pfn(leaf.frame.0 + ((page - va) >> FRAME_SHIFT) as u32);
                visit(VirtAddr(page), frame, leaf.attr);
            }
        });
    }

    /// Calls `visit` for every leaf table, every large page and every group in `range`, in order.
    #[inline]
    pub(super) fn each_part<M: Machine>(
        &self,
        on: On<'_, M>,
        range: VirtRange,
        visit: &mut impl FnMut(Part<'_, '_, F, M::Window>),
    ) {
        if self.may_be_large() {
            let range = range.and(Self::USER);
            if !range.is_empty() {
                let groups = self.may_be_groups();
                let (at, level, base) = around::<F, M>(on, self.root(), range);
                walk_mixed::<F, M>(on, at, level, base, range, groups, visit);
            }
            return;
        }
        each_leaf_table::<F, M>(on, self.root(), range, &mut |node, base, first, last| {
            visit(Part::Table { node, base, first, last });
        });
    }

    /// Calls `visit(level, first address, entry)` for every leaf that maps a part of `range`, in
    /// order; once for a group, with the first entry and the bits of all.
    #[inline]
    pub fn walk_leaves<M: Machine>(
        &self,
        on: On<'_, M>,
        range: VirtRange,
        mut visit: impl FnMut(Level, u64, u64),
    ) {
        self.each_part(on, range, &mut |part| match part {
            Part::Table { node, base, first, last } => node.each(first, last, |index, raw| {
                visit(Level::PTE, base + ((index as u64) << F::PAGE_SHIFT), raw);
            }),
            Part::Large { node, va, raw, .. } => visit(node.level(), va, raw),
            Part::Group(group) => {
                visit(group.level(), group.va(), F::hinted(group.level(), group.leaf()));
            }
        });
    }

    /// Calls `visit(first address it maps, table, entries)` for every leaf table that maps a part
    /// of `range`, in order. `entries` are all entries of the table.
    pub fn leaf_tables<M: Machine>(
        &self,
        on: On<'_, M>,
        range: VirtRange,
        mut visit: impl FnMut(VirtAddr, PhysAddr, u32),
    ) {
        each_leaf_table::<F, M>(on, self.root(), range, &mut |node, base, _, _| {
            let mut entries = 0;
            node.each_line(0, F::entries(Level::PTE) - 1, |_, live| entries += live.count_ones());
            visit(VirtAddr(base), node.at(), entries);
        });
    }

    /// Copies the leaves of `range` into `to`. For each, `share(frames, level, entry)` is called
    /// once; then the entry loses its write permission on both sides, if `protect`. A table is made
    /// there for every table here, of any level, empty ones too, as fork does in Linux.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]: pages copied until then stay in `to`, for the caller to take down.
    pub fn copy<M: Machine>(
        &mut self,
        to: &mut Tables<F>,
        range: VirtRange,
        gather: &mut Gather<'_, M>,
        protect: bool,
        share: impl Fn(&Frames, Level, u64),
    ) -> Result<(), NoFrame> {
        if self.may_be_large() {
            let frames = gather.on().frames();
            let share: &dyn Fn(Level, u64) = &|level, raw| share(frames, level, raw);
            self.copy_large(to, range, gather, protect, share)?;
        }
        let others = Use::private(gather.is_private());
        let on = gather.on();
        let range = range.and(Self::USER);
        if range.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        let mut made = Ok(());
        // `to` is reached through a shared reference by both.
        let to = &*to;
        let upper = &mut |level, base: u64| {
            if made.is_ok() {
                made = to.upper_table(on, base, level, AllocFlags::NORMAL);
            }
        };
        let (at, level, base) = around::<F, M>(on, self.root(), range);
        walk_table::<F, M>(
            on,
            at,
            level,
            base,
            range,
            &mut |node, base, first, last| {
                if result.is_err() {
                    return;
                }
                let there = match to.leaf_table::<M, false>(on, base, AllocFlags::NORMAL) {
                    Ok(there) => there,
                    Err(e) => {
                        result = Err(e.not_large());
                        return;
                    }
                };
                // Out of the closure's environment, where each entry would load them again.
                let (frames, others, protect) = (on.frames(), others, protect);
                let change = |raw| if protect { F::write_protected(Level::PTE, raw) } else { raw };
                let stale = Stale::new(gather, base, F::PAGE_SHIFT, (first, last));
                let mut changed = Span::NONE;
                node.each_line(first, last, |line, live| {
                    let mut differ: Live = 0;
                    there.put_line(line, live, |index| {
                        let raw = node.load(index);
                        share(frames, Level::PTE, raw);
                        let mut copy = change(raw);
                        if copy != raw {
                            if const { F::KEPT == 0 } {
                                differ |= 1 << (index - line);
                            }
                            // Bits that an MMU has set since go to the copy, too.
                            (_, copy) = node.replace_seen(index, raw, copy, others, change);
                            if const { F::KEPT != 0 } {
                                let va = base + ((index as u64) << F::PAGE_SHIFT);
                                stale.gather.changed_entry::<F>(va, copy);
                            }
                        }
                        copy & !F::KEPT
                    });
                    if const { F::KEPT == 0 } {
                        changed.add(line, differ);
                    }
                });
                stale.end(changed);
            },
            upper,
        );
        result.and(made)
    }

    /// Moves all entries from `range` to the same distances from `to` on. Leaf tables that `range`
    /// covers whole are moved whole, as Linux does, where both ends are aligned alike and the new
    /// place is empty; for others there is a table at the new place afterwards even if they had no
    /// entries, as in Linux too.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if a table at the new place could not be had: then all entries are back where
    /// they were, and tables made at the new place are empty.
    pub fn relocate<M: Machine>(
        &mut self,
        range: VirtRange,
        to: u64,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), NoFrame> {
        if self.may_be_large() {
            self.split_for_move(range, to, gather);
        }
        self.relocate_steps(range, to, gather, true).map_err(|(reached, e)| {
            // Moved pages go back to tables that are still there: that cannot fail.
            let moved = VirtRange::ordered(to, to + (reached - range.start));
            let back = self.relocate_steps(moved, range.start, gather, false);
            debug_assert!(back.is_ok(), "the way back needs no new table");
            e
        })
    }

    /// Moves step by step; where there are no entries to move, tables are made only if `empty_too`.
    /// Fails with the address that was reached.
    fn relocate_steps<M: Machine>(
        &mut self,
        range: VirtRange,
        to: u64,
        gather: &mut Gather<'_, M>,
        empty_too: bool,
    ) -> Result<(), (u64, NoFrame)> {
        let span = 1u64 << F::shift(Level(1));
        let mut at = range.start;
        while at < range.end {
            let target = at - range.start + to;
            // As far as both stay within one leaf table.
            let step = (span - at % span).min(span - target % span).min(range.end - at);
            let part = VirtRange::ordered(at, at + step);
            if empty_too || self.has_entries(gather.on(), part) {
                self.relocate_step(part, target, gather).map_err(|e| (at, e))?;
            }
            at += step;
        }
        Ok(())
    }

    /// Whether anything is mapped in `range`.
    fn has_entries<M: Machine>(&self, on: On<'_, M>, range: VirtRange) -> bool {
        let mut any = false;
        self.walk(on, range, |_, _, _| any = true);
        any
    }

    /// One step of a move: within one leaf table on either side.
    fn relocate_step<M: Machine>(
        &mut self,
        range: VirtRange,
        target: u64,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), NoFrame> {
        let above = Level(1);
        let on = gather.on();
        let at = range.start;
        let Some(from) = self.find(on, at, Level::PTE) else {
            return if self.may_be_large() { self.move_large(at, target, gather) } else { Ok(()) };
        };
        // Where pages are hashed, entries are moved one by one. Code that fills the hash table may
        // have found the table at the old place: it must find it empty.
        let whole = F::KEPT == 0
            && range.len() == 1 << F::shift(above)
            && self.find(on, target, Level::PTE).is_none();
        // The whole table moves. A table above it at the new place is made first, as Linux does it.
        if whole && self.find(on, target, above).is_none() {
            self.upper_table(on, target, above, AllocFlags::NORMAL)?;
        }
        if whole
            && let Some(new) = self.find(on, target, above)
            && let Some(old) = self.find(on, at, above)
        {
            let index = F::index(above, at);
            old.each_link(index, index, |link| link.cut());
            new.put(F::index(above, target), F::link(above, from.at()));
            gather.table_moved(at, range.end);
            return Ok(());
        }
        let there = self.leaf_table::<M, false>(on, target, AllocFlags::NORMAL);
        let there = there.map_err(NoTable::not_large)?;
        let others = Use::private(gather.is_private());
        let first = F::index(Level::PTE, at);
        let last = first + (range.len() >> F::PAGE_SHIFT) as usize - 1;
        let shift = F::index(Level::PTE, target) as isize - first as isize;
        let mut marked = u32::MAX;
        let moved = from.clear(first, last, others, |index, old| {
            let to = index.wrapping_add_signed(shift);
            let new = old & !F::KEPT;
            // Most entries come into the line of the one before.
            let line = there.line_of(to);
            if line != marked {
                there.mark(line);
                marked = line;
            }
            there.put_unmarked(to, new);
            if const { F::KEPT != 0 } {
                gather.changed_entry::<F>(at + (((index - first) as u64) << F::PAGE_SHIFT), old);
            }
        });
        if F::KEPT == 0 && moved.ends().is_some() {
            gather.changed_pages(at, range.end);
        }
        Ok(())
    }
}

/// Calls `visit(table, first address it maps, first index, last index)` for every leaf table in
/// `range`, below the root at `root`.
pub(super) fn each_leaf_table<F: Format, M: Machine>(
    on: On<'_, M>,
    root: PhysAddr,
    range: VirtRange,
    visit: &mut impl FnMut(&Node<'_, F, M::Window>, u64, usize, usize),
) {
    let range = range.and(Tables::<F>::USER);
    if range.is_empty() {
        return;
    }
    let (at, level, base) = around::<F, M>(on, root, range);
    if cfg!(feature = "small") {
        let visit: &mut VisitLeaves<'_, F, M> = visit;
        walk_table::<F, M>(on, at, level, base, range, visit, &mut no_bare);
    } else {
        walk_table::<F, M>(on, at, level, base, range, visit, &mut no_bare);
    }
}

/// The lowest table that is there, above the leaf tables, and maps all of `range`, which is not
/// empty, below the root at `root`: its address, its level and the first address that it maps.
/// Walks begin there: most ranges are small, and need no loop over one entry of each table above.
#[inline]
fn around<F: Format, M: Machine>(on: On<'_, M>, root: PhysAddr, range: VirtRange) -> (PhysAddr, Level, u64) {
    let above = |level: Level| F::shift(Level(level.0 + 1));
    if cfg!(feature = "small") {
        return (root, Tables::<F>::ROOT, 0);
    }
    let (mut to, differ) = (Level(1), range.start ^ (range.end - 1));
    while to < Tables::<F>::ROOT && differ >> above(to) != 0 {
        to = Level(to.0 + 1);
    }
    let end = descend::<F, _>(on.window(), root, Tables::<F>::ROOT, range.start, to);
    let is_root = end.level == Tables::<F>::ROOT;
    let base = if is_root { 0 } else { range.start & !((1 << above(end.level)) - 1) };
    (end.at, end.level, base)
}

/// For walks that need not know of tables without links.
fn no_bare(_: Level, _: u64) {}

/// The function that [`walk_table`] calls for each leaf table.
type VisitLeaves<'v, F, M> = dyn FnMut(&Node<'_, F, <M as Machine>::Window>, u64, usize, usize) + 'v;

/// Visits the leaf tables in `range` below the table of `level`, above the leaves, at `at`. A table
/// above the leaves without links in the range is passed to `bare`, with its level and first
/// address.
fn walk_table<F: Format, M: Machine>(
    on: On<'_, M>,
    at: PhysAddr,
    level: Level,
    base: u64,
    range: VirtRange,
    visit: &mut (impl FnMut(&Node<'_, F, M::Window>, u64, usize, usize) + ?Sized),
    bare: &mut impl FnMut(Level, u64),
) {
    let mut links = false;
    if cfg!(feature = "small") {
        walk_links::<F, M>(on, at, level, base, range, |child, base| {
            links = true;
            let below = Level(level.0 - 1);
            if below != Level::PTE {
                return walk_table::<F, M>(on, child, below, base, range, visit, bare);
            }
            let node = Node::<F, M::Window>::open(on.window(), on.frames(), Level::PTE, child);
            let (first, last) = indices::<F>(Level::PTE, base, range);
            visit(&node, base, first, last);
        });
    } else if level == Level(1) {
        // Most of the work is here: with the levels known, and the visit in line.
        walk_links::<F, M>(on, at, Level(1), base, range, |child, base| {
            links = true;
            let node = Node::<F, M::Window>::open(on.window(), on.frames(), Level::PTE, child);
            let (first, last) = indices::<F>(Level::PTE, base, range);
            visit(&node, base, first, last);
        });
    } else {
        let below = Level(level.0 - 1);
        walk_links::<F, M>(on, at, level, base, range, |child, base| {
            links = true;
            walk_table::<F, M>(on, child, below, base, range, visit, bare);
        });
    }
    if !links && level != Tables::<F>::ROOT {
        bare(level, base);
    }
}

/// Calls `inner` with each table in `range` that the one at `at` links, and its first address.
#[inline]
fn walk_links<F: Format, M: Machine>(
    on: On<'_, M>,
    at: PhysAddr,
    level: Level,
    base: u64,
    range: VirtRange,
    mut inner: impl FnMut(PhysAddr, u64),
) {
    let node = Node::<F, M::Window>::open(on.window(), on.frames(), level, at);
    let (first, last) = indices::<F>(level, base, range);
    node.each_link(first, last, |link| {
        inner(link.child, base + ((link.index as u64) << F::shift(level)));
    });
}

/// A leaf table, a large page or a group, of which a part lies in a range.
pub(super) enum Part<'n, 'w, F: Format, W: OpenWindow> {
    /// Entries from `first` to `last` (inclusive) of a leaf table that maps addresses from `base`
    /// on. None of them has a hint.
    Table {
        /// The table.
        node: &'n Node<'w, F, W>,
        /// The first address that it maps.
        base: u64,
        /// The first index.
        first: usize,
        /// The last one.
        last: usize,
    },
    /// A large page.
    Large {
        /// The table that it is in.
        node: &'n Node<'w, F, W>,
        /// Its index.
        index: usize,
        /// Its first address.
        va: u64,
        /// The leaf.
        raw: u64,
    },
    /// A group, of pages or of large pages.
    Group(Group<'n, 'w, F, W>),
}

/// Calls `visit` for the entries from `first` to `last` (inclusive) of the leaf table `node`, which
/// maps addresses from `base` on, and for each group of which one is a part, in order.
pub(super) fn each_part_of_table<F: Format, W: OpenWindow>(
    node: &Node<'_, F, W>,
    base: u64,
    (first, last): (usize, usize),
    visit: &mut (impl FnMut(Part<'_, '_, F, W>) + ?Sized),
) {
    let mut from = first;
    node.each(first, last, |index, raw| {
        if index < from || !is_hinted::<F>(Level::PTE, raw) {
            return;
        }
        let group = Group::around(node, base + ((index as u64) << F::PAGE_SHIFT));
        let end = group.indices().end;
        if from < index {
            visit(Part::Table { node, base, first: from, last: index - 1 });
        }
        visit(Part::Group(group));
        from = end;
    });
    if from <= last {
        visit(Part::Table { node, base, first: from, last });
    }
}

/// The function that [`walk_mixed`] calls for each leaf table and each large page.
type VisitParts<'v, F, M> = dyn FnMut(Part<'_, '_, F, <M as Machine>::Window>) + 'v;

/// Visits the leaf tables and large pages in `range` below the table of `level`, above the leaves,
/// at `at`, in order. `groups` says that leaf tables may have groups.
#[cold]
fn walk_mixed<F: Format, M: Machine>(
    on: On<'_, M>,
    at: PhysAddr,
    level: Level,
    base: u64,
    range: VirtRange,
    groups: bool,
    visit: &mut VisitParts<'_, F, M>,
) {
    let node = Node::<F, M::Window>::open(on.window(), on.frames(), level, at);
    let (first, last) = indices::<F>(level, base, range);
    let mut behind = 0;
    node.each(first, last, |index, raw| {
        if index < behind {
            // Of a group that has been visited.
            return;
        }
        let va = base + ((index as u64) << F::shift(level));
        match F::linked(level, raw) {
            None if is_hinted::<F>(level, raw) => {
                let group = Group::around(&node, va);
                behind = group.indices().end;
                visit(Part::Group(group));
            }
            None => visit(Part::Large { node: &node, index, va, raw }),
            Some(table) if level > Level(1) => {
                walk_mixed(on, table, Level(level.0 - 1), va, range, groups, visit);
            }
            Some(table) => {
                let node = Node::<F, M::Window>::open(on.window(), on.frames(), Level::PTE, table);
                let (first, last) = indices::<F>(Level::PTE, va, range);
                if const { has_groups::<F>() } && groups {
                    return each_part_of_table(&node, va, (first, last), visit);
                }
                visit(Part::Table { node: &node, base: va, first, last });
            }
        }
    });
}
