//! Trees of other crates' entries, with 512 entries of 8 bytes in a table: makes the tables that an
//! operation needs, notes the lines that it is about to write, and takes a tree apart by the lines
//! that were noted.
//!
//! ```text
//!  grow     alloc: a table of zeroes ── fence(Release) ── link written ──> a walker sees zeroes
//!  note     touched: the line ── the crate writes the entry
//!  end      lines that were noted ── entries found, cleared ──> tables go back, all zero
//! ```
//!
//! # Why
//!
//! Crates clear each new table and give tables back full, so that lists alone gain little. If the
//! tables are there before the crate looks, it does not make or clear any. A walker may follow the
//! new link at once: without the fence it could read the page's bytes from before it was cleared.
use crate::Pages;
use core::mem::{ManuallyDrop, forget};
use core::ops::Range;
use core::sync::atomic::{Ordering::Release, fence};
use ptarmigan::addr::{FRAME_SHIFT, PhysAddr};
use ptarmigan::cpu::WithPin;
use ptarmigan::page::{LINE, Level};
use ptarmigan::quicklist::Policy;

/// Bytes of an entry.
pub(super) const ENTRY: usize = 8;
/// Index bits of a level.
const INDEX: u32 = 9;

/// The layout of a crate's entries.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. An [`Entry`](Self::Entry) has [`ENTRY`] bytes, every one of which is part of a value, and any
///    value of theirs is an entry. An entry of zeroes is empty.
/// 2. [`table`](Self::table) names a table of `at` for what [`link`](Self::link), or the crate on
///    its behalf, has made of a table at `at`, and for no other entry of a tree: not for a page of
///    any size, whatever the crate's user asks for.
pub(super) unsafe trait Entries {
    /// An entry.
    type Entry: Copy;

    /// Returns whether it is empty.
    fn is_none(&self, entry: Self::Entry) -> bool;

    /// Returns the table that an entry of a table above the lowest level leads to.
    fn table(&self, entry: Self::Entry) -> Option<PhysAddr>;

    /// Makes an entry that leads to the table at `at`.
    fn link(&self, at: PhysAddr) -> Self::Entry;
}

/// Entries of a root, one bit each.
#[derive(Clone, Copy)]
struct RootEntries([u64; (1 << INDEX) / 64]);

impl RootEntries {
    const NONE: Self = RootEntries([0; (1 << INDEX) / 64]);

    /// Returns whether the entry at `offset`, in bytes, is one of them.
    #[inline]
    fn has(&self, offset: usize) -> bool {
        let entry = offset / ENTRY;
        self.0[entry / 64] >> (entry % 64) & 1 != 0
    }

    fn add(&mut self, offset: usize) {
        let entry = offset / ENTRY;
        self.0[entry / 64] |= 1 << (entry % 64);
    }
}

/// A tree: where its root is, and which of its entries are another's.
pub(super) struct Tree {
    pub root: PhysAddr,
    /// The root's level.
    pub top: Level,
    /// Entries of the root that lead to tables of other trees. They add up over all calls of
    /// [`share`](Self::share): an entry that is shared stays another's.
    shared: RootEntries,
    /// The tables of the two lowest levels that were reached last, and the part of the address
    /// space that each is for. The lines of the entries that lead there are noted.
    leaf: (u64, PhysAddr),
    near: (u64, PhysAddr),
}

/// The level of [`Tree::near`].
const NEAR: Level = Level(1);
/// No part of the address space.
const NOWHERE: (u64, PhysAddr) = (u64::MAX, PhysAddr(0));

/// Returns the bits of an address below the index of `level`.
#[inline]
const fn shift(level: Level) -> u32 {
    FRAME_SHIFT + INDEX * level.0 as u32
}

/// Returns where the entry for `va` is in a table of `level`, in bytes.
#[inline]
pub(super) const fn offset(va: u64, level: Level) -> usize {
    (va >> shift(level)) as usize % (1 << INDEX) * ENTRY
}

#[cfg_attr(
    not(all(feature = "aarch64-paging", feature = "page-table-generic", feature = "x86_64")),
    allow(dead_code, reason = "each crate uses its part")
)]
impl Tree {
    pub fn new(root: PhysAddr, top: Level) -> Self {
        Tree { root, top, shared: RootEntries::NONE, leaf: NOWHERE, near: NOWHERE }
    }

