//! Groups: neighbouring leaves of one table with a hint in each, for which a TLB may keep one entry
//! ([`Format::GROUP_BITS`]).
//!
//! # A pseudo-level
//!
//! A group is told, changed and unmapped as a whole, as a large page is; walks of ranges meet it as
//! one [`Part`](super::range::Part). Code that changes a part of one *unfolds* it first, as it
//! splits a large page, at most at the two ends of its range: the hint goes from all entries. That
//! needs no memory.
//!
//! # No bit is lost
//!
//! An MMU sets accessed and dirty bits in the entry that it used, and a TLB that keeps one entry
//! for all pages has the bits of that one. So a bit in one entry is a bit of the group, and all
//! entries get it when they are written.
//!
//! 1. The bits of all entries are collected before any is written.
//! 2. Each entry is written by a compare-exchange, which tells the bits that were set since.
//! 3. If there were any, a second round gives them to all. When it begins no entry is as it was, so
//!    no TLB gets a translation with other bits.
//!
//! # Breaks
//!
//! Where the architecture demands it ([`Format::needs_break`]), all entries are broken off, flushed
//! once, and made again ([`broken`](super::broken)). Elsewhere a TLB may know the group or its
//! pages until the flush at the end of the operation, and both say the same.
//!
//! # Flushes
//!
//! A flush names each page of a group. Rejected: one address for all, as of a large page. The hint
//! obliges no TLB: it may know the pages one by one, and forget the one that is named alone.
//!
//! # Who may meet groups
//!
//! A tree notes with its [reserve](super::reserve) that it has had groups, for good. A tree that
//! has had none, and all code for formats without them, looks at no hint. Rejected: a count of
//! groups, which each way that clears entries would have to keep. Spaces have them in areas of
//! physical memory alone.
use super::node::{Node, Use};
use crate::addr::{FRAME_SHIFT, Pfn, VirtAddr, VirtRange};
use crate::format::{Attr, Entry, Format};
use crate::machine::{Machine, On};
use crate::page::{Level, MAX_LEVELS};
use crate::window::OpenWindow;
use core::ops::Range;

/// Attributes that MMUs set.
pub(super) const SET_BY_MMUS: Attr = Attr::ACCESSED.with(Attr::DIRTY);

/// Whether tables of the format have groups.
pub(super) const fn has_groups<F: Format>() -> bool {
    let mut level = 0;
    while level < MAX_LEVELS {
        if F::GROUP_BITS[level] != 0 {
            return true;
        }
        level += 1;
    }
    false
}

/// Whether the entry `raw` of a table of `level` is one of a group.
#[inline(always)]
pub(super) fn is_hinted<F: Format>(level: Level, raw: u64) -> bool {
    (const { has_groups::<F>() }) && F::is_hinted(level, raw)
}

/// Binary logarithm of the bytes of a group of a table of `level`.
pub(super) fn group_shift<F: Format>(level: Level) -> u32 {
    F::shift(level) + u32::from(F::GROUP_BITS[level.at() % MAX_LEVELS])
}

/// Binary logarithm of the bytes of the leaf `raw` of a table of `level`, or of its group.
#[inline(always)]
pub(super) fn leaf_shift<F: Format>(level: Level, raw: u64) -> u32 {
    if is_hinted::<F>(level, raw) { group_shift::<F>(level) } else { F::shift(level) }
}

/// The leaf `raw` of a table of `level`, for `va`, without the hint.
#[inline(always)]
pub(super) fn own<F: Format>(level: Level, va: u64, raw: u64) -> u64 {
    if const { has_groups::<F>() } { F::unhinted(level, F::index(level, va), raw) } else { raw }
}

