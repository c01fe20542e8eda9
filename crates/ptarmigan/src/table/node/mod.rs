//! An open table with its record: the only code that writes an entry, or a table's record.
//!
//! # Entries and the record
//!
//! Each table's frame has a record ([`FrameMeta`]) with a count of its live entries and a bitmap of
//! the lines of it (one bit for each 64th, a cache line of a 4 KiB table) that have been written
//! to. Every call here that changes an entry keeps both:
//!
//! 1. An entry that comes to be is counted and its line marked ([`Node::put`], [`Node::fill`]).
//! 2. Entries that go are counted off; the map is emptied with the last one ([`Node::take`],
//!    [`Node::clear`], [`Node::clear_all`]). So a table with no live entries is all zero, but for
//!    bits that [`Format::KEPT`] names. Where a format has such bits, the map of a leaf table stays
//!    until the table is given back: it says where bits may be left.
//! 3. An entry that changes stays an entry ([`Node::update`]). Where the architecture demands a
//!    break in between, the call answers so ([`NeedsBreak`]) and leaves the entry alone.
//!
//! ```text
//!  entries   │ a │ b │   │ … │   │ c │ … │       record: live 3, lines 1000…1…
//!              put, fill ──> live + 1, line marked
//!              clear     ──> live - n ──> 0: lines emptied, the table is known to be zero
//!              update    ──> live and lines stay
//! ```
//!
//! A leaf table that was made for one page has no line marked: its record names the only entry
//! ([`Node::put_first`]) until another one comes. Most tables of a short program stay so, and go
//! back without a search.
//!
//! # Why
//!
//! A table that is given back is handed out again without being cleared, so that the record must be
//! true at every moment: a store that it misses would be an entry in a stranger's tree. That is why
//! one file for each kind of change writes entries and records together. If a callback of `clear`
//! panics, the guard of the loop has the entries counted anew, because the ones that were cleared
//! are not known.
//!
//! The entries of other leaf tables are counted only after somebody has needed the count: records
//! of four frames share a cache line, so a count that every fault writes would take the line from
//! other CPUs that fault in tables of their own.
//!
//! # Concurrent access
//!
//! An MMU may read an entry at any time, and set accessed and dirty bits in it. [`Use`] says
//! whether the caller is alone with the table (plain stores), or shares it with MMUs
//! (compare-exchange, so that no bit set in between is lost), or other CPUs' faults too (those that
//! add entries use [`Node::fill`]; those that change entries hold the table's lock).
mod change;
mod clear;
mod lines;
mod put;

use crate::addr::{FRAME_SHIFT, PhysAddr};
use crate::format::{Entry, Format, Slot};
use crate::frames::{FrameMeta, Frames};
use crate::page::Level;
use crate::window::OpenWindow;
use core::marker::PhantomData;
use lines::{Entries, each_bit};

pub(crate) use change::NeedsBreak;
pub(super) use clear::Above;
pub(crate) use lines::{Live, Span};

/// The other users that may read a table, or write to it, besides the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// No other: no CPU has the tree loaded, or can load it meanwhile.
    Private,
    /// MMUs, which set accessed and dirty bits.
    Walked,
}

impl Use {
    /// [`Use::Private`] if `private`.
    #[inline]
    pub fn private(private: bool) -> Self {
        if private { Use::Private } else { Use::Walked }
    }
}

/// An open table.
pub(crate) struct Node<'w, F: Format, W: OpenWindow + 'w> {
    guard: W::Guard<'w>,
    at: PhysAddr,
    level: Level,
    /// Of no use for tables smaller than a frame.
    record: &'w FrameMeta,
    _format: PhantomData<F>,
}

impl<'w, F: Format, W: OpenWindow> Node<'w, F, W> {
    const ROOT: Level = F::LAYOUT.root();

    /// Opens the table of `level` at `at`, which belongs to a tree of format `F` that the caller
    /// holds or reads.
    #[inline(always)]
    pub fn open(window: &'w W, frames: &'w Frames, level: Level, at: PhysAddr) -> Self {
        Self::with_record(window, frames.meta(at.pfn()), level, at)
    }

    /// As [`open`](Self::open), with the record of its frame.
    #[inline]
    pub fn with_record(window: &'w W, record: &'w FrameMeta, level: Level, at: PhysAddr) -> Self {
        Node { guard: open(window, level, at), at, level, record, _format: PhantomData }
    }