    /// Forgets which tables were reached last: tables have gone.
    pub fn forget(&mut self) {
        (self.leaf, self.near) = (NOWHERE, NOWHERE);
    }

    /// Returns whether the leaf table of `va` was the last one that [`grow`](Self::grow) reached.
    #[inline]
    pub fn has_leaf_of(&self, va: u64) -> bool {
        self.leaf.0 == va >> shift(NEAR)
    }

    /// Returns whether the root's entry for `va` is another tree's.
    #[inline]
    pub fn is_shared(&self, va: u64) -> bool {
        self.shared.has(offset(va, self.top))
    }

    /// Returns whether any of the root's entries for addresses from `start` to `last` [is another
    /// tree's](Self::is_shared).
    pub fn any_shared(&self, start: u64, last: u64) -> bool {
        let (first, last) = (start >> shift(self.top), last >> shift(self.top));
        // No more than all of the root's entries.
        (first..=last.min(first + (1 << INDEX) - 1))
            .any(|entry| self.shared.has(offset(entry << shift(self.top), self.top)))
    }

    /// Takes the tree together with its pages and the layout of its entries.
    ///
    /// # Safety
    ///
    /// 1. The tree's tables must be of `pages`, but for those of other trees. The caller must have
    ///    it alone, but for MMUs, as long as the result exists.
    #[inline]
    pub unsafe fn on<'t, 'm, P, N, E>(
        &'t mut self,
        pages: &'t Pages<'m, P, N>,
        entries: &'t E,
    ) -> TreeOn<'t, 'm, P, N, E> {
        TreeOn { tree: self, pages, entries }
    }
}

/// A tree, its pages and the layout of its entries. The holder has the tree alone, but for MMUs.
pub(super) struct TreeOn<'t, 'm, P, N, E> {
    tree: &'t mut Tree,
    pages: &'t Pages<'m, P, N>,
    entries: &'t E,
}

#[cfg_attr(
    not(all(feature = "aarch64-paging", feature = "page-table-generic", feature = "x86_64")),
    allow(dead_code, reason = "each crate uses its part")
)]
impl<P: Policy, N: WithPin, E: Entries> TreeOn<'_, '_, P, N, E> {
    /// Makes the tables that the entry for `va` in a table of level `to` needs, and notes the lines
    /// of it and of the entries above it. Stops at a large page. Returns false if there is no
    /// memory, where tables that were made stay, and if the root's entry [is
    /// another's](Tree::is_shared).
    #[inline]
    pub fn grow(&mut self, va: u64, to: Level) -> bool {
        if self.tree.has_leaf_of(va) && to == Level::PTE {
            // SAFETY: 1. it is the tree's. 2. nobody gives it back in here. Of the note: the holder
            // has the tree alone.
            unsafe { self.pages.open(self.tree.leaf.1).touched_alone(offset(va, to)) };
            return true;
        }
        let (part, mut at) = self.tree.near;
        let mut level = NEAR;
        if part != va >> shift(Level(NEAR.0 + 1)) || to > NEAR {
            if self.tree.is_shared(va) {
                return false;
            }
            (at, level) = (self.tree.root, self.tree.top);
        }
        loop {
            match level {
                Level::PTE => self.tree.leaf = (va >> shift(NEAR), at),
                NEAR => self.tree.near = (va >> shift(Level(NEAR.0 + 1)), at),
                _ => {}
            }
            let offset = offset(va, level);
            // SAFETY: 1. it is the tree's. 2. nobody gives it back in here. Of the note: the holder
            // has the tree alone.
            unsafe { self.pages.open(at).touched_alone(offset) };
            if level <= to {
                return true;
            }
            let slot = self.pages.pointer(at).wrapping_add(offset).cast::<E::Entry>();
            // SAFETY: an entry of a table of this tree, which the holder has alone; MMUs write
            // whole entries, each of which is a value (contract of `Entries`, 1.).
            let entry = unsafe { slot.read_volatile() };
            at = match self.entries.table(entry) {
                Some(next) => next,
                None if self.entries.is_none(entry) => {
                    let Some(new) = self.pages.alloc() else { return false };
                    // Walkers that see the entry see a table of zeroes.
                    fence(Release);
                    // SAFETY: as above.
                    unsafe { slot.write_volatile(self.entries.link(new)) };
                    new
                }
                None => return true,
            };
            level.0 -= 1;
        }
    }