/// The leaves of a group, by the one of its first entry, `first`, without the hint; or the leaf
/// `first` alone, if it is none of a group as `raw` says.
pub(super) fn leaves<F: Format>(level: Level, raw: u64, first: u64) -> impl Iterator<Item = u64> {
    let n = 1usize << (leaf_shift::<F>(level, raw) - F::shift(level));
    (0..n).map(move |i| if i == 0 { first } else { neighbour::<F>(level, first, i) })
}

/// The leaf of a table of `level` that is `i` behind `first` in a group without hints.
fn neighbour<F: Format>(level: Level, first: u64, i: usize) -> u64 {
    let frames = 1u32 << (F::shift(level) - FRAME_SHIFT);
    F::leaf(level, Pfn(F::frame(level, first).0 + i as u32 * frames), F::attr(level, first))
}

/// A group, or entries that may become one.
pub(super) struct Group<'n, 'w, F: Format, W: OpenWindow> {
    node: &'n Node<'w, F, W>,
    first: usize,
    va: u64,
}

impl<'n, 'w, F: Format, W: OpenWindow> Group<'n, 'w, F, W> {
    /// The one that maps `va`, in the table `node`.
    pub fn around(node: &'n Node<'w, F, W>, va: u64) -> Self {
        let start = va & !((1 << group_shift::<F>(node.level())) - 1);
        Group { node, first: F::index(node.level(), start), va: start }
    }

    /// Its table.
    pub fn node(&self) -> &'n Node<'w, F, W> {
        self.node
    }

    /// The level of its table.
    pub fn level(&self) -> Level {
        self.node.level()
    }

    /// The first address that it maps.
    pub fn va(&self) -> u64 {
        self.va
    }

    /// The bytes that it maps.
    pub fn bytes(&self) -> u64 {
        1 << group_shift::<F>(self.level())
    }

    /// The indices of its entries.
    pub fn indices(&self) -> Range<usize> {
        self.first..self.first + (1 << F::GROUP_BITS[self.level().at() % MAX_LEVELS])
    }

    /// Whether its first entry has the hint.
    pub fn is_hinted(&self) -> bool {
        is_hinted::<F>(self.level(), self.node.load(self.first))
    }

    /// The bits that MMUs have set in any of its entries.
    pub fn set(&self) -> Attr {
        self.indices().fold(Attr::default(), |set, index| set | self.set_in(self.node.load(index)))
    }

    fn set_in(&self, raw: u64) -> Attr {
        F::attr(self.level(), raw).only(SET_BY_MMUS)
    }

    /// The leaf of its first entry, without the hint and with the bits of all.
    pub fn leaf(&self) -> u64 {
        self.first_with(self.node.load(self.first), self.set())
    }

    /// As [`leaf`](Self::leaf), of the first entry `raw` and the bits `set`.
    fn first_with(&self, raw: u64, set: Attr) -> u64 {
        let raw = F::unhinted(self.level(), self.first, raw);
        F::map_attr(self.level(), raw, |attr| attr | set)
    }

    /// The entry at `index` of a group whose first leaf is `first`.
    pub fn entry(&self, first: u64, index: usize, hint: bool) -> u64 {
        let raw = neighbour::<F>(self.level(), first, index - self.first);
        if hint { F::hinted(self.level(), raw) } else { raw }
    }

    /// Returns whether all its entries belong to the group whose first leaf is `first`. The leaf of
    /// a group has bits that one entry may be without.
    pub fn is(&self, first: u64, hint: bool) -> bool {
        self.indices().all(|index| self.node.load(index) == self.entry(first, index, hint))
    }

    /// Lets no MMU use its entries; returns the [leaf](Self::leaf) as it was then.
    pub fn break_off(&self) -> u64 {
        let (mut first, mut set) = (0, Attr::default());
        for index in self.indices() {
            let was = self.node.break_off(index);
            set = set | self.set_in(was);
            if index == self.first {
                first = was;
            }
        }
        self.first_with(first, set)
    }