    /// Its level.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Where the table is.
    #[inline]
    pub fn at(&self) -> PhysAddr {
        self.at
    }

    /// Its record; `None` for tables smaller than a frame.
    #[inline]
    pub fn record(&self) -> Option<&'w FrameMeta> {
        // Only roots may be smaller than a frame: known while compiling where the level or the
        // format says it all.
        let small = const { (F::LAYOUT.table_shift[F::LAYOUT.levels as usize - 1] as u32) < FRAME_SHIFT };
        if small && self.level == Self::ROOT { None } else { Some(self.record) }
    }

    #[inline]
    fn entries(&self) -> Entries<'_, F> {
        Entries::of(&self.guard, self.level)
    }

    #[inline]
    fn slot(&self, index: usize) -> &F::Slot {
        self.entries().slot(index)
    }

    /// The entry at `index`. A table that it links is seen as it was when it was linked.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        self.slot(index).load()
    }

    /// Returns the entry at `index`.
    #[inline]
    pub fn entry(&self, index: usize) -> Entry {
        F::entry(self.level, self.load(index))
    }

    /// Calls `visit(start, live)` for every line, or a word's worth of entries of it, with entries
    /// from `first` to `last` (inclusive) that are not empty, in order: bit i of `live` says that
    /// entry `start` + i is one of them. Looks only at lines that have been touched. Of a leaf
    /// table.
    #[inline(always)]
    pub fn each_line(&self, first: usize, last: usize, visit: impl FnMut(usize, Live)) {
        let Some(record) = self.record() else { return };
        self.entries().each_line::<true>(record, first, last, visit);
    }

    /// Calls `visit(index, entry)` for every entry from `first` to `last` (inclusive) that is not
    /// empty, in order. Without a record it looks at all of them.
    #[inline]
    pub fn each(&self, first: usize, last: usize, mut visit: impl FnMut(usize, u64)) {
        match self.record() {
            Some(record) => self.entries().each_line::<true>(record, first, last, |start, live| {
                each_bit(live, |i| visit(start + i, self.load(start + i)));
            }),
            None => {
                for index in first..=last {
                    let raw = self.load(index);
                    if !F::is_none(raw) {
                        visit(index, raw);
                    }
                }
            }
        }
    }

    /// As [`each`](Self::each), of a leaf table. Returns the entries for which `visit` returned
    /// true.
    #[inline(always)]
    pub fn each_noted(&self, first: usize, last: usize, mut visit: impl FnMut(usize, u64) -> bool) -> Span {
        let mut noted = Span::NONE;
        self.each_line(first, last, |line, live| {
            let mut of_line: Live = 0;
            each_bit(live, |i| {
                if visit(line + i, self.load(line + i)) {
                    of_line |= 1 << i;
                }
            });
            noted.add(line, of_line);
        });
        noted
    }

    /// Whether it has no entries of the user's; false for tables without a record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let Some(record) = self.record() else { return false };
        if !record.is_counted() {
            self.entries().count(record);
        }
        record.live() == 0
    }

    /// Binary logarithm of the entries that a line of the record's map has.
    #[inline(always)]
    pub fn line_shift(&self) -> u32 {
        self.entries().line_shift()
    }

    /// Returns the line of the record's map in which the entry at `index` is.
    #[inline(always)]
    pub fn line_of(&self, index: usize) -> u32 {
        (index >> self.entries().line_shift()) as u32
    }
}

/// Opens the table of `level` at `at`. All but leaf tables are in low memory.
#[inline(always)]
fn open<W: OpenWindow>(window: &W, level: Level, at: PhysAddr) -> W::Guard<'_> {
    if level == Level::PTE { window.open(at) } else { window.open_low(at) }
}

/// Reads one entry of the table of `level` at `at`, which belongs to a tree of format `F` that the
/// caller holds or reads.
#[inline]
pub(super) fn read<F: Format, W: OpenWindow>(window: &W, level: Level, at: PhysAddr, index: usize) -> u64 {
    Entries::<F>::of(&open(window, level, at), level).slot(index).load()
}

/// Sets the entry at `index` of the kernel's half of the root at `at`, which no record counts.
pub(super) fn set_kernel<F: Format, W: OpenWindow>(window: &W, at: PhysAddr, index: usize, raw: u64) {
    debug_assert!(index >= F::USER_ROOT_ENTRIES);
    Entries::<F>::of(&window.open_low(at), F::LAYOUT.root()).slot(index).store(raw);
}
