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
//! A leaf table that was made for one page has no line marked: its record names the only entry
//! ([`Node::put_first`]) until another one comes. Most tables of a short program stay so, and go
//! back without a search.
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
use crate::addr::{FRAME_SHIFT, PhysAddr};
use crate::format::{Access, Attr, Entry, Format, Slot};
use crate::frames::{FrameMeta, Frames};
use crate::page::Level;
use crate::tlb::hash::Refill;
use crate::window::{OpenWindow, WindowGuard};
use core::marker::PhantomData;
use core::ops::Range;

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

/// The architecture demands that a live entry is broken off, and flushed, before the new one is
/// made (`broken`).
#[derive(Debug)]
pub(crate) struct NeedsBreak;

/// An open table.
pub(crate) struct Node<'w, F: Format, W: OpenWindow + 'w> {
    guard: W::Guard<'w>,
    at: PhysAddr,
    level: Level,
    /// Of no use for tables smaller than a frame.
    record: &'w FrameMeta,
    _format: PhantomData<F>,
}

/// Says which of some entries in a row are meant, by their bits.
pub(crate) type Live = usize;
/// Entries that [`Node::each_line`] hands over together at most: as many as [`Live`] has bits.
const MOST: usize = Live::BITS as usize;
/// The first and the last of the entries of a table that have been noted.
pub(crate) struct Span {
    first: usize,
    last: usize,
}

impl Span {
    /// No entry.
    pub const NONE: Self = Span { first: usize::MAX, last: 0 };

    /// Notes entry `line` + i for each bit i of `entries`, above those before.
    #[inline]
    pub fn add(&mut self, line: usize, entries: Live) {
        if entries != 0 {
            self.first = self.first.min(line + entries.trailing_zeros() as usize);
            self.last = line + entries.ilog2() as usize;
        }
    }

    /// As [`add`](Self::add), for `n` entries from `line` on.
    #[inline]
    fn add_all(&mut self, line: usize, n: usize) {
        self.first = self.first.min(line);
        self.last = line + n - 1;
    }

    /// Returns their indices; `None` if no entry was noted.
    #[inline]
    pub fn ends(&self) -> Option<(usize, usize)> {
        (self.first <= self.last).then_some((self.first, self.last))
    }
}