    /// Makes the entries that are broken off, as the group whose first leaf is `first`.
    pub fn make(&self, first: u64, hint: bool, mut made: impl FnMut(u64, u64)) {
        for index in self.indices() {
            let va = self.va + (index - self.first) as u64 * (1 << F::shift(self.level()));
            let raw = self.entry(first, index, hint);
            self.node.make(va, raw);
            made(va, raw);
        }
    }

    /// Writes the group whose first leaf is `new` over the group of `old`, the [leaf](Self::leaf),
    /// where that needs no break. Returns `old` with the bits that MMUs have set since.
    pub fn write(&self, old: u64, new: u64, hint: bool, others: Use) -> u64 {
        let level = self.level();
        let mut set = self.set_in(old);
        let taken = set.without(self.set_in(new));
        let with = |set: Attr| F::map_attr(level, new, |attr| attr | set.without(taken));
        for _ in 0..2 {
            let (seen, first) = (set, with(set));
            for index in self.indices() {
                let change = |now| {
                    let more = self.set_in(now).without(seen);
                    let first = if more == Attr::default() { first } else { with(seen | more) };
                    self.entry(first, index, hint)
                };
                set = set | self.set_in(self.node.replace(index, others, change));
            }
            if set.without(taken) == seen.without(taken) {
                break;
            }
        }
        F::map_attr(level, old, |attr| attr | set)
    }

    /// Clears it; returns the [leaf](Self::leaf) as it was then.
    pub fn clear(&self, others: Use) -> u64 {
        let (mut first, mut set) = (0, Attr::default());
        let mut gone = |index, old| {
            set = set | self.set_in(old);
            if index == self.first {
                first = old;
            }
        };
        if self.level() == Level::PTE {
            self.node.clear(self.first, self.indices().end - 1, others, gone);
        } else {
            self.indices().for_each(|index| {
                self.node.take(index, others).into_iter().for_each(|old| gone(index, old));
            });
        }
        self.first_with(first, set)
    }

    /// Checks that its entries could have the hint; all that have none do.
    ///
    /// # Errors
    ///
    /// The first address of the first leaf that does not fit.
    pub fn fits(&self) -> Result<(), VirtAddr> {
        let level = self.level();
        let first = F::unhinted(level, self.first, self.node.load(self.first));
        let is_leaf = |raw| F::entry(level, raw) == Entry::Leaf;
        let frames = group_shift::<F>(level) - FRAME_SHIFT;
        if !is_leaf(first) || F::frame(level, first).0.trailing_zeros() < frames {
            return Err(VirtAddr(self.va));
        }
        let plain = |raw| F::map_attr(level, raw, |attr| attr.without(SET_BY_MMUS));
        for index in self.indices() {
            let raw = F::unhinted(level, index, self.node.load(index));
            if !is_leaf(raw) || plain(raw) != plain(neighbour::<F>(level, first, index - self.first)) {
                return Err(VirtAddr(self.va + (index - self.first) as u64 * (1 << F::shift(level))));
            }
        }
        Ok(())
    }

    /// Whether `range`, of whole pages or not, has all of it.
    pub fn is_inside(&self, range: VirtRange) -> bool {
        let page = (1 << F::PAGE_SHIFT) - 1;
        range.start & !page <= self.va && self.va + self.bytes() <= (range.end + page) & !page
    }

    /// Tells the machine that its leaves change, from those of `old` to those of `new`.
    pub fn before_changed<M: Machine>(&self, on: On<'_, M>, old: u64, new: u64) {
        for index in self.indices() {
            let of = |leaf| self.entry(leaf, index, false);
            on.before_changed::<F>(self.level(), of(old), of(new));
        }
    }

    /// Whether the group whose first leaf is `new` may take its place only after a break, where
    /// MMUs use it.
    pub fn breaks(&self, new: u64, hint: bool) -> bool {
        let new = self.entry(new, self.first, hint);
        F::EVER_BREAKS && F::needs_break(self.level(), self.node.load(self.first), new)
    }
}