    /// As [`grow`](Self::grow), for the pages from `start` up to `end`, both multiples of the page
    /// size.
    pub fn grow_range(&mut self, start: u64, end: u64) -> bool {
        let mut va = start;
        while va < end {
            // The last page of this leaf table, or of the range.
            let last = (va | ((1 << shift(Level(1))) - 1)).min(end - 1);
            if !self.grow(va, Level::PTE) {
                return false;
            }
            self.note(va, last);
            let Some(next) = last.checked_add(1) else { break };
            va = next;
        }
        true
    }

    /// Notes the lines of all entries for addresses from `start` to `last`, in the tables that
    /// there are.
    #[inline]
    pub fn note(&self, start: u64, last: u64) {
        let (mut at, mut level) = (self.tree.root, self.tree.top);
        // As long as one entry has all of them.
        while level > Level::PTE && (start ^ last) >> shift(level) == 0 {
            let offset = offset(start, level);
            if level == self.tree.top && self.tree.shared.has(offset) {
                return;
            }
            // SAFETY: 1. it is the tree's. 2. nobody gives it back in here. Of the note: the holder
            // has the tree alone.
            unsafe { self.pages.open(at).touched_alone(offset) };
            let slot = self.pages.pointer(at).wrapping_add(offset).cast::<E::Entry>();
            // SAFETY: as in `grow`.
            let Some(next) = self.entries.table(unsafe { slot.read_volatile() }) else { return };
            (at, level.0) = (next, level.0 - 1);
        }
        if level == Level::PTE && offset(start, level) == offset(last, level) {
            // SAFETY: 1. and 2. and of the note as above.
            unsafe { self.pages.open(at).touched_alone(offset(start, level)) };
            return;
        }
        // SAFETY: 1. entries of the tree lead to it, by these addresses.
        unsafe { self.note_in((at, level), start, last) }
    }

    /// # Safety
    ///
    /// 1. The table must be the tree's, and have these addresses.
    unsafe fn note_in(&self, (at, level): (PhysAddr, Level), start: u64, last: u64) {
        let (first, end) = (offset(start, level), offset(last, level) + ENTRY);
        // SAFETY: 1. it is the tree's. 2. nobody gives it back in here.
        unsafe { self.pages.open(at) }.touched_range(first..end);
        if level == Level::PTE {
            return;
        }
        let mut start = start;
        for offset in (first..end).step_by(ENTRY) {
            let stop = (start | ((1 << shift(level)) - 1)).min(last);
            let is_shared = level == self.tree.top && self.tree.shared.has(offset);
            let slot = self.pages.pointer(at).wrapping_add(offset).cast::<E::Entry>();
            // SAFETY: as in `grow`.
            let entry = unsafe { slot.read_volatile() };
            if let Some(next) = self.entries.table(entry).filter(|_| !is_shared) {
                // SAFETY: 1. the entry leads to a table of this tree, by these addresses.
                unsafe { self.note_in((next, Level(level.0 - 1)), start, stop) };
            }
            start = stop.wrapping_add(1);
        }
    }

    /// Returns whether a page that is larger than the range from `start` to `last` lies across an
    /// end of it: a change of the range splits it.
    pub fn splits(&self, start: u64, last: u64) -> bool {
        let cuts = |va: u64| {
            let (mut at, mut level) = (self.tree.root, self.tree.top);
            while level > Level::PTE {
                let slot = self.pages.pointer(at).wrapping_add(offset(va, level)).cast::<E::Entry>();
                // SAFETY: as in `grow`.
                let entry = unsafe { slot.read_volatile() };
                match self.entries.table(entry) {
                    Some(next) => (at, level.0) = (next, level.0 - 1),
                    None => {
                        let low = va & !((1 << shift(level)) - 1);
                        let high = low | ((1 << shift(level)) - 1);
                        return !self.entries.is_none(entry) && (low < start || high > last);
                    }
                }
            }
            false
        };
        cuts(start) || (start ^ last >= 1 << FRAME_SHIFT && cuts(last))
    }