/// Entries of 8 bytes in a cache line.
const LINE_ENTRIES: usize = 8;
/// Lines of a table: bits of a record's map.
const LINES: usize = u64::BITS as usize;

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

    // Reading.

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
        self.entries().each_line(record, first, last, visit);
    }

    /// Calls `visit(index, entry)` for every entry from `first` to `last` (inclusive) that is not
    /// empty, in order. Without a record it looks at all of them.
    #[inline]
    pub fn each(&self, first: usize, last: usize, mut visit: impl FnMut(usize, u64)) {
        match self.record() {
            Some(record) => self.entries().each_line(record, first, last, |start, live| {
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

    // Writing.

    /// Puts `raw` where there is no entry. The caller has the tree for itself, or holds the table's
    /// lock.
    ///
    /// Entries that were empty need no flush: no MMU keeps those.
    #[inline(always)]
    pub fn put(&self, index: usize, raw: u64) {
        self.put_unmarked(index, raw);
        if let Some(record) = self.record() {
            record.touch(self.line_of(index));
        }
    }

    /// As [`put`](Self::put), into a line that has been marked already: another entry came there
    /// before, and tables have not lost entries since.
    #[inline(always)]
    pub fn put_unmarked(&self, index: usize, raw: u64) {
        let slot = self.slot(index);
        debug_assert!(F::is_none(slot.load()), "an entry over another one in the table at {}", self.at);
        slot.store(Self::over(slot, raw));
        if let Some(record) = self.record() {
            self.added(record, 1);
        }
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

    /// `n` entries have been added.
    #[inline(always)]
    fn added(&self, record: &FrameMeta, n: u16) {
        if self.level != Level::PTE {
            record.set_live(record.live_above() + n);
        } else if record.is_counted() {
            record.add_live(n, self.entries().line_shift());
        }
    }

    /// Puts `raw` as the first entry of a leaf table that is clean, and that only the caller knows.
    /// Its record is complete then.
    #[inline(always)]
    pub fn put_first(&self, index: usize, raw: u64) {
        let slot = self.slot(index);
        debug_assert!(slot.load() == 0, "an entry in the new table at {}", self.at);
        slot.store(raw);
        if let Some(record) = self.record() {
            debug_assert!(record.touched() == 0);
            if const { F::KEPT == 0 } {
                record.set_sole(index as u16);
            } else {
                record.set_leaf_table();
                record.touch((index >> self.entries().line_shift()) as u32);
            }
        }
    }

    /// Puts `raw` into an empty entry, with other CPUs at work in the same leaf table; returns
    /// whether it was empty. Mostly the record is not written, and the next call that has the table
    /// for itself counts.
    #[inline]
    pub fn fill(&self, index: usize, raw: u64) -> bool {
        let slot = self.slot(index);
        let filled = if const { F::KEPT == 0 } { slot.fill(raw) } else { Self::fill_kept(slot, raw) };
        if filled && let Some(record) = self.record() {
            let shift = self.entries().line_shift();
            record.stop_counting(shift);
            record.touch_shared((index >> shift) as u32);
        }
        filled
    }

    /// As [`fill`](Self::fill), where the empty entry may have bits that stay.
    fn fill_kept(slot: &F::Slot, raw: u64) -> bool {
        let mut old = slot.load();
        while F::is_none(old) {
            match slot.exchange(old, raw | old) {
                Ok(()) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Merges `raw` with the kept bits of the empty entry in `slot`.
    #[inline(always)]
    fn over(slot: &F::Slot, raw: u64) -> u64 {
        if const { F::KEPT == 0 } { raw } else { raw | F::cleared(slot.load()) }
    }

    /// Puts `next(i)` into entries from `first` on, `n` at most, as long as they are empty; how
    /// many it were.
    #[inline]
    pub fn put_run(&self, first: usize, n: usize, mut next: impl FnMut() -> u64) -> usize {
        let mut done = 0;
        for slot in self.entries().slots(first, n) {
            if !F::is_none(slot.load()) {
                break;
            }
            slot.store(Self::over(slot, next()));
            done += 1;
        }
        if done > 0
            && let Some(record) = self.record()
        {
            self.added(record, done as u16);
            let shift = self.entries().line_shift();
            touch_lines(record, (first >> shift) as u32, ((first + done - 1) >> shift) as u32);
        }
        done
    }

    /// Writes all entries of a table that has none, and that nobody else writes to: `first`, and
    /// then `grow` more each.
    pub fn fill_all(&self, first: u64, grow: u64) {
        let (n, mut next) = (F::entries(self.level), first);
        for slot in self.entries().slots(0, n) {
            debug_assert!(F::is_none(slot.load()), "an entry in the empty table at {}", self.at);
            slot.store(next);
            next = next.wrapping_add(grow);
        }
        if let Some(record) = self.record() {
            record.set_counted(n as u16);
            touch_lines(record, 0, ((n - 1) >> self.entries().line_shift()) as u32);
        }
    }

    /// Puts `next(index)` where there is no entry of a leaf table, for each bit i of `live` and the
    /// entry `start` + i, all in one line.
    #[inline]
    pub fn put_line(&self, start: usize, live: Live, mut next: impl FnMut(usize) -> u64) {
        let Some(record) = self.record() else { return };
        // First, so that no entry goes unseen if `next` panics.
        let shift = self.entries().line_shift();
        record.touch((start >> shift) as u32);
        let uncounted = Uncounted { record, shift };
        each_bit(live, |i| {
            let slot = self.slot(start + i);
            debug_assert!(F::is_none(slot.load()), "an entry over another one in the table at {}", self.at);
            slot.store(Self::over(slot, next(start + i)));
        });
        core::mem::forget(uncounted);
        if record.is_counted() {
            record.add_live(live.count_ones() as u16, shift);
        }
    }

    /// Changes the entry at `index` to the result of `change`, which must be an entry too; the one
    /// that was there. `change` may be called several times, as an MMU sets bits in between.
    ///
    /// # Errors
    ///
    /// [`NeedsBreak`] if an MMU may use the entry, and the architecture demands that it is broken
    /// off first. It is as it was then.
    #[inline(always)]
    pub fn update(&self, index: usize, others: Use, change: impl Fn(u64) -> u64) -> Result<u64, NeedsBreak> {
        let seen = self.load(index);
        let new = change(seen) | F::cleared(seen);
        if new == seen {
            return Ok(seen);
        }
        self.update_seen(index, seen, new, others, change).map(|(was, _)| was)
    }

    /// As [`update`](Self::update), for changes that need no break: the entry loses permissions
    /// alone, or no MMU can use it as it is.
    #[inline(always)]
    pub fn replace(&self, index: usize, others: Use, change: impl Fn(u64) -> u64) -> u64 {
        let seen = self.load(index);
        let new = change(seen) | F::cleared(seen);
        if new == seen { seen } else { self.replace_seen(index, seen, new, others, change).0 }
    }

    /// As [`update`](Self::update), for an entry that the caller has just `seen`, with `new` as the
    /// result of `change`; returns the one that was there and the one that is there now.
    #[inline(always)]
    pub fn update_seen(
        &self,
        index: usize,
        seen: u64,
        new: u64,
        others: Use,
        change: impl Fn(u64) -> u64,
    ) -> Result<(u64, u64), NeedsBreak> {
        self.exchange(index, seen, new, others, change, |old, new| {
            if const { F::EVER_BREAKS } && F::needs_break(self.level, old, new) {
                return Err(NeedsBreak);
            }
            Ok(())
        })
    }

    /// As [`update_seen`](Self::update_seen), for changes that need no break, as for
    /// [`replace`](Self::replace).
    #[inline(always)]
    pub fn replace_seen(
        &self,
        index: usize,
        seen: u64,
        new: u64,
        others: Use,
        change: impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        let allowed = |old, new| -> Result<(), core::convert::Infallible> {
            debug_assert!(
                !F::EVER_BREAKS || !F::needs_break(self.level, old, new),
                "{new:#x} takes the place of {old:#x} without a break in the table at {}",
                self.at
            );
            Ok(())
        };
        let Ok(both) = self.exchange(index, seen, new, others, change, allowed);
        both
    }

    /// Puts `new` in the place of `seen`, or of the entry that is there by now the result of
    /// `change`. `may` is asked where MMUs may use the entry.
    #[inline(always)]
    fn exchange<E>(
        &self,
        index: usize,
        seen: u64,
        new: u64,
        others: Use,
        change: impl Fn(u64) -> u64,
        may: impl Fn(u64, u64) -> Result<(), E>,
    ) -> Result<(u64, u64), E> {
        let slot = self.slot(index);
        let (mut old, mut new) = (seen, new | F::cleared(seen));
        debug_assert!(!F::is_none(new), "entries are cleared by calls that count them");
        if others == Use::Private {
            slot.store(new);
            return Ok((old, new));
        }
        loop {
            may(old, new)?;
            match slot.exchange(old, new) {
                Ok(()) => return Ok((old, new)),
                Err(now) => old = now,
            }
            new = change(old) | F::cleared(old);
            if new == old {
                return Ok((old, new));
            }
        }
    }

    /// Lets no MMU use the leaf at `index` until the next change. It is still an entry, so its
    /// place is not filled again; it has no hint. Returns what it was.
    #[inline]
    pub fn break_off(&self, index: usize) -> u64 {
        self.replace(index, Use::Walked, |raw| {
            F::map_attr(self.level, F::unhinted(self.level, index, raw), Attr::without_access)
        })
    }

    /// Makes the leaf for `va`, which is [broken off](Self::break_off).
    pub fn make(&self, va: u64, raw: u64) {
        self.replace(F::index(self.level, va), Use::Walked, |_| raw);
    }

    /// Puts the link or leaf `raw` in the place of the one at `index` of a table above the leaves,
    /// which no MMU uses, or which the architecture lets it follow without a break; the one that
    /// was there.
    pub fn exchange_large(&self, index: usize, raw: u64, others: Use) -> u64 {
        let slot = self.slot(index);
        debug_assert!(self.level > Level::PTE && !F::is_none(raw) && !F::is_none(slot.load()));
        if others == Use::Private {
            let old = slot.load();
            slot.store(raw);
            return old;
        }
        slot.swap(raw)
    }

    /// Clears the entry of a slot; returns its former value.
    #[inline(always)]
    fn clear_slot(slot: &F::Slot, others: Use) -> u64 {
        if others == Use::Private || F::KEPT != 0 {
            let old = slot.load();
            if others == Use::Private {
                slot.store(F::cleared(old));
                return old;
            }
            let mut old = old;
            while let Err(now) = slot.exchange(old, F::cleared(old)) {
                old = now;
            }
            return old;
        }
        slot.swap(0)
    }

    /// Clears the entry at `index`; returns the former entry, `None` if it was empty.
    #[inline(always)]
    pub fn take(&self, index: usize, others: Use) -> Option<u64> {
        let slot = self.slot(index);
        let seen = slot.load();
        if F::is_none(seen) {
            return None;
        }
        let old = if others == Use::Private {
            slot.store(F::cleared(seen));
            seen
        } else {
            Self::clear_slot(slot, others)
        };
        self.removed(1);
        Some(old)
    }

    /// Clears all entries from `first` to `last` (inclusive) of a leaf table, and calls
    /// `gone(index, entry)` for each. Returns those that were cleared.
    #[inline(always)]
    pub fn clear(&self, first: usize, last: usize, others: Use, mut gone: impl FnMut(usize, u64)) -> Span {
        let mut cleared = Span::NONE;
        let Some(record) = self.record() else { return cleared };
        let uncounted = Uncounted { record, shift: self.entries().line_shift() };
        let mut n = 0;
        let len = self.entries().line_len();
        self.entries().each_line(record, first, last, |line, live| {
            if others == Use::Private && live == Live::MAX >> (MOST - len) {
                // A full line: no search.
                n += len as u32;
                cleared.add_all(line, len);
                for index in line..line + len {
                    gone(index, Self::clear_slot(self.slot(index), others));
                }
                return;
            }
            n += live.count_ones();
            cleared.add(line, live);
            each_bit(live, |i| {
                let index = line + i;
                gone(index, Self::clear_slot(self.slot(index), others));
            });
        });
        core::mem::forget(uncounted);
        if n == 0 {
            return cleared;
        }
        if self.entries().touched(record) & !self.entries().lines_inside(first, last) == 0 {
            // The memory outside of the cleared lines was never written.
            record.set_counted(0);
            self.entries().forget_lines(record);
        } else {
            self.removed(n as u16);
        }
        cleared
    }

    /// Clears the only entry of a leaf table that nobody else sees any more, if its record says
    /// which that is; returns its index and the former entry.
    #[inline(always)]
    pub fn take_sole(&self) -> Option<(usize, u64)> {
        let record = self.record()?;
        let index = record.sole()?;
        let old = Self::clear_slot(self.slot(index), Use::Private);
        record.set_leaf_table();
        record.set_live(0);
        Some((index, old))
    }

    /// Clears every entry of a leaf table that nobody else sees any more, and calls
    /// `gone(index, entry)` for each.
    #[inline]
    pub fn clear_all(&self, mut gone: impl FnMut(usize, u64)) {
        if let Some((index, old)) = self.take_sole() {
            return gone(index, old);
        }
        let Some(record) = self.record() else { return };
        let uncounted = Uncounted { record, shift: self.entries().line_shift() };
        let mut n = 0;
        self.entries().each_line(record, 0, F::entries(self.level) - 1, |line, live| {
            n += live.count_ones();
            each_bit(live, |i| {
                let index = line + i;
                gone(index, Self::clear_slot(self.slot(index), Use::Private));
            });
        });
        core::mem::forget(uncounted);
        debug_assert!(
            !record.is_counted() || u32::from(record.live_above()) == n,
            "live entries in lines that were never touched"
        );
        record.set_live(0);
        if const { F::KEPT == 0 } {
            record.set_lines(0, 0);
            record.set_lines(1, 0);
        }
    }

    // Bits that stay.

    /// Notes that the page at `index` is being put into the hash table for an `access`: sets the
    /// bits that stay, and those that an MMU would set. Returns the entry as it is then, and
    /// whether the bits were set before; `None`, without a change, if it does not allow the access.
    pub fn hash(&self, index: usize, access: Access) -> Option<Refill<u64>> {
        let slot = self.slot(index);
        let used = if access == Access::Write { Attr::ACCESSED | Attr::DIRTY } else { Attr::ACCESSED };
        let mut old = slot.load();
        loop {
            if F::is_none(old) || !F::allows(Level::PTE, old, access) {
                return None;
            }
            let new = F::map_attr(Level::PTE, old, |attr| attr | used) | F::KEPT;
            match slot.exchange(old, new) {
                Ok(()) => return Some(Refill { entry: new, was_hashed: F::cleared(old) != 0 }),
                Err(now) => old = now,
            }
        }
    }

    /// Takes the bits that stay away from empty entries from `first` to `last` (inclusive). The
    /// machine has forgotten their pages. Of a leaf table; others may fill entries meanwhile.
    pub fn scrub(&self, first: usize, last: usize) {
        let Some(record) = self.record() else { return };
        let shift = self.entries().line_shift();
        for index in first..=last {
            if self.entries().touched(record) >> (index >> shift) & 1 == 0 {
                continue;
            }
            let slot = self.slot(index);
            let raw = slot.load();
            if raw != 0 && F::is_none(raw) {
                // If it has been filled in between, the bits stay with that entry, and cost it a
                // search.
                let _ = slot.exchange(raw, 0);
            }
        }
    }

    /// Calls `visit` for each link to a table from `first` to `last` (inclusive), and passes over
    /// large pages; returns how many links it has cut.
    #[inline]
    pub fn each_link(&self, first: usize, last: usize, mut visit: impl FnMut(Link<'_, F>)) -> usize {
        let mut cleared = Cleared { node: self, n: 0 };
        self.each(first, last, |index, raw| {
            if let Some(child) = F::linked(self.level, raw) {
                visit(Link { index, child, slot: self.slot(index), cut: &mut cleared.n });
            }
        });
        cleared.n
    }

    /// Clears the link at `index`, which [`unlinked`](Self::unlinked) counts off.
    #[inline(always)]
    pub fn unlink(&self, index: usize) {
        self.slot(index).store(0);
    }

    /// Counts `n` links off that have been cleared by [`unlink`](Self::unlink).
    #[inline(always)]
    pub fn unlinked(&self, n: usize) {
        self.removed(n as u16);
    }

    /// Calls `visit` for each entry from `first` to `last` (inclusive) of a table above the leaves.
    /// Large pages at indices that are `inside` have just been cleared; others are passed over.
    #[inline]
    pub(super) fn clear_large(
        &self,
        (first, last): (usize, usize),
        inside: Range<usize>,
        others: Use,
        mut visit: impl FnMut(usize, Above),
    ) {
        let mut cleared = Cleared { node: self, n: 0 };
        self.each(first, last, |index, raw| {
            if let Some(table) = F::linked(self.level, raw) {
                visit(index, Above::Table(table));
            } else if inside.contains(&index) {
                let old = Self::clear_slot(self.slot(index), others);
                cleared.n += 1;
                visit(index, Above::Cleared(old));
            }
        });
    }

    /// `n` entries have been cleared; all of them if the table is empty then.
    #[inline(always)]
    fn removed(&self, n: u16) {
        let Some(record) = self.record() else { return };
        if self.level == Level::PTE && !record.has_count() {
            self.entries().count(record);
            return;
        }
        let left = record.live_above() - n;
        record.set_live(left);
        if left == 0 {
            self.entries().forget_lines(record);
        }
    }
}

/// The entries of an open table of `level`.
struct Entries<'g, F: Format> {
    base: *const F::Slot,
    level: Level,
    _open: PhantomData<&'g F::Slot>,
}

impl<F: Format> Clone for Entries<'_, F> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Format> Copy for Entries<'_, F> {}

impl<'g, F: Format> Entries<'g, F> {
    /// Those of the table of `level` that `guard` has open.
    #[inline]
    fn of<G: WindowGuard>(guard: &'g G, level: Level) -> Self {
        Entries { base: guard.base().cast(), level, _open: PhantomData }
    }

    #[inline]
    fn slot(self, index: usize) -> &'g F::Slot {
        let index = index & (F::entries(self.level) - 1);
        // SAFETY: the guard, which is borrowed, is valid for the whole table (contract of `Window`,
        // point 1), whose entries fit into it (`format::check`), `index` was reduced to their
        // number, and `Slot` accepts any bit pattern and shared access.
        unsafe { &*self.base.add(index) }
    }

    /// `n` entries from `first` on, or those that there are.
    #[inline]
    fn slots(self, first: usize, n: usize) -> &'g [F::Slot] {
        let all = F::entries(self.level);
        let first = first.min(all);
        // SAFETY: as in `slot`, for each: `first + n` is at most their number.
        unsafe { core::slice::from_raw_parts(self.base.add(first), n.min(all - first)) }
    }

    /// Binary logarithm of the entries that one bit of the record's map stands for. A root has 32
    /// bits for the user's entries, however many these are: the other word of the map belongs to
    /// the registry of roots.
    #[inline]
    fn line_shift(self) -> u32 {
        let root = const { F::USER_ROOT_ENTRIES.div_ceil(32).next_power_of_two().trailing_zeros() };
        let other = (F::entries(self.level) / LINES).trailing_zeros();
        if root != other && self.level == F::LAYOUT.root() { root } else { other }
    }

    /// Entries that are handed over together.
    #[inline]
    fn line_len(self) -> usize {
        (1 << self.line_shift()).min(MOST)
    }

    /// Says which lines have been written to, by bits of the record's map.
    #[inline]
    fn touched(self, record: &FrameMeta) -> u64 {
        match record.sole() {
            Some(index) if const { F::KEPT == 0 } && self.level == Level::PTE => {
                record.touched() | 1 << (index >> self.line_shift())
            }
            _ => record.touched(),
        }
    }

    /// Calls `visit(start, live)` for every line, or [`line_len`](Self::line_len) entries of it,
    /// with entries from `first` to `last` (inclusive) that are not empty, in order: bit i of
    /// `live` says that entry `start` + i is one of them. Looks only at lines that have been
    /// touched.
    ///
    /// The place of an entry in its line is as good as random, so the entries of a line are tested
    /// without branches.
    ///
    /// Of a root, only the user's entries may be asked for.
    #[inline(always)]
    fn each_line(self, record: &FrameMeta, first: usize, last: usize, mut visit: impl FnMut(usize, Live)) {
        let shift = self.line_shift();
        let len = self.line_len();
        let mut lines =
            self.touched(record) & u64::MAX << (first >> shift) & u64::MAX >> (63 - (last >> shift));
        while lines != 0 {
            let line = (lines.trailing_zeros() as usize) << shift;
            lines &= lines - 1;
            for start in (line..line + (1 << shift)).step_by(len) {
                let mut live = Self::LIVE_OF(self, start, len);
                if start < first {
                    live &= Live::MAX.checked_shl((first - start) as u32).unwrap_or(0);
                }
                if start + len - 1 > last {
                    live &= Live::MAX.checked_shr((start + MOST - 1 - last) as u32).unwrap_or(0);
                }
                if live != 0 {
                    visit(start, live);
                }
            }
        }
    }

    /// Says which of so many entries from one on are not empty. A value and no branch: a branch,
    /// even a constant one, keeps code from being inlined, and makes a fault of formats with small
    /// tables 25 instructions dearer.
    const LIVE_OF: fn(Self, usize, usize) -> Live =
        if F::PAGE_SHIFT > FRAME_SHIFT { Self::live_of_many } else { Self::live_of_few };

    /// Says which of `n` entries from `start` on are not empty.
    #[inline]
    fn live_of_few(self, start: usize, n: usize) -> Live {
        if self.is_full(start, n) {
            return Live::MAX >> (MOST - n);
        }
        let mut live: Live = 0;
        for i in 0..n {
            live |= Live::from(!F::is_none(self.slot(start + i).load())) << i;
        }
        live
    }

    /// Whether `n` entries from `start` on have a bit in common: then none of them is empty. So
    /// ranges, whose pages have attributes in common, are told by a few instructions.
    #[inline(always)]
    fn is_full(self, start: usize, n: usize) -> bool {
        // Scattered pages are told by the ends.
        let ends = self.slot(start).load() & self.slot(start + n - 1).load();
        !F::is_none(ends) && !F::is_none((1..n - 1).fold(ends, |all, i| all & self.slot(start + i).load()))
    }

    /// Says which of `n` entries from `start` on are not empty. For tables of which one bit of the
    /// record's map stands for several cache lines, most of them empty: the entries of a cache line
    /// are looked at together first.
    #[inline]
    fn live_of_many(self, start: usize, n: usize) -> Live {
        let (lines, rest) = self.slots(start, n).as_chunks::<LINE_ENTRIES>();
        let is_live = |slot: &F::Slot| Live::from(!F::is_none(slot.load()));
        let mut live: Live = 0;
        for (line, slots) in lines.iter().enumerate() {
            if !F::is_none(slots.iter().fold(0, |all, slot| all | slot.load())) {
                for (i, slot) in slots.iter().enumerate() {
                    live |= is_live(slot) << (line * LINE_ENTRIES + i);
                }
            }
        }
        for (i, slot) in rest.iter().enumerate() {
            live |= is_live(slot) << i;
        }
        live
    }

    /// The lines, as bits of the record's map, all of whose entries are from `first` to `last`
    /// (inclusive).
    #[inline]
    fn lines_inside(self, first: usize, last: usize) -> u64 {
        let shift = self.line_shift();
        let from = (first + (1 << shift) - 1) >> shift;
        let end = (last + 1) >> shift;
        if from >= end { 0 } else { u64::MAX << from & u64::MAX >> (64 - end) }
    }

    #[inline]
    fn forget_lines(self, record: &FrameMeta) {
        if const { F::KEPT != 0 } && self.level == Level::PTE {
            // They say where bits may be left.
            return;
        }
        record.set_lines(0, 0);
        if self.level != F::LAYOUT.root() {
            // The second word of a root is not the map's.
            record.set_lines(1, 0);
        }
    }

    /// Counts the entries of a leaf table.
    #[inline(never)]
    fn count(self, record: &FrameMeta) {
        let leaves = Entries { level: Level::PTE, ..self };
        let (shift, mut lines, mut n) = (leaves.line_shift(), leaves.touched(record), 0u32);
        while lines != 0 {
            let start = (lines.trailing_zeros() as usize) << shift;
            lines &= lines - 1;
            if leaves.is_full(start, 1 << shift) {
                n += 1 << shift;
                continue;
            }
            let line = leaves.slots(start, 1 << shift);
            n += line.iter().map(|slot| u32::from(!F::is_none(slot.load()))).sum::<u32>();
        }
        record.set_counted(n as u16);
        if n == 0 {
            leaves.forget_lines(record);
        }
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

/// A link to a table, found by [`Node::each_link`].
pub(crate) struct Link<'a, F: Format> {
    /// The index of the entry.
    pub index: usize,
    /// The table that it links.
    pub child: PhysAddr,
    slot: &'a F::Slot,
    cut: &'a mut usize,
}

impl<F: Format> Link<'_, F> {
    /// Clears the entry.
    #[inline]
    pub fn cut(self) {
        self.slot.store(0);
        *self.cut += 1;
    }
}

/// An entry of a table above the leaves, while large pages are being cleared.
pub(super) enum Above {
    /// It links this table.
    Table(PhysAddr),
    /// A large page that has been cleared: the former entry.
    Cleared(u64),
}

/// Entries of one table that have been cleared. They are counted off when this is dropped, also if
/// a callback panics.
struct Cleared<'a, 'w, F: Format, W: OpenWindow> {
    node: &'a Node<'w, F, W>,
    n: usize,
}

impl<F: Format, W: OpenWindow> Drop for Cleared<'_, '_, F, W> {
    #[inline]
    fn drop(&mut self) {
        if self.n > 0 {
            self.node.removed(self.n as u16);
        }
    }
}

/// While it is there, `live` of a leaf table's record is not the count: dropped by a callback that
/// panics, it has the entries counted when their number is needed. Forgotten otherwise.
struct Uncounted<'a> {
    record: &'a FrameMeta,
    shift: u32,
}

impl Drop for Uncounted<'_> {
    #[cold]
    fn drop(&mut self) {
        self.record.stop_counting(self.shift);
    }
}

/// Calls `visit` with the number of each bit of `live`, lowest first.
#[inline(always)]
fn each_bit(mut live: Live, mut visit: impl FnMut(usize)) {
    while live != 0 {
        visit(live.trailing_zeros() as usize);
        live &= live - 1;
    }
}

/// Marks the lines `first..=last` of a table as touched.
fn touch_lines(record: &FrameMeta, first: u32, last: u32) {
    for word in first / 32..=last / 32 {
        let low = if word == first / 32 { u32::MAX << (first % 32) } else { u32::MAX };
        let high = if word == last / 32 { u32::MAX >> (31 - last % 32) } else { u32::MAX };
        let word = word as usize % 2;
        record.set_lines(word, record.lines(word) | (low & high));
    }
}