    /// Links the tables of the root at `from` in the root's entries in `bytes`. Entries that
    /// earlier calls have shared stay shared.
    ///
    /// # Safety
    ///
    /// 1. The tree must have no entry there.
    /// 2. `from` must be a root of the same format, which the direct map reaches. The tables under
    ///    its entries must stay as long as this tree. No code may write to these
    ///    entries while this runs.
    pub unsafe fn share(&mut self, from: PhysAddr, bytes: Range<usize>) {
        // SAFETY: 1. the root is the tree's. 2. nobody gives it back in here.
        unsafe { self.pages.open(self.tree.root) }.touched_range(bytes.clone());
        for offset in bytes.step_by(ENTRY) {
            self.tree.shared.add(offset);
            let [to, from] =
                [self.tree.root, from].map(|at| self.pages.pointer(at).wrapping_add(offset).cast::<u64>());
            // SAFETY: entries of two roots: the holder has one alone, and no code writes to the
            // other's (2.).
            unsafe { to.write_volatile(from.read_volatile()) };
        }
        self.tree.forget();
    }

    /// Gives all tables of the tree back.
    ///
    /// # Safety
    ///
    /// 1. The tree must not be used any more.
    /// 2. Every entry that was written must be noted.
    #[inline]
    pub unsafe fn take_apart(self) {
        let TreeOn { tree, pages, entries } = self;
        Rest::of_table(tree, pages, entries, tree.root, tree.top);
    }
}

/// A part of a tree that has not come back. If the policy unwinds at a table before, this is
/// dropped, and brings back the rest.
///
/// [`TreeOn::take_apart`] makes all of them: the table is the tree's, which is not used any more,
/// and whose written entries are noted. Each is taken apart once.
struct Rest<'t, 'm, P: Policy, N: WithPin, E: Entries> {
    tree: &'t Tree,
    pages: &'t Pages<'m, P, N>,
    entries: &'t E,
    /// The table that has the entries.
    at: PhysAddr,
    level: Level,
    /// Its lines that have not been gone through.
    lines: u64,
    /// The bytes of the first of these that have.
    skip: usize,
}

impl<P: Policy, N: WithPin, E: Entries> Rest<'_, '_, P, N, E> {
    /// Gives back the table at `at`, and all below it.
    fn of_table(tree: &Tree, pages: &Pages<'_, P, N>, entries: &E, at: PhysAddr, level: Level) {
        let mut rest = Rest { tree, pages, entries, at, level, lines: 0, skip: 0 };
        if level > Level::PTE {
            // SAFETY: 1. it is the tree's. 2. it is given back by `rest`, when this is gone.
            rest.lines = unsafe { pages.open(at) }.lines();
        }
        ManuallyDrop::new(rest).take_apart();
    }

    #[inline]
    fn take_apart(&self) {
        let Rest { tree, pages, entries, at, level, mut lines, mut skip } = *self;
        let shared = if level == tree.top { tree.shared } else { RootEntries::NONE };
        while lines != 0 {
            let line = lines.trailing_zeros() as usize * LINE;
            for offset in (line + skip..line + LINE).step_by(ENTRY) {
                let slot = pages.pointer(at).wrapping_add(offset).cast::<E::Entry>();
                // SAFETY: as in `grow`.
                let entry = unsafe { slot.read_volatile() };
                let Some(next) = entries.table(entry).filter(|_| !shared.has(offset)) else {
                    continue;
                };
                let skip = offset + ENTRY - line;
                let rest = Rest { tree, pages, entries, at, level, lines, skip };
                match level {
                    // SAFETY: 1. the entry leads to a table of this tree. 2. and 3. as below.
                    NEAR => unsafe { pages.give_back(next) },
                    _ => Rest::of_table(tree, pages, entries, next, Level(level.0 - 1)),
                }
                forget(rest);
            }
            skip = 0;
            lines &= lines - 1;
        }
        // SAFETY: 1. it is the tree's. 2. all is noted. 3. the tree is not used any more, and the
        // tables whose entries lead here follow.
        unsafe { pages.give_back(at) };
    }
}

impl<P: Policy, N: WithPin, E: Entries> Drop for Rest<'_, '_, P, N, E> {
    #[cold]
    fn drop(&mut self) {
        // The call that unwinds does not go on.
        self.take_apart();
    }
}
